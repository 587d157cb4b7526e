# SPDX-License-Identifier: Apache-2.0
"""Bring the backends of tenants' networks, libvirt and OVN, to what the store says; one run at a time."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vgpuctl.errors import UsageError
from vgpuctl.guests.libvirtd.networks import LibvirtNetworks
from vgpuctl.guests.libvirtd.port_filter import Reach
from vgpuctl.model.load_balancer import BalancerHash, LoadBalancer
from vgpuctl.model.network import Backend, Network
from vgpuctl.model.vpc import Contact, ExternalNetwork, VpcSpec
from vgpuctl.ovn.balancing import IPV6_SOURCE
from vgpuctl.usecases.network.vpc import apply_vpc
from vgpuctl.usecases.running.operations import in_turn_with_others
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

LOCK_TIMEOUT_S = 120.0
OVN_SUBJECT = "network:ovn"


def subject_of(network: Network) -> str:
    """The subject that a run locks to change the network: OVN as a whole, or one libvirt network."""
    return OVN_SUBJECT if network.request.backend is Backend.OVN else f"network:{network.id}"


@contextlib.contextmanager
def locked(services: Services, subject: str) -> Iterator[None]:
    """Let one run at a time read the store and write a backend, so that the backend gets the newest rows.

    Waits for other runs; a killed run holds no lock. Raises ConcurrentChange after LOCK_TIMEOUT_S.
    """
    with in_turn_with_others(services, "network", subject, limit_s=LOCK_TIMEOUT_S):
        yield


def refuse_without_ovn(services: Services, *wanted: VpcSpec | ExternalNetwork) -> None:
    """Raise UsageError for an object that needs OVN if no northbound database was named."""
    for one in wanted:
        if isinstance(one, Contact) or services.has_northbound:
            continue
        what = (
            f"external network {one.name}"
            if isinstance(one, ExternalNetwork)
            else " ".join(dict.fromkeys((str(one.kind), one.key)))
        )
        raise UsageError(
            f"{what} needs OVN, whose northbound database was not named, so nothing was created",
            hint="set VGPUCTL_OVN_NORTHBOUND, for example to unix:/run/ovn/ovnnb_db.sock (docs/networks.md)",
        )


def refuse_old_ovn(services: Services, session: "Session", tenant: str, wanted: Sequence[VpcSpec]) -> None:
    """Raise UsageError for an object that this OVN is too old for."""
    for one in wanted:
        if not isinstance(one, LoadBalancer) or one.selection is not BalancerHash.SOURCE:
            continue
        network = session.find_network(tenant, one.network)
        if network is None or network.request.cidr6 is None:
            continue
        if not services.require_northbound().knows("Load_Balancer", "selection_fields", IPV6_SOURCE):
            raise UsageError(
                f"load balancer {one.name} is to choose by the source, and OVN here cannot hash IPv6 addresses of "
                f"clients, as network {one.network} ({network.request.cidrs}) has",
                hint="OVN 25.03 can, and 23.03 cannot; give --affinity-time instead, which holds for both IP versions",
            )


def apply_network(
    services: Services, network: Network, *, without_vm: str | None = None, dry_run: bool = False
) -> list[str]:
    """Bring the backend's network to what the store says. Returns the changes in words; call it within `locked`.

    without_vm: a VM whose port counts as gone already. A rehearsal compares only.
    """
    dry_run = dry_run or services.rehearsal is not None
    if network.request.backend is Backend.OVN:
        return apply_vpc(services, network.request.tenant, without_vm=without_vm, dry_run=dry_run)
    with services.store.reading() as session:
        ports = [port for port in session.ports(network_id=network.id) if port.vm_uuid != without_vm]
        facts = None if network.request.host is None else session.facts(network.request.host)
    reach = Reach((facts.facts.addresses or ()) if facts is not None else (), services.reachable_networks)
    return _libvirt(services, network).ensure(network, ports, reach=reach, dry_run=dry_run)


def remove_network(services: Services, network: Network) -> None:
    """Delete a network whose row says `deleting` in its backend, if it is there."""
    if network.request.backend is Backend.OVN:
        apply_vpc(services, network.request.tenant, dry_run=services.rehearsal is not None)
    elif services.goes_on:
        services.leave_out(_host_of(network), f"remove network {network.host_name}")
    else:
        _libvirt(services, network).remove(network.host_name, network.id)


def require_backend(services: Services, network: Network) -> None:
    """Raise the error of a network's backend, OVN or its host's libvirt, unless it answers."""
    if network.request.backend is Backend.OVN:
        services.require_northbound()
    else:
        services.require_libvirt(_host_of(network))


def _libvirt(services: Services, network: Network) -> LibvirtNetworks:
    return LibvirtNetworks(services.host(_host_of(network)).hypervisor)


def _host_of(network: Network) -> str:
    assert network.request.host is not None
    return network.request.host
