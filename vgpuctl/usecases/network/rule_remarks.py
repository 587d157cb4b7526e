# SPDX-License-Identifier: Apache-2.0
"""Remarks on a tenant's objects: rules that never match, VMs that answer no client, next hops that are not there."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.routes import remarks_on_route
from vgpuctl.model.security_decisions import hidden_backends, rules_that_never_match
from vgpuctl.model.vpc import Route, SecurityGroup, Vpc
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.ovn.certificate_pairs import describe_certificate
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpc import read_vpc
from vgpuctl.usecases.observed.function_records import problems_of

REMARKED = (VpcKind.SECURITY_GROUP, VpcKind.LOAD_BALANCER, VpcKind.ROUTE)
"""The kinds of objects that have such remarks."""


def remarks_of_rules(session: Session, tenant: str) -> Mapping[tuple[VpcKind, str], Sequence[str]]:
    """The remarks on a tenant's objects, by kind and name. A tenant that has nothing to remark on is not looked at."""
    has_rules = any(group.rules for group in session.vpc_objects(tenant, SecurityGroup))
    has_balancers, has_routes = (
        bool(session.vpc_objects(tenant, LoadBalancer)),
        bool(session.vpc_objects(tenant, Route)),
    )
    if not (has_rules or has_balancers or has_routes):
        return {}
    vpc = read_vpc(session, tenant)
    found: defaultdict[tuple[VpcKind, str], list[str]] = defaultdict(list)
    for group, text in rules_that_never_match(vpc):
        found[group.kind, group.name].append(text)
    for kind, name, text in hidden_backends(vpc):
        found[kind, name].append(text)
    for balancer in vpc.balancers:
        if balancer.protocol.is_http():
            found[balancer.kind, balancer.name] += _of_instances(session, vpc, balancer)
        if set(balancer.vms) <= set(balancer.draining):
            found[balancer.kind, balancer.name].append("every VM of it drains, so nobody takes new connections")
    vms = {vm.request.name for vm in session.vms(tenant=tenant)} if vpc.routes else set()
    for route in vpc.routes:
        found[route.kind, route.key] += remarks_on_route(vpc, route, vms)
    return found


def _of_instances(session: Session, vpc: Vpc, balancer: LoadBalancer) -> Iterator[str]:
    """The certificate of a balancer, and instances that it lacks."""
    if balancer.certificate:
        yield describe_certificate(balancer.certificate)
    places = [one for one in vpc.functions if (one.kind, one.owner) == (balancer.kind, balancer.name)]
    if len(places) < len(balancer.instances):
        external = "the external network" if vpc.external_network is None else vpc.external_network.name
        yield (
            f"it has {len(places)} of {len(balancer.instances)} instances, for {external} names no more chassis;"
            " a second one keeps it running when a host fails"
        )
    yield from problems_of(session, vpc.tenant, balancer.kind, balancer.name)
