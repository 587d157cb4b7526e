# SPDX-License-Identifier: Apache-2.0
"""The questions that a sharing kind answers, in the order in which the life of a share asks them.

One file of this folder per kind implements them, and `kinds.py` finds the kind by its name. Scheduler, planner, boot
manifest, gc, adoption, exchange, doctor and domain view ask here and never compare kinds
(docs/decisions/sharing-kinds.md).
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.sharing import MakeVgpu, Sharing, VgpuStep
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.declared import Declared
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.hot_plug import HotPlug
from vgpuctl.sharing.occupancy import ExistingVgpu, LiveGpu
from vgpuctl.sharing.offer import Answer, Refusal, ShareRequest
from vgpuctl.sharing.plan import Plan


class Takes(Enum):
    """The part of a GPU that one share takes: it decides what quotas, prices and policies count."""

    CARD = "the whole card"
    FUNCTION = "one of its equal functions"
    VGPU = "a vGPU, of a size that its type names"


class HandedAs(Enum):
    """The form in which another tool hands out a share of the kind in place of vgpuctl."""

    CARD = "the whole card, bound to vfio-pci"
    MDEV = "a mediated device, made by the name of its type"
    TYPED_VF = "a VF that carries a vGPU type and stays on its vendor's driver"
    PLAIN_VF = "a VF, bound to vfio-pci"


@dataclass(frozen=True)
class GuestDevice:
    """One host device of a domain: a PCI function by its address, or a mediated device by its UUID.

    managed: True if libvirt binds the function to vfio-pci; None for a mediated device, which has no such attribute.
    """

    address: str | None = None
    mdev_uuid: str | None = None
    managed: bool | None = None


class SharingKind(Protocol):
    """One way to hand out a GPU. Every answer follows from its arguments alone."""

    @property
    def sharing(self) -> Sharing:
        """The name of the kind: in facts, in leases and in domains."""

    @property
    def takes(self) -> Takes:
        """The part of a GPU that one share takes."""

    @property
    def is_on_vf(self) -> bool:
        """True if each share has a VF to itself; such a GPU needs its VFs back after a reboot."""

    @property
    def is_bound_by_libvirt(self) -> bool:
        """True if libvirt binds the function when the VM starts, so that it must be free until then."""

    @property
    def layouts(self) -> frozenset[LayoutKind]:
        """The declared layouts that serve the kind."""

    @property
    def handed_as(self) -> HandedAs:
        """The form in which Nova, Proxmox and KubeVirt hand out a share; the exports ask it."""

    # The scheduler asks while it places, counts or explains, with facts of the store.

    def refuse_host(self, facts: HostFacts) -> Refusal | None:
        """Say why a host cannot hand out any share of the kind. Doctor asks it too."""

    def refuse_declared(self, declared: Declared, gpu: Gpu, profile: str) -> str | None:
        """Say why the declared layout keeps the GPU from serving a share. The planner asks it again."""

    def offers(self, share_request: ShareRequest, state: GpuState) -> Answer:
        """Offer the shares that the GPU can give now, or refuse. The free function is chosen here."""

    def same_on(self, example: Share, gpu: Gpu, taken: Container[str]) -> Share | None:
        """The share that a GPU of an equal state gives, None where it must be asked itself. taken: its used VFs."""

    def freed(self, gpu: Gpu, given_back: Sequence[Share]) -> Gpu:
        """The facts of the GPU without devices that these shares of the kind had."""

    # The use cases ask when a lease is made, and the planner right before building, with fresh facts.

    def named(self, share: Share, identity: str) -> Share:
        """The share with the UUID of its device, for kinds whose devices have one of ours."""

    def check(self, share: Share, live: LiveGpu) -> str | None:
        """Say why the live GPU no longer offers the share, None when it does."""

    def check_kept(self, held: Share, live: LiveGpu) -> str | None:
        """Say why a stopped VM cannot start with the share that it kept, None when nothing speaks against it."""

    def with_first_drivers(self, share: Share, gpu: Gpu) -> Share:
        """The share with the drivers that its functions have before libvirt binds them."""

    def build(self, share: Share, gpu: Gpu) -> Plan:
        """Steps that make the device, and their undo. Raises ValueError for a share that has no name or type yet."""

    def with_params(self, share: Share, gpu: Gpu, params: VgpuParams | None) -> Plan:
        """As `build`, with the parameters that the share is to have: empty clears them, None leaves them.

        A kind without parameters builds the share as it is.
        """

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Steps that give the device back; all that could be needed where the GPU's facts are None."""

    # guests/view asks for a domain, and adopt-host recognises the devices of one.

    def guest_devices(self, share: Share) -> tuple[GuestDevice, ...]:
        """The host devices of a domain, the GPU first. Raises GuestError for a share without a device."""

    def refuse_console(self, display: VgpuDisplay, libvirt_version: str | None) -> Refusal | None:
        """Say why libvirt of this version cannot show a share's picture in the console. display: on or ramfb.

        The scheduler asks it too.
        """

    def refuse_terms(
        self, share: Share, gpu: Gpu, facts: HostFacts, declared: Declared, terms: VgpuTerms
    ) -> Refusal | None:
        """Say why a share cannot have the VM's terms: its parameters, its guest's driver beside the host's, its MPS.

        The scheduler asks it too.
        """

    def hot_plug(self, share: Share, display: VgpuDisplay) -> HotPlug:
        """Say when a share is attached to a guest that runs, or detached from it. display: of the share in the guest.

        attach-gpu and detach-gpu ask it.
        """

    def recognise(self, device: str, beside: Sequence[str], gpu: Gpu) -> Share | str | None:
        """The share that a domain's device is. beside: all devices of the domain.

        None for a device of another GPU or kind, the reason for one of this kind that is not set up. The kinds are
        asked in the order of `kinds.py`, and the first answer counts.
        """


class VgpuKind(SharingKind, Protocol):
    """A kind whose shares are vGPUs: devices of a vendor's type, which exist apart from any VM.

    Being MIG-backed is a property of the type and not of the kind: where such a type can be created follows from the
    GPU's instances, for every kind in the same way (vgpu_types.py).
    """

    @property
    def has_uuid(self) -> bool:
        """True if its devices are mediated ones, named by a UUID that vgpuctl chooses."""

    def existing(self, gpu: Gpu) -> list[ExistingVgpu]:
        """Every vGPU of the kind on the GPU, whoever made it."""

    # Layouts, the boot manifest, gc and adoption ask for a vGPU that was seen or is wanted, with a readable type.

    def make(self, vgpu: ExistingVgpu) -> MakeVgpu:
        """The step that makes the vGPU with its parameters; after a reboot the same step makes it again."""

    def remove(self, vgpu: ExistingVgpu) -> VgpuStep:
        """The step that removes the vGPU."""

    def describe_make(self, vgpu: ExistingVgpu, profile: str) -> str:
        """Say in words that the vGPU is made: `set vGPU type 562 (A40-8Q) on VF 0000:41:00.4`."""

    def removal_by_hand(self, vgpu: ExistingVgpu) -> str:
        """Say how an operator removes the vGPU without vgpuctl. Doctor prints it."""
