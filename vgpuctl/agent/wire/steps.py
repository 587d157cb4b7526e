# SPDX-License-Identifier: Apache-2.0
"""The wanted changes an agent can be asked for, each with its undo's shape. Python 3.9, standard library only.

A step travels as {"op": OP, **fields}. Every step is idempotent: asked again, it changes nothing and says so.
"""

from dataclasses import dataclass
from typing import ClassVar, Optional, Tuple, Union


@dataclass(frozen=True)
class SetVirtualFunctions:
    """Bring the VF count of a physical function to `count` (0 or all for NVIDIA: sriov-manage has no count)."""

    op: ClassVar[str] = "sriov.set"
    address: str
    count: int


@dataclass(frozen=True)
class CreateMdev:
    """Create the mediated device `uuid` of `type_id` under `parent` (a PF or a VF)."""

    op: ClassVar[str] = "mdev.create"
    parent: str
    type_id: str
    uuid: str


@dataclass(frozen=True)
class DeleteMdev:
    """Remove the mediated device `uuid`; waits while the driver still winds it down."""

    op: ClassVar[str] = "mdev.delete"
    uuid: str


@dataclass(frozen=True)
class SetVgpuType:
    """Write a decimal vGPU type id to a VF's current_vgpu_type; "0" takes the vGPU away (with retries)."""

    op: ClassVar[str] = "vgpu.set-type"
    address: str
    type_id: str


@dataclass(frozen=True)
class BindDriver:
    """Bind functions to `driver`, or to the driver that the kernel picks when None (driver_override cleared)."""

    op: ClassVar[str] = "driver.bind"
    addresses: Tuple[str, ...]
    driver: Optional[str]


@dataclass(frozen=True)
class ResetFunction:
    """Reset a function that nobody holds."""

    op: ClassVar[str] = "function.reset"
    address: str


Step = Union[SetVirtualFunctions, CreateMdev, DeleteMdev, SetVgpuType, BindDriver, ResetFunction]
STEPS = (SetVirtualFunctions, CreateMdev, DeleteMdev, SetVgpuType, BindDriver, ResetFunction)


@dataclass(frozen=True)
class Change:
    """What a step did. before/after: the value read before and read back after, as text."""

    op: str
    target: str
    before: Optional[str]
    after: Optional[str]
    changed: bool
