# SPDX-License-Identifier: Apache-2.0
"""Whole cards with their companion functions, handed out by vfio-pci.

libvirt binds the functions to vfio-pci (`managed='yes'`), so building takes no step of ours.
"""

from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.steps import BindDriver
from vgpuctl.errors import GuestError
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Share
from vgpuctl.sharing.bound_by_libvirt import VFIO_PCI, BoundByLibvirt, bind_back, release_functions
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.declared import Declared, refuse_display, refuse_use
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import GuestDevice, HandedAs, SharingKind, Takes
from vgpuctl.sharing.occupancy import LiveGpu
from vgpuctl.sharing.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.refusals import can_do_vgpu, memory_mib, memory_of, numa_node, refuse_board, refuse_unusable
from vgpuctl.sharing.whole_card import find_obstacle

MOST_COMPANIONS = 7
"""Functions of a PCI slot beside the GPU."""


class Passthrough(BoundByLibvirt):
    """The kind `passthrough`."""

    sharing = Sharing.PASSTHROUGH
    takes = Takes.CARD
    handed_as = HandedAs.CARD
    is_on_vf = False
    layouts = frozenset((LayoutKind.PASSTHROUGH,))

    def refuse_declared(self, declared: Declared, gpu: Gpu, profile: str) -> str | None:
        """A card that the host shows something on needs to be declared."""
        return refuse_use(declared, self.layouts) or refuse_display(declared, gpu)

    def offers(self, share_request: ShareRequest, state: GpuState) -> Answer:
        """The card, when nobody uses any part of it and its IOMMU group is its own."""
        refusal = refuse_board(share_request, state) or refuse_unusable(state)
        refusal = refusal or _refuse_promised(state) or _refuse_obstacle(state) or _refuse_display(state)
        if refusal is not None:
            return refusal
        could_be_shared = bool(state.gpu.types) or can_do_vgpu(state.board)
        companions = tuple(sorted(companion.address for companion in state.gpu.companions))
        share = self._share(state.gpu, memory_of(state), companions)
        return [Offer(share, (1 if could_be_shared else 0, memory_of(state), 0))]

    def check(self, share: Share, live: LiveGpu) -> str | None:
        """Compare use, sharing, isolation and companions with those of the placement."""
        gpu = live.gpu
        obstacle = find_obstacle(live)
        if obstacle is not None:
            return f"GPU {gpu.address}: {obstacle.reason}"
        companions = tuple(companion.address for companion in gpu.companions)
        if set(companions) != set(share.companions):
            return f"GPU {gpu.address} has the companions {', '.join(companions) or 'none'} now"
        return None

    def check_kept(self, held: Share, live: LiveGpu) -> str | None:
        """While the VM was stopped, somebody else may have begun to use the card."""
        obstacle = find_obstacle(live)
        return None if obstacle is None else obstacle.reason

    def build(self, share: Share, gpu: Gpu) -> Plan:
        """No step; the undo brings every function back to its first driver, should libvirt not have done so.

        libvirt's unbinding would wait for nvidia-persistenced, so where that has the card open the agent binds it
        before: the agent stops the daemon meanwhile, and libvirt takes a card that is on vfio-pci as it is.
        """
        functions = ", ".join((share.function, *share.companions))
        return Plan(
            steps=(BindDriver((share.function,), VFIO_PCI),) if gpu.persistence else (),
            undo=bind_back(share, {}),
            summary=(f"libvirt binds {functions} to vfio-pci when the VM starts",),
        )

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Reset the card and bind its functions back to their first drivers."""
        can_reset = gpu is None or (bool(gpu.reset_methods) and not gpu.vfs)
        return release_functions(held, gpu, can_reset=can_reset)

    def guest_devices(self, share: Share) -> tuple[GuestDevice, ...]:
        """The card's functions in one slot of the guest."""
        if len(share.companions) > MOST_COMPANIONS:
            count = len(share.companions)
            raise GuestError(f"GPU {share.gpu} has {count} companion functions, a PCI slot holds {MOST_COMPANIONS}")
        return tuple(GuestDevice(one, managed=True) for one in (share.function, *sorted(share.companions)))

    def recognise(self, device: str, beside: Sequence[str], gpu: Gpu) -> Share | str | None:
        """The GPU's own function; of its companions, those that the domain has."""
        if device != gpu.address:
            return None
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        companions = tuple(sorted(one.address for one in gpu.companions if one.address in beside))
        return self.as_found(self._share(gpu, memory_mib(gpu, board), companions), gpu)

    def _share(self, gpu: Gpu, framebuffer_mib: int, companions: tuple[str, ...]) -> Share:
        return Share(
            gpu=gpu.address,
            sharing=self.sharing,
            profile=str(self.sharing),
            function=gpu.address,
            framebuffer_mib=framebuffer_mib or None,
            companions=companions,
            numa_node=numa_node(gpu),
        )


def _refuse_promised(state: GpuState) -> Refusal | None:
    if state.lease_holders:
        return Refusal(
            Code.RESERVED_BY_LEASE,
            f"parts of it are promised to {', '.join(sorted(set(state.lease_holders)))}",
            "delete these VMs, or ask for a share of the card",
        )
    return None


def _refuse_display(state: GpuState) -> Refusal | None:
    reason = refuse_display(state.declared, state.gpu)
    if reason is None:
        return None
    remedy = f"declare it `kind: passthrough` in `vgpu:` of {state.host} if the host may lose this display"
    return Refusal(Code.HOST_DISPLAY, reason, remedy)


def _refuse_obstacle(state: GpuState) -> Refusal | None:
    found = state.obstacle
    if found is None or found.remedy is not None:
        return found
    return Refusal(found.code, found.reason, f"look at `vgpuctl inspect-host {state.host}`")


KIND: SharingKind = Passthrough()
