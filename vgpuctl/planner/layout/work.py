# SPDX-License-Identifier: Apache-2.0
"""The plan in progress for one GPU: its state after the steps so far, and the findings."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, Holder
from vgpuctl.agent.wire.steps import CreateGpuInstance, Step
from vgpuctl.agent.wire.vf_health import sick_states
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Lease
from vgpuctl.model.reservation import Reservation
from vgpuctl.planner.layout.result import Difference, Disturbed, LayoutObstacle, Phase, PlannedStep
from vgpuctl.planner.mig_geometry import parts_of
from vgpuctl.sharing.kinds import existing_vgpus

NVIDIA = "10de"


class GpuWork:
    """One GPU and its declared layout.

    vf_count, instances, heterogeneous, users: as they will be after the steps so far. idle_shares: vGPUs that a layout
    made and nobody uses; they are not among the users. is_rebuilt: what a driver offers is another after the steps.
    promised: functions that no share of the layout gets, since a VM's comes back there.
    reserved: reservations of shares of it.
    sick_vfs: states of the VFs that cannot carry a vGPU, until a step recreates all.
    """

    def __init__(
        self,
        gpu: Gpu,
        entry: GpuLayout,
        leases: Sequence[Lease],
        made: Collection[str],
        promised: Collection[str] = (),
        *,
        hostname: str,
        reserved: Sequence[Reservation] = (),
    ) -> None:
        self.gpu = gpu
        self.entry = entry
        self.promised = promised
        self.leases = [one for one in leases if one.share.gpu == gpu.address and one.state.holds_device()]
        self.reserved = tuple(one for one in reserved if any(share.gpu == gpu.address for share in one.shares))
        self.hostname = hostname
        self.board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        self.name = self.board.name if self.board else gpu.name or f"{gpu.vendor_id}:{gpu.device_id}"
        self.vf_count = len(gpu.vfs)
        self.instances: tuple[GpuInstance, ...] = gpu.mig.instances if gpu.mig else ()
        self.heterogeneous = gpu.heterogeneous
        self.is_rebuilt = False
        self.sick_vfs = sick_states(gpu)
        self.steps: list[PlannedStep] = []
        self.differences: list[Difference] = []
        self.obstacles: list[LayoutObstacle] = []
        self.later: list[str] = []
        self.notes: list[str] = []
        users = _users_of(gpu, leases)
        free = {one.device for one in users if one.is_foreign and not one.is_running}
        self.idle_shares = [one for one in existing_vgpus(gpu) if one.device in free and one.vfio_device in made]
        self.has_vgpus = bool(users)
        idle = {one.device for one in self.idle_shares}
        self.users = tuple(one for one in users if one.device not in idle)

    @property
    def address(self) -> str:
        return self.gpu.address

    @property
    def is_nvidia(self) -> bool:
        return self.gpu.vendor_id == NVIDIA

    def add(
        self,
        phase: Phase,
        step: Step,
        summary: str,
        *,
        undo: Sequence[Step] = (),
        disturbs: Sequence[Disturbed] = (),
        needs_reset: bool = False,
    ) -> None:
        """Add a step."""
        processes: tuple[Holder, ...] = self.gpu.users if phase.needs_driver_alone() else ()
        who = tuple(disturbs)
        self.steps.append(PlannedStep(phase, step, summary, self.address, tuple(undo), who, processes, needs_reset))

    def need_reset(self) -> None:
        """Have the steps so far wait for leave to reset the GPU, since one that comes later needs it."""
        self.steps = [replace(one, needs_reset=True) for one in self.steps]

    def differ(self, subject: str, declared: object, found: object, *, remedy: str | None = None) -> None:
        """Note that something is not as declared."""
        self.differences.append(Difference(self.address, subject, str(declared), str(found), remedy))

    def block(self, code: str, reason: str, *, remedy: str | None = None) -> None:
        """Note that the layout cannot be reached now."""
        self.obstacles.append(LayoutObstacle(self.address, code, reason, remedy, self.entry.origin))

    def leave_unknown(self, text: str) -> None:
        """Note that something declared could not be looked at, so that nothing is said or done about it."""
        self.notes.append(f"{self.address}: {text}")

    def free_instances(self) -> None:
        """Take the GPU instances as free of vGPUs: idle shares are deleted before, and users are disturbed.

        One that a process of the host works in stays in use.
        """
        of_vms = {holder.pid for user in self.users for holder in user.holders}
        self.instances = tuple(
            replace(one, in_use=any(holder.pid not in of_vms for holder in one.holders)) if self.has_vgpus else one
            for one in self.instances
        )

    def block_busy_instances(self, verb: str) -> bool:
        """Block where processes of the host work in GPU instances that would go. Returns whether any do."""
        in_use = [one for one in self.instances if one.in_use]
        if in_use:
            named = ", ".join(f"{one.profile} at {one.start}:{one.size}" for one in in_use)
            self.block("mig-in-use", f"{verb} GPU instances in use: {named}", remedy="stop what uses them")
        return bool(in_use)


def made_again(address: str, one: GpuInstance) -> CreateGpuInstance:
    """The step that has a GPU instance as it is now, with its compute instances."""
    parts = parts_of(one.profile, one.compute)
    return CreateGpuInstance(address, one.profile, one.start, 1, one.compute_instances > 0, parts)


def _users_of(gpu: Gpu, leases: Sequence[Lease]) -> tuple[Disturbed, ...]:
    """Every VM and vGPU on the GPU, by device; those the store knows carry their lease."""
    held = {one.share.device: one for one in leases if one.share.gpu == gpu.address and one.state.holds_device()}
    found: dict[str, tuple[Holder, ...]] = dict.fromkeys(held, ())
    for vgpu in existing_vgpus(gpu):
        found.setdefault(vgpu.device, ())
    found.update({mdev.uuid: mdev.holders for mdev in gpu.mdevs if mdev.parent == gpu.address})
    found.update({function.address: function.holders for function in gpu.vfs if function.holders})
    if gpu.holders:
        found[gpu.address] = gpu.holders
    return tuple(_disturbed(device, held.get(device), found[device]) for device in sorted(found))


def _disturbed(device: str, lease: Lease | None, holders: tuple[Holder, ...]) -> Disturbed:
    if lease is None:
        return Disturbed(device, holders=holders)
    return Disturbed(device, lease.id, lease.vm_name, lease.tenant, holders)
