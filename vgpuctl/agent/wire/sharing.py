# SPDX-License-Identifier: Apache-2.0
"""The sharing kinds by name, and the steps that make and remove their vGPUs. Python 3.9, standard library only.

The names are a closed set; what is special about each kind is answered by `vgpuctl.sharing`.
"""

from enum import Enum
from typing import ClassVar, Optional, Tuple, Union

from vgpuctl.agent.wire.values import dataclass


class Sharing(str, Enum):
    """One way to give a VM a GPU or a share of it."""

    PASSTHROUGH = "passthrough"
    MDEV = "mdev"
    MDEV_VF = "mdev-vf"
    VF_PROFILE = "vf-profile"
    VF = "vf"

    def __str__(self) -> str:
        return self.value

    def is_asked_for_by_name(self) -> bool:
        """Tell whether users name the kind itself; of the other kinds they name a profile."""
        return self in (Sharing.PASSTHROUGH, Sharing.VF)


@dataclass(frozen=True)
class CreateMdev:
    """Create the mediated device `uuid` of `type_id` under `parent` (a PF or a VF).

    params: the text of its `vgpu_params` (reference 2.3), written after it is made; empty for none, None to leave what
    is there. A device whose parameters are refused is removed again.
    profile: the type's short name, `A40-8Q`. It says what is meant: ids are the driver's, and may be others after its
    update (reference 3.5). None of a step from before it was recorded.
    """

    op: ClassVar[str] = "mdev.create"
    since: ClassVar[Tuple[str, ...]] = ("params", "profile")
    parent: str
    type_id: str
    uuid: str
    params: Optional[str] = None
    profile: Optional[str] = None

    @property
    def device(self) -> str:
        """The vGPU that the step is about: the UUID of an mdev, or a VF."""
        return self.uuid

    @property
    def made(self) -> Optional[Tuple[str, str]]:
        """Function and type id of the vGPU that the step makes, None if it removes one."""
        return self.parent, self.type_id

    @property
    def foreseen(self) -> Tuple[Optional[str], Optional[str]]:
        """State before and after the step, for a dry run of a device that cannot be read yet."""
        return None, f"{self.parent} {self.type_id}"


@dataclass(frozen=True)
class DeleteMdev:
    """Remove the mediated device `uuid`; waits while the driver still winds it down."""

    op: ClassVar[str] = "mdev.delete"
    uuid: str

    @property
    def device(self) -> str:
        """As for CreateMdev."""
        return self.uuid

    @property
    def made(self) -> Optional[Tuple[str, str]]:
        """As for CreateMdev."""
        return None

    @property
    def foreseen(self) -> Tuple[Optional[str], Optional[str]]:
        """As for CreateMdev."""
        return self.uuid, None


@dataclass(frozen=True)
class SetVfProfile:
    """Write a decimal vGPU type id to a VF's current_vgpu_type; "0" removes the vGPU (with retries).

    params: as for CreateMdev; a vGPU that is removed loses them, and a new one never has those of the last.
    profile: as for CreateMdev; None where the vGPU is removed.
    """

    op: ClassVar[str] = "vf-profile.set"
    since: ClassVar[Tuple[str, ...]] = ("params", "profile")
    address: str
    type_id: str
    params: Optional[str] = None
    profile: Optional[str] = None

    @property
    def device(self) -> str:
        """As for CreateMdev."""
        return self.address

    @property
    def made(self) -> Optional[Tuple[str, str]]:
        """As for CreateMdev."""
        return None if self.type_id == "0" else (self.address, self.type_id)

    @property
    def foreseen(self) -> Tuple[Optional[str], Optional[str]]:
        """As for CreateMdev."""
        return "0", self.type_id


@dataclass(frozen=True)
class SetVfParams:
    """Set parameters of a VF of Intel's driver `xe`, each a file of its folder `sriov_admin/vfN/profile`.

    params: all that are set, `exec_quantum_ms=20,preempt_timeout_us=0`. One that an earlier step set and this one does
    not name gets the value back that the driver had before.
    """

    op: ClassVar[str] = "vf-params.set"
    address: str
    params: str

    @property
    def target(self) -> str:
        """The target of the step: not the binding of the function."""
        return f"parameters of {self.address}"


@dataclass(frozen=True)
class SetFunctionParams:
    """Set what one function of a card of Intel's driver `xe` has while no VM asks for something else.

    address: the PF. vf: the number of its link `virtfnN`, None for the PF itself. params: as for SetVfParams, and
    `sched_priority` and, of a VF, `vram_quota` in bytes; others stay as they are. A VM's own parameter keeps its value:
    the VF gets this one once the VM gives it up.
    """

    op: ClassVar[str] = "function-params.set"
    address: str
    vf: Optional[int]
    params: str

    @property
    def target(self) -> str:
        """The function in words."""
        return self.address if self.vf is None else f"VF {self.vf} of {self.address}"


@dataclass(frozen=True)
class StopFunction:
    """Stop the work of a VF of Intel's driver `xe` at once; it works again after its next reset."""

    op: ClassVar[str] = "function.stop"
    address: str

    @property
    def target(self) -> str:
        """The target of the step: not the binding of the function."""
        return f"work of {self.address}"


MakeVgpu = Union[CreateMdev, SetVfProfile]
VgpuStep = Union[CreateMdev, DeleteMdev, SetVfProfile]
VGPU_STEPS = (CreateMdev, DeleteMdev, SetVfProfile)
TYPED_STEPS = (CreateMdev, SetVfProfile)
