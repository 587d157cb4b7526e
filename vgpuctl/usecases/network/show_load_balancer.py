# SPDX-License-Identifier: Apache-2.0
"""show-load-balancer: the VMs behind a balancer, and what OVN's health checks found of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import is_ipv6
from vgpuctl.model.network_seen import Checked
from vgpuctl.model.vpc import Vpc
from vgpuctl.specs.vpc_objects import KIND_OF
from vgpuctl.usecases.network.rule_remarks import remarks_of_rules
from vgpuctl.usecases.network.vpc import read_vpc
from vgpuctl.usecases.network.vpc_objects import find_object
from vgpuctl.usecases.running.services import Services

_Monitors = Mapping[Checked, str | None]

_OF_HTTP = "HAProxy checks them: `vgpuctl list-vpc-objects --kind load-balancer --members` asks its instances"


class MemberState(StrEnum):
    """The state of one address behind a balancer."""

    ONLINE = "online"
    OFFLINE = "offline"
    ERROR = "error"
    """OVN could not check it."""
    UNCHECKED = "not checked yet"
    """No health check has ended; OVN sends connections there."""
    DRAINING = "draining"
    ABSENT = "not there"
    """The VM does not exist, or has no interface in a network of OVN's."""
    NOT_LOOKED_AT = "not looked at"


@dataclass(frozen=True)
class BalancedMember:
    """One address of a VM behind the balancer. address: None for a VM that is not there. weight: against the others."""

    vm: str
    address: str | None
    weight: int
    state: MemberState


@dataclass(frozen=True)
class ShownBalancer:
    """A load balancer with its VMs. not_looked_at: why OVN's southbound database was not asked for their states."""

    tenant: str
    load_balancer: LoadBalancer
    members: tuple[BalancedMember, ...]
    not_looked_at: str | None
    remarks: tuple[str, ...] = ()


def show_load_balancer(services: Services, tenant: str, name: str) -> ShownBalancer:
    """One load balancer. OVN's southbound database is asked, and no host. Raises NotFound."""
    with services.store.reading() as session:
        session.tenant(tenant)
        spec = find_object(session, tenant, KIND_OF[LoadBalancer.kind], name)
        assert isinstance(spec, LoadBalancer)
        vpc = read_vpc(session, tenant)
        remarks = remarks_of_rules(session, tenant).get((spec.kind, spec.key), ())
    ports = [port.port.id for vm in spec.vms if (port := vpc.port_in(vm, spec.network)) is not None]
    monitors, why_not = (None, _OF_HTTP) if spec.protocol.is_http() else _look(services, ports)
    return ShownBalancer(tenant, spec, tuple(_members(vpc, spec, monitors)), why_not, tuple(remarks))


def _look(services: Services, ports: list[str]) -> tuple[_Monitors | None, str | None]:
    """What health checks found; None with the reason where OVN cannot be asked."""
    try:
        return services.southbound.networks(ports).checks, None
    except VgpuctlError as error:
        return None, f"{error.message}: {error.hint}" if error.hint else error.message


def _members(vpc: Vpc, spec: LoadBalancer, monitors: _Monitors | None) -> Iterator[BalancedMember]:
    versions = {is_ipv6(one) for one in (spec.address, spec.address6) if one}
    for vm in spec.all_vms:
        port, weight = vpc.port_in(vm, spec.network), spec.weight_of(vm)
        if port is None:
            yield BalancedMember(vm, None, weight, MemberState.ABSENT)
            continue
        for address in (one for one in port.port.addresses if is_ipv6(one) in versions):
            if vm in spec.draining:
                state = MemberState.DRAINING
            elif monitors is None:
                state = MemberState.NOT_LOOKED_AT
            else:
                found = monitors.get(Checked(port.port.id, address, spec.vm_port, str(spec.protocol)))
                state = _state(found)
            yield BalancedMember(vm, address, weight, state)


def _state(found: str | None) -> MemberState:
    if not found:
        return MemberState.UNCHECKED
    return MemberState(found) if found in ("online", "offline") else MemberState.ERROR
