# SPDX-License-Identifier: Apache-2.0
"""Where VMs of one host may go: other hosts with shares equal to those that each holds now."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import NoCapacity, StateError, VgpuctlError
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_parts import missing_parts, parts_needed
from vgpuctl.model.lease import Lease, Share, without_leaving
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.plural import counted
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.quota.host_pools import closed_hosts
from vgpuctl.scheduler.defrag.plan import VmWay, WayKind
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.usecases.found.find_vm import refuse_suspended, refuse_unfinished
from vgpuctl.usecases.network.ports import attachments_of, with_attachments
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.move_reservation import place_promise
from vgpuctl.usecases.placement.reservations import used_by, with_promises
from vgpuctl.usecases.placement.usable_hosts import lines_of_closed, not_granted
from vgpuctl.usecases.running.services import Services

Found = TypeVar("Found")

COLD_DOWNTIME_S = 120.0
"""Assumed downtime of a cold move: the guest shuts down and boots. Copying its disks is not counted."""


def refuse_staying(services: Services, vm: Vm) -> None:
    """Raise StateError for a VM that cannot leave its host, with the reason."""
    refuse_unfinished(vm)
    refuse_suspended(vm, "move")
    if vm.is_adopted:
        raise StateError(
            f"{vm.printed_name}: cannot move: its domain {vm.domain_name} is adopted, "
            "and vgpuctl never writes its definition",
            hint="move it by hand and adopt it again",
        )
    if vm.request.host is not None:
        raise StateError(
            f"{vm.printed_name}: cannot move: it was created for host {vm.request.host}",
            hint="it is bound to that host, also when it is off: delete it and create it again without --host",
        )
    for attachment in attachments_of(services, vm):
        if attachment.network.request.host is not None:
            raise StateError(
                f"{vm.printed_name}: cannot move: its network {attachment.network.printed_name} is on {vm.host} alone",
                hint="it runs on that host alone: delete it and create it in a network on the other host, or in one "
                "with --backend ovn, which reaches every host",
            )


def cold_way(services: Services, vm: Vm) -> VmWay:
    """Cold for a VM that may leave its host, with the downtime of one that runs; else pinned, with the reason."""
    try:
        refuse_staying(services, vm)
    except StateError as error:
        return VmWay(WayKind.PINNED, reason=error.message.removeprefix(f"{vm.printed_name}: "))
    return VmWay(WayKind.COLD, COLD_DOWNTIME_S if vm.state is VmState.RUNNING else 0.0)


class MoveSearch:
    """A search for a VM's next host. names: the hosts to search, all others by default.

    failures: of hosts of which nothing is known, and which did not answer.
    """

    def __init__(self, services: Services, source: str, names: Collection[str] | None = None) -> None:
        self._services = services
        known = services.inventory.select(None) if names is None else names
        others = [name for name in known if name != source]
        seen = survey(services, others, refresh=False) if others else None
        self._capacities = {} if seen is None else {one.name: one for one in seen.capacities}
        self.failures = {} if seen is None else dict(seen.failures)
        self._read: set[str] = set()

    def find(
        self,
        vm: Vm,
        look: Callable[[Placement], Found],
        *,
        to: str | None = None,
        gpus: Collection[str] = (),
        among: Collection[str] | None = None,
        request: VmRequest | None = None,
    ) -> Found:
        """Choose a host other than the VM's with equal shares, on which `look` finds nothing against the VM.

        to: the host it must be. gpus: the addresses of the GPUs that it must have there, () for any. among: the only
        hosts that may be. request: the VM as it is to be. look: it raises what is against a host; the next one is tried
        then. A VM that has released its shares gets none on the host. Raises what was against the only host that had
        room, and NoCapacity.
        """
        with self._services.store.reading() as session:
            own = without_leaving(session.leases(vm_uuid=vm.uuid))
            reserved = used_by(session, vm)
        has_released = not vm.has_to_run and not own
        wanted = asked_elsewhere(self._services, vm, own, to, request or vm.request)
        refused: dict[str, VgpuctlError] = {}
        while True:
            try:
                placement = self._place(vm, wanted, among, gpus, refused, None if has_released else reserved)
            except NoCapacity as full:
                if self._read_again(wanted, to):
                    continue
                raise _of_all(vm, refused, full) from full
            if has_released:
                placement = replace(placement, shares=())
            try:
                return look(placement)
            except VgpuctlError as error:
                refused[placement.host] = error

    def _read_again(self, wanted: VmRequest, to: str | None) -> bool:
        """Read hosts again, once: one that is the only one that may be, and those without a part that the VM needs.

        Parts and room come back without a word to the store, as ovn-controller does when it is started again. False
        without any such host.
        """
        needed, only = parts_needed(wanted), to is not None or len(self._capacities) == 1
        lacking = [name for name, one in self._capacities.items() if missing_parts(one.facts, needed)]
        lacking += [name for name in self._capacities if only and to in (None, name)]
        names = [name for name in dict.fromkeys(lacking) if name not in self._read]
        if not names:
            return False
        self._read.update(names)
        self._capacities |= {one.name: one for one in survey(self._services, names, refresh=True).capacities}
        return True

    def _place(
        self,
        vm: Vm,
        wanted: VmRequest,
        among: Collection[str] | None,
        gpus: Collection[str],
        refused: Collection[str],
        reserved: Reservation | None,
    ) -> Placement:
        """Place a VM, with the reservation that it uses: that must be free there in all of its windows."""
        with self._services.store.reading() as session:
            closed = closed_hosts(vm.request.tenant, session.host_pools())
            leases = with_promises(session, session.leases(), wanted, vm)
        possible = {
            name: _with_gpus(one, gpus) if gpus else one
            for name, one in sorted(self._capacities.items())
            if name not in refused and (among is None or name in among)
        }
        open_hosts = [one for name, one in possible.items() if name not in closed]
        barred = {name: closed[name] for name in possible if name in closed and wanted.host in (None, name)}
        if wanted.host is not None and barred:
            raise not_granted(wanted, barred)
        if not open_hosts:
            raise NoCapacity(
                f"no other host may take {vm.printed_name}",
                context=lines_of_closed(wanted, barred),
                hint="see `vgpuctl list-hosts` and `list-host-pools`",
                codes=[Code.HOST_POOL] * len(barred),
            )
        if reserved is None:
            try:
                return place(wanted, open_hosts, leases)
            except NoCapacity as full:
                full.context = (*full.context, *lines_of_closed(wanted, barred))
                raise
        with self._services.store.reading() as session:
            placement = place_promise(session, reserved, wanted, open_hosts)
        if placement is None:
            place(wanted, open_hosts, leases)
            raise NoCapacity(
                f"no other host has reservation {reserved.name}, which {vm.printed_name} uses, "
                "free in all of its windows",
                hint="see `vgpuctl list-reservations`",
            )
        return placement


def _with_gpus(capacity: HostCapacity, addresses: Collection[str]) -> HostCapacity:
    """The host as if it had these GPUs alone."""
    gpus = tuple(one for one in capacity.facts.gpus if one.address in addresses)
    return replace(capacity, facts=replace(capacity.facts, gpus=gpus))


def _of_all(vm: Vm, refused: dict[str, VgpuctlError], full: NoCapacity) -> VgpuctlError:
    """The error that names the reason of each host that had room, or says that none had."""
    if not refused:
        return full
    if len(refused) == 1:
        return next(iter(refused.values()))
    return NoCapacity(
        f"none of {counted(len(refused), 'host')} can take {vm.printed_name}",
        context=[error.line_of(host) for host, error in refused.items()],
        hint=next(iter(refused.values())).hint,
    )


def asked_elsewhere(services: Services, vm: Vm, own: Sequence[Lease], to: str | None, request: VmRequest) -> VmRequest:
    """The request for a VM on another host: with shares equal to its own ones, unless the request has others.

    to: the host it must be.
    """
    with services.store.reading() as session:
        known = session.facts(vm.host)
    attachments = attachments_of(services, vm)
    gpus = request.gpus
    if gpus == vm.request.gpus:
        gpus = equal_gpus(vm, own, None if known is None else known.facts)
    driver = request.guest_driver if vm.guest_driver is None else vm.as_known.guest_driver
    return with_attachments(replace(request, host=to, gpus=gpus, guest_driver=driver), attachments)


def equal_gpus(vm: Vm, leases: Sequence[Lease], facts: HostFacts | None) -> tuple[GpuRequest, ...]:
    """The requests that give the VM shares equal to its own: the same profile, or the same model as a whole.

    facts: of its host, for the model of a whole card. A VM that released its shares asks as it did before.
    """
    if not leases:
        return vm.request.gpus
    asked = {one.position: one for one in placed_gpus(vm.request.gpus)}
    return tuple(
        _with_compute(catalog.read_gpu_request(_equal(one.share, facts)), asked.get(one.index))
        for one in sorted(leases, key=lambda one: one.index)
    )


def _with_compute(equal: GpuRequest, asked: GpuRequest | None) -> GpuRequest:
    """The request with the compute time that the VM asks for, wherever it goes."""
    if asked is None or not asked.wants_compute:
        return equal
    return replace(equal, minimum_compute_percent=asked.minimum_compute_percent, compute=asked.compute)


def _equal(share: Share, facts: HostFacts | None) -> str:
    if not share.sharing.is_asked_for_by_name():
        return str(catalog.ProfileName(share.profile, share.board))
    gpu = None if facts is None else gpu_at(facts, share.gpu)
    board = None if gpu is None else catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return str(share.sharing) if board is None else f"{share.sharing}:{board.key}"
