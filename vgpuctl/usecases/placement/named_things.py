# SPDX-License-Identifier: Apache-2.0
"""The things that a request names: what the store must know of them, and what only a host can tell."""

from collections.abc import Iterator

from vgpuctl.errors import UsageError
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.session import Session
from vgpuctl.usecases.found.registered_images import refuse_unregistered
from vgpuctl.usecases.network.ports import check_groups, network_of, networks_of, on_its_host
from vgpuctl.usecases.running.services import Services


def refuse_unknown_references(session: Session, request: VmRequest) -> None:
    """Accept a request whose images, security groups and licence pool are all known.

    request.tenant: empty for a hypothetical VM of nobody, who has no groups. Raises ImageUnregistered, NotFound, and
    UsageError for groups without a network.
    """
    refuse_unregistered(session, request)
    if request.licence_pool is not None:
        session.licence_pool(request.licence_pool)
    if request.security_groups and request.network is None:
        raise UsageError(
            f"VM {request.name} names security groups, and has no network",
            hint="give --network too, or leave them out",
        )
    for interface in interfaces_of(request) if request.tenant else ():
        if interface.security_groups:
            network_of(session, request, interface)
            check_groups(session, request.tenant, interface)


def look_up(services: Services, request: VmRequest) -> tuple[VmRequest, tuple[str, ...]]:
    """The request of a hypothetical VM with what its networks ask of a host, and what only hosts know.

    Raises what refuse_unknown_references and the networks raise.
    """
    with services.store.reading() as session:
        refuse_unknown_references(session, request)
        unseen = tuple(only_hosts_know(session, request))
    return on_its_host(request, networks_of(services, request).values()), unseen


def only_hosts_know(session: Session, request: VmRequest) -> Iterator[str]:
    """Objects that `create-vm` checks on the chosen host only: networks of hosts, and storage pools."""
    for interface in interfaces_of(request):
        if not request.tenant or session.find_network(request.tenant, interface.network) is None:
            yield f"network {interface.network}"
    disks = ([] if request.disk is None else [request.disk.pool]) + [one.pool for one in request.data_disks]
    for pool in dict.fromkeys(disks):
        yield f"storage pool {pool}"
