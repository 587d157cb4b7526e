# SPDX-License-Identifier: Apache-2.0
"""list-security-rules: how often each rule decided, by the flow counters of the hosts whose VMs it is for."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.flows import FlowCount, FlowCounts
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.model.rule_text import describe_rule
from vgpuctl.model.security_decisions import groups_of
from vgpuctl.model.vm import VmState
from vgpuctl.model.vpc import Vpc
from vgpuctl.ovn.security import SecurityAcl, security_acls
from vgpuctl.ovn.topology import tenant_owner
from vgpuctl.usecases.network.vpc import carried, read_vpc
from vgpuctl.usecases.running.services import Services

_STAGES = ("ls_in_acl", "ls_out_acl")


@dataclass(frozen=True)
class RuleHits:
    """A rule on one host. group: None for what holds for every VM of the tenant; rule then says it in words.

    packets, bytes: that it decided on since `since`, seconds since the epoch, UTC; None where nobody could look, with
    the reason in not_looked_at. host: None for a rule without a running VM.
    """

    tenant: str
    group: str | None
    rule: str
    host: str | None
    packets: int | None = None
    bytes: int | None = None
    since: float | None = None
    not_looked_at: str = ""


@dataclass(frozen=True)
class _AskedRules:
    """Cookies of each ACL's flows, by its key; or why nobody knows them."""

    cookies: Mapping[str, Collection[str]]
    problem: str = ""


@dataclass(frozen=True)
class _Tenant:
    vpc: Vpc
    acls: Sequence[SecurityAcl]
    hosts: Mapping[str | None, Sequence[str]]
    """Of running VMs in each group; None for all of the tenant."""


def list_security_rules(services: Services, *, tenant: str | None = None, group: str | None = None) -> list[RuleHits]:
    """Count the packets of each rule of a tenant or of all, or of one group, on each host of a running member.

    Raises NotFound for the tenant, and for a group that no tenant has.
    """
    tenants = _read(services, tenant, group)
    asked = {one.vpc.tenant: _ask_cookies(services, one) for one in tenants}
    wanted: dict[str, set[str]] = {}
    for one in tenants:
        for acl in one.acls:
            for host in one.hosts.get(acl.group, ()):
                wanted.setdefault(host, set()).update(asked[one.vpc.tenant].cookies.get(acl.key, ()))
    answers = _ask_hosts(services, {host: sorted(cookies) for host, cookies in wanted.items() if cookies})
    now = services.store.now()
    return [row for one in tenants for row in _rows(one, asked[one.vpc.tenant], answers, now)]


def _read(services: Services, tenant: str | None, group: str | None) -> list[_Tenant]:
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        names = [one.name for one in session.tenants()] if tenant is None else [tenant]
        running = {vm.uuid: vm.host for vm in session.vms() if vm.state is VmState.RUNNING}
        found = []
        for name in names:
            if not carried(session, name):
                continue
            vpc = read_vpc(session, name)
            acls = [one for one in security_acls(vpc) if not one.is_answer and group in (None, one.group)]
            hosts: dict[str | None, set[str]] = {}
            for port in vpc.ports:
                host = running.get(port.port.vm_uuid)
                if host is not None:
                    for its in (None, *groups_of(port)):
                        hosts.setdefault(its, set()).add(host)
            found.append(_Tenant(vpc, acls, {its: sorted(of) for its, of in hosts.items()}))
    if group is not None and not any(one.acls for one in found):
        whose = "no tenant has" if tenant is None else f"tenant {tenant} does not have"
        raise NotFound(f"{whose} a security group {group} with rules in OVN", hint="see `vgpuctl list-vpc-objects`")
    return found


def _ask_cookies(services: Services, of: _Tenant) -> _AskedRules:
    """Find the flows of each ACL: OVN's northbound database has its UUID, the southbound one what was made of it."""
    if not services.has_northbound:
        return _AskedRules({}, "OVN's northbound database was not named")
    try:
        uuids = services.northbound.uuids(tenant_owner(of.vpc.tenant), "ACL")
        keys = {uuids[one.key]: one.key for one in of.acls if one.key in uuids}
        flows = services.southbound.flows(sorted(keys))
    except VgpuctlError as error:
        return _AskedRules({}, error.message)
    return _AskedRules(
        {
            key: sorted({one.cookie for one in flows[uuid] if one.stage.startswith(_STAGES)})
            for uuid, key in keys.items()
        }
    )


def _ask_hosts(services: Services, cookies: Mapping[str, Sequence[str]]) -> dict[str, FlowCounts | str]:
    """The counts of each host, or why there are none."""
    results = services.on_hosts(sorted(cookies), lambda name: services.host(name).agent.flows(cookies[name]))
    answers: dict[str, FlowCounts | str] = {}
    for one in results:
        if one.value is None:
            answers[one.name] = "it gives no answer" if one.error is None else one.error.message
        else:
            answers[one.name] = one.value if one.value.is_running else "ovn-controller does not run there"
    return answers


def _rows(of: _Tenant, asked: _AskedRules, answers: Mapping[str, FlowCounts | str], now: float) -> Iterator[RuleHits]:
    for acl in of.acls:
        rule = acl.reason if acl.rule is None else describe_rule(acl.rule)
        hosts = of.hosts.get(acl.group, ())
        if not hosts:
            yield RuleHits(of.vpc.tenant, acl.group, rule, None, not_looked_at="no VM that it is for runs")
        for host in hosts:
            yield _row(RuleHits(of.vpc.tenant, acl.group, rule, host), acl, asked, answers.get(host), now)


def _row(
    blank: RuleHits, acl: SecurityAcl, asked: _AskedRules, answer: FlowCounts | str | None, now: float
) -> RuleHits:
    if asked.problem:
        return replace(blank, not_looked_at=asked.problem)
    cookies = asked.cookies.get(acl.key)
    if not cookies:
        return replace(blank, not_looked_at="OVN has no flows of it yet")
    if answer is None or isinstance(answer, str):
        return replace(blank, not_looked_at=answer or "it gives no answer")
    found: list[FlowCount] = [one for one in answer.counts if one.cookie in cookies]
    if not found:
        why = "the host has no flows of it, as where an equal rule of another group has them"
        return replace(blank, not_looked_at=why)
    return replace(
        blank,
        packets=sum(one.packets for one in found),
        bytes=sum(one.bytes for one in found),
        since=now - max(one.age_s for one in found),
    )
