# SPDX-License-Identifier: Apache-2.0
"""list-vms: the VMs of the store with their last observation, after asking their hosts where that is wanted."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.natural_order import natural_path

if TYPE_CHECKING:  # what is known of VMs is imported when there are some
    from vgpuctl.model.labels import Selector
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.licence import LicenceSeat
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.model.vm import Vm, VmRequest
    from vgpuctl.store.store import Session
    from vgpuctl.usecases.observed.observations import Observation
    from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ListedVm:
    """One VM, its live leases and its last observation. state: the observation in words, with its age.

    shares: of each lease, the last observation of its device: `held` by the VM, `free`, `taken` by somebody else or
    `lost` (the host does not have it any more). wrong: of each lease, what is wrong with its device, in words; None for
    nothing. licence: the seat that it holds. node_pool, cluster: of a node. addresses: those that the store gave its
    interfaces, in their order. created_at: seconds since the epoch, UTC; age_s: seconds since then.
    """

    vm: "Vm"
    leases: "tuple[Lease, ...]"
    seen: "Observation"
    state: str
    shares: "Sequence[Observation]" = ()
    wrong: Sequence[str | None] = ()
    licence: "LicenceSeat | None" = None
    node_pool: str | None = None
    cluster: str | None = None
    addresses: tuple[str, ...] = ()
    created_at: float | None = None
    age_s: float | None = None

    @property
    def word(self) -> str:
        """The state in one word, as the list begins with it: `unknown`, `running`, `stopped`, `shut-off`."""
        from vgpuctl.usecases.observed.observations import state_word

        return state_word(self.vm, self.seen)


@dataclass(frozen=True)
class VmRow:
    """A VM of the store, or one that waits in the queue to be created; then queued is its entry and listed is None.

    queued: also of a VM that waits to start again.
    """

    request: "VmRequest"
    state: str
    listed: ListedVm | None
    queued: "QueueEntry | None" = None

    @property
    def lost(self) -> int:
        """The number of its shares whose devices its host does not have; of a host that is silent nobody knows."""
        return 0 if self.listed is None else sum(share.known_state == "lost" for share in self.listed.shares)

    @property
    def word(self) -> str:
        """The state in one word: `queued`, or that of ListedVm."""
        return "queued" if self.listed is None else self.listed.word


def list_with_queued(
    services: "Services",
    *,
    tenant: str | None,
    host: str | Collection[str] | None,
    node_pool: str | None = None,
    selector: "Selector | None" = None,
) -> Sequence[VmRow]:
    """The VMs as `list_vms` finds them, and without a host or pool those of the queue.

    selector: only VMs with such labels.
    """
    listed = list_vms(services, tenant=tenant, host=host, node_pool=node_pool)
    with services.store.reading() as session:
        queue = session.queue()
    entries = {(one.tenant, one.name): entry for entry in queue if entry.kind.starts_again() for one in entry.requests}
    rows = [
        VmRow(one.vm.request, one.state, one, entries.get((one.vm.request.tenant, one.vm.request.name)))
        for one in listed
    ]
    if queue and host is None and node_pool is None:
        from vgpuctl.usecases.placement.queued_vms import created_later

        rows += [VmRow(one.request, one.state, None, one.entry) for one in created_later(queue, tenant)]
    if selector is not None:
        rows = [one for one in rows if selector.fits(one.request.labels)]
    return rows


def refresh_vms(
    services: "Services", *, tenant: str | None, host: str | Collection[str] | None, node_pool: str | None = None
) -> dict[str, VgpuctlError]:
    """Ask the libvirt of every host that has such VMs, and its agent where one is off and keeps shares.

    The device of a guest that runs is there; that of another may have gone with a reboot. Returns the errors by host.
    """
    from vgpuctl.usecases.observed.observations import look, observations, read_facts

    with services.store.reading() as session:
        refuse_unknown_names(session, tenant, node_pool)
        vms = session.vms(tenant=tenant, host=host)
        keeping = {lease.vm_uuid for lease in session.leases() if lease.state.is_attached()}
    failures = look(services, sorted({vm.host for vm in vms}))
    with services.store.reading() as session:
        seen = observations(session, vms)
    off = {vm.host for vm in vms if vm.uuid in keeping and seen[vm.uuid].state != "running"}
    for one in services.on_hosts(sorted(off - set(failures)), lambda name: read_facts(services, name)):
        if one.error is not None:
            failures[one.name] = one.error
    return failures


def list_vms(
    services: "Services", *, tenant: str | None, host: str | Collection[str] | None, node_pool: str | None = None
) -> Sequence[ListedVm]:
    """All VMs of the store in natural order of names. node_pool: only its nodes. No host is contacted.

    Raises NotFound, and UsageError for a pool without its tenant.
    """
    with services.store.reading() as session:
        refuse_unknown_names(session, tenant, node_pool)
        vms = session.vms(tenant=tenant, host=host)
        if not vms:
            return []
        from vgpuctl.usecases.observed.node_states import Memberships
        from vgpuctl.usecases.observed.observations import (
            describe_state,
            describe_wrong_share,
            observations,
            observed_shares,
        )

        pools = Memberships(session, tenant)
        leases = session.leases()
        seen = observations(session, vms)
        shares = observed_shares(session, leases)
        seats = {one.vm_uuid: one for one in session.licence_seats() if one.released_at is None}
        created = session.vm_times()
        ports = sorted(session.ports(), key=lambda port: port.position)
        now = session.now()
    by_vm: defaultdict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        by_vm[lease.vm_uuid].append(lease)
    addresses: defaultdict[str, list[str]] = defaultdict(list)
    for port in ports:
        addresses[port.vm_uuid] += port.addresses
    listed = []
    for vm in sorted(vms, key=lambda one: natural_path(one.printed_name)):
        own = sorted(by_vm[vm.uuid], key=lambda lease: lease.index)
        said = describe_state(vm, seen[vm.uuid], now)
        of_shares = tuple(shares[lease.id] for lease in own)
        wrong = tuple(describe_wrong_share(share, now) for share in of_shares)
        pool = pools.of_vm(vm.uuid)
        if node_pool in (None, pool.node_pool):
            one = ListedVm(vm, tuple(own), seen[vm.uuid], said, of_shares, wrong, seats.get(vm.uuid))
            one = replace(one, node_pool=pool.node_pool, cluster=pool.cluster, addresses=tuple(addresses[vm.uuid]))
            made_at = created.get(vm.uuid)
            age_s = None if made_at is None else max(0.0, now - made_at)
            listed.append(replace(one, created_at=made_at, age_s=age_s))
    return listed


def refuse_unknown_names(session: "Session", tenant: str | None, node_pool: str | None) -> None:
    """Raise NotFound for a tenant or pool that the store does not have, UsageError for a pool without its tenant."""
    if tenant is not None:
        session.tenant(tenant)
    if node_pool is not None:
        if tenant is None:
            raise UsageError("the name of a node pool needs its tenant", hint="give --tenant NAME")
        session.node_pool(tenant, node_pool)
