# SPDX-License-Identifier: Apache-2.0
"""Where VMs of one host may go: other hosts with shares equal to those that each holds now."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import NoCapacity, StateError
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.quota.pools import closed_hosts
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.usecases.network.ports import attachment_of, on_its_host
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey
from vgpuctl.usecases.vm.shares import leases_of


def refuse_staying(services: Services, vm: Vm) -> None:
    """Raise StateError for a VM that cannot leave its host, with the reason."""
    if vm.state not in (VmState.RUNNING, VmState.STOPPED):
        raise StateError(f"VM {vm.request.name} is {vm.state}: {vm.problem or ''}", hint="run `vgpuctl repair`")
    if vm.is_adopted:
        raise StateError(
            f"{vm.label} cannot move: its domain {vm.domain_name} is adopted, and vgpuctl never writes its definition",
            hint="stop it, or move it by hand and adopt it again",
        )
    if vm.request.host is not None:
        raise StateError(
            f"{vm.label} cannot move: it was created for host {vm.request.host}",
            hint="stop it, or delete it and create it without --host",
        )
    attachment = attachment_of(services, vm)
    if attachment is not None and attachment.network.request.host is not None:
        raise StateError(
            f"{vm.label} cannot move: its network {attachment.network.label} is on {vm.host} alone",
            hint="stop it; a network with --backend ovn reaches every host",
        )


class MoveSearch:
    """A search for VMs of one host, in the order in which they move: each takes its part of what is free."""

    def __init__(self, services: Services, source: str) -> None:
        self._services = services
        names = [name for name in services.inventory.select(None) if name != source]
        seen = survey(services, names, refresh=False) if names else None
        self._capacities = {} if seen is None else {one.name: one for one in seen.capacities}
        self._taken: list[Lease] = []

    def place(self, vm: Vm, *, to: str | None = None) -> Placement:
        """Choose a host other than the VM's with equal shares. Raises NoCapacity."""
        with self._services.store.reading() as session:
            own = session.leases(vm_uuid=vm.uuid)
            known = session.facts(vm.host)
            closed = closed_hosts(vm.request.tenant, session.pools())
        wanted = replace(vm.request, host=to, gpus=equal_gpus(vm, own, None if known is None else known.facts))
        attachment = attachment_of(self._services, vm)
        wanted = on_its_host(wanted, None if attachment is None else attachment.network)
        with self._services.store.reading() as session:
            leases = [*with_promises(session, session.leases(), wanted, vm), *self._taken]
        open_hosts = [one for name, one in sorted(self._capacities.items()) if name not in closed]
        if not open_hosts:
            raise NoCapacity(f"no other host may take {vm.label}", hint="see `vgpuctl list-hosts` and `list-pools`")
        placement = place(wanted, open_hosts, leases)
        self._take(vm, wanted, placement)
        return placement

    def _take(self, vm: Vm, wanted: VmRequest, placement: Placement) -> None:
        there = self._capacities[placement.host]
        self._taken += leases_of(replace(vm, host=placement.host), placement)
        self._capacities[placement.host] = _with(there, wanted, placement)


def _with(capacity: HostCapacity, request: VmRequest, placement: Placement) -> HostCapacity:
    group = request.constraints.group
    groups = capacity.groups if group is None else capacity.groups | {(request.tenant, group)}
    return replace(with_promised(capacity, more=[footprint_of(request, placement)]), groups=groups)


def equal_gpus(vm: Vm, leases: Sequence[Lease], facts: HostFacts | None) -> tuple[GpuRequest, ...]:
    """The requests that give the VM shares equal to its own: the same profile, or the same model as a whole.

    facts: of its host, for the model of a whole card. A VM that released its shares asks as it did before.
    """
    if not leases:
        return vm.request.gpus
    return tuple(parse_gpu_request(_equal(one.share, facts)) for one in sorted(leases, key=lambda one: one.index))


def _equal(share: Share, facts: HostFacts | None) -> str:
    if not share.sharing.is_asked_for_by_name():
        return share.profile
    gpu = None if facts is None else gpu_at(facts, share.gpu)
    board = None if gpu is None else catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return str(share.sharing) if board is None else f"{share.sharing}:{board.key}"
