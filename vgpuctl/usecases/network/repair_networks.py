# SPDX-License-Identifier: Apache-2.0
"""repair for networks: finish interrupted runs, and bring the backends to what the store says."""

from collections.abc import Collection, Iterator

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import Backend, Network, NetworkState
from vgpuctl.usecases.network.announcements import provider_vpcs
from vgpuctl.usecases.network.functions import repair_functions
from vgpuctl.usecases.network.network_backends import (
    OVN_SUBJECT,
    apply_network,
    locked,
    require_backend,
    subject_of,
)
from vgpuctl.usecases.network.networks import finish_creation, finish_deletion, note_network
from vgpuctl.usecases.network.vpc import carried, read_vpc
from vgpuctl.usecases.observed.function_records import recorded_functions
from vgpuctl.usecases.running.services import Services

Finding = tuple[str, str, str, str]


def repair_networks(services: Services, *, busy: Collection[str], dry_run: bool) -> Iterator[Finding]:
    """Look at every network of the store. Gives (network, where, found, outcome) for each that differed.

    busy: subjects of operations whose run may be alive; their networks are left alone.
    """
    with services.store.reading() as session:
        networks = session.networks()
    seen: set[str] = set()
    for network in networks:
        if subject_of(network) in busy:
            continue
        where = network.request.host or str(network.request.backend)
        if network.request.backend is Backend.OVN and network.state is NetworkState.CREATED:
            # One look at OVN is for all of a tenant's networks.
            if network.request.tenant in seen:
                continue
            seen.add(network.request.tenant)
        try:
            found = _fix(services, network, dry_run=dry_run)
        except VgpuctlError as error:
            if network.request.host is not None:
                services.forget_host(network.request.host)
            yield network.printed_name, where, f"network is {network.state}", f"failed: {error.message}"
            continue
        if found is not None:
            what, outcome = found
            yield network.printed_name, where, what, f"would be {outcome}" if dry_run else outcome
    yield from _repair_functions(services, busy=busy, dry_run=dry_run)


def _repair_functions(services: Services, *, busy: Collection[str], dry_run: bool) -> Iterator[Finding]:
    """Compare the programs of tenants' networks on hosts with the store."""
    if OVN_SUBJECT in busy:
        return
    with services.store.reading() as session:
        tenants = [one.name for one in session.tenants() if carried(session, one.name)]
        vpcs = [read_vpc(session, one, domain=services.internal_domain) for one in tenants]
        vpcs += provider_vpcs(session)
        if not recorded_functions(session) and not any(vpc.functions for vpc in vpcs):
            return
    if dry_run:
        yield from repair_functions(services, vpcs, dry_run=True)
        return
    with locked(services, OVN_SUBJECT):
        yield from repair_functions(services, vpcs, dry_run=False)


def _fix(services: Services, network: Network, *, dry_run: bool) -> tuple[str, str] | None:
    if network.state is not NetworkState.CREATED:
        is_new = network.state is NetworkState.CREATING
        if dry_run:
            require_backend(services, network)
        elif is_new:
            finish_creation(services, network)
        else:
            finish_deletion(services, network)
        return f"{'creation' if is_new else 'deletion'} of the network did not end", "finished"
    if dry_run:
        changes = apply_network(services, network, dry_run=True)
    else:
        with locked(services, subject_of(network)):
            changes = apply_network(services, network)
        if changes:
            with services.store.transaction() as session:
                note_network(session, EventKind.NETWORK_REPAIRED, network, after={"changes": list(changes)})
    return (f"network was not as the store says: {', '.join(changes)}", "finished") if changes else None
