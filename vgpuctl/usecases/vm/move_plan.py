# SPDX-License-Identifier: Apache-2.0
"""Where a VM goes, found without writing: the host that has room for it, and how its volumes get there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.host_parts import parts_needed
from vgpuctl.model.placement import Placement
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.guest_state import refuse_other_build, variables_on
from vgpuctl.usecases.network.ports import attachments_of, with_attachments
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_place import MoveSearch, refuse_staying
from vgpuctl.usecases.vm.move_volumes import VolumeMove, plan_volumes, recorded_volumes


@dataclass(frozen=True)
class PlannedMove:
    """Where a VM goes, and how its volumes follow. request: as it is to be there; None for one that stays as it is.

    variables: the UEFI variables that follow it.
    """

    vm: Vm
    placement: Placement
    volumes: tuple[VolumeMove, ...]
    request: VmRequest | None = None
    variables: Variables | None = None

    @property
    def wanted(self) -> VmRequest:
        """The VM as it is to be there."""
        return self.request or self.vm.request

    @property
    def storage(self) -> str:
        """How its data gets there: `none`, `shared`, `copied`, `made again`, or several of the latter."""
        return " and ".join(sorted({str(one.way) for one in self.volumes})) or "none"


def plan_move(
    services: Services,
    vm: Vm,
    *,
    to: str | None = None,
    gpus: Sequence[str] = (),
    request: VmRequest | None = None,
) -> PlannedMove:
    """Find a host for a VM and look there whether it can live on it. Nothing is written, on no host.

    to: the host it must go to, not its own. gpus: the addresses of the GPUs there, () for any.
    request: the VM as it is to be there, for one that is resized.
    A host that refuses it, or does not answer, is passed over: a missing image, a missing pool, a domain of its
    name or with a MAC address of its.
    Raises InventoryError for an unknown host, StateError for a VM that is bound to its host, and NoCapacity when equal
    shares are nowhere.
    """
    if to is not None:
        services.inventory.require(to)
    refuse_staying(services, vm)
    source = services.host(vm.host)
    volumes, variables = recorded_volumes(services, source, vm), variables_on(source, vm)
    attachments, wanted = attachments_of(services, vm), request or vm.request

    def look(placement: Placement) -> PlannedMove:
        there = services.host(placement.host)
        moved = replace(vm, request=wanted, host=placement.host, numa=placement.numa)
        guest.refuse_other_domain(there, moved)
        guest.refuse_taken_macs(there, moved, attachments)
        if variables is not None or parts_needed(with_attachments(wanted, attachments)):
            facts = read_facts(services, placement.host)
            guest.check_parts(moved, facts, attachments)
            if variables is not None:
                refuse_other_build(there, facts, moved, variables)
        return PlannedMove(vm, placement, plan_volumes(services, there, moved, volumes), request, variables)

    return MoveSearch(services, vm.host).find(vm, look, to=to, gpus=gpus, request=request)
