# SPDX-License-Identifier: Apache-2.0
"""Remarks on a tenant's security groups and balancers: rules that never match, and VMs that answer no client."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from vgpuctl.model.security_decisions import hidden_backends, rules_that_never_match
from vgpuctl.model.vpc import LoadBalancer, SecurityGroup, VpcKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpc import read_vpc

REMARKED = (VpcKind.SECURITY_GROUP, VpcKind.LOAD_BALANCER)
"""The kinds of objects that have such remarks."""


def remarks_of_rules(session: Session, tenant: str) -> Mapping[tuple[VpcKind, str], Sequence[str]]:
    """The remarks on a tenant's objects, by kind and name. A tenant without rules and balancers is not looked at."""
    has_rules = any(group.rules for group in session.vpc_objects(tenant, SecurityGroup))
    if not has_rules and not session.vpc_objects(tenant, LoadBalancer):
        return {}
    vpc = read_vpc(session, tenant)
    found: defaultdict[tuple[VpcKind, str], list[str]] = defaultdict(list)
    for group, text in rules_that_never_match(vpc):
        found[group.kind, group.name].append(text)
    for kind, name, text in hidden_backends(vpc):
        found[kind, name].append(text)
    return found
