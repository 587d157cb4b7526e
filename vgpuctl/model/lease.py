# SPDX-License-Identifier: Apache-2.0
"""A share (the device one VM gets) and its lease in the store (design, section 7)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.sharing import Sharing


class LeaseState(StrEnum):
    """reserved → built → running → releasing → gone, or broken with the reason."""

    RESERVED = "reserved"
    BUILT = "built"
    RUNNING = "running"
    RELEASING = "releasing"
    BROKEN = "broken"
    GONE = "gone"

    def holds_device(self) -> bool:
        """True if the device counts as taken."""
        return self is not LeaseState.GONE

    def is_attached(self) -> bool:
        """True if the device is built for its VM, which is what usage is counted from."""
        return self in (LeaseState.BUILT, LeaseState.RUNNING)


class OnFunction:
    """A device on a function of a GPU, which every floor names in the same two ways."""

    gpu: str
    function: str
    mdev_uuid: str | None

    @property
    def device(self) -> str:
        """The name that no other device of the host has: a UUID among the mdevs of one PF, else the function."""
        return self.mdev_uuid if self.mdev_uuid and self.function == self.gpu else self.function

    @property
    def names(self) -> frozenset[str]:
        """Every name that is the device's alone: its VF, its UUID; the GPU's own address may be many devices'."""
        return frozenset(one for one in (self.function, self.mdev_uuid) if one is not None and one != self.gpu)

    @property
    def vfio_device(self) -> str:
        """The device that QEMU opens and libvirt names: any mdev's UUID, else the function's address."""
        return self.mdev_uuid or self.function


@dataclass(frozen=True)
class Share(OnFunction):
    """The device of one VM.

    gpu: the physical function. function: what is exclusively used: the VF, or the PF for passthrough; for `mdev`
    (many per PF) the PF too, made unique by mdev_uuid. companions travel with a whole card. type_id as written on
    the host; profile its short name, or `passthrough`/`vf`. first_drivers: (address, driver) found before
    vgpuctl took the functions, restored on delete. placement_start: in mixed-size mode, where the driver is expected to
    place it (its first creatable place). board: as in the normal form of its profile's name, for a type that several
    models have (catalog/profile_names.py); None for others. milli_gpus: thousandths of its GPU's compute time that it
    stands for; None where that is not known, and of shares that were placed before it was recorded.
    """

    gpu: str
    sharing: Sharing
    profile: str
    function: str
    type_id: str | None = None
    mdev_uuid: str | None = None
    framebuffer_mib: int | None = None
    companions: tuple[str, ...] = ()
    numa_node: int | None = None
    first_drivers: tuple[tuple[str, str], ...] = ()
    placement_start: int | None = None
    board: str | None = None
    milli_gpus: int | None = None


@dataclass(frozen=True)
class Lease:
    """One share promised to one VM on one host. index: which of the VM's GPUs."""

    id: str
    vm_uuid: str
    tenant: str
    vm_name: str
    host: str
    index: int
    share: Share
    state: LeaseState
    problem: str | None = None


def without_leaving(leases: Iterable[Lease]) -> tuple[Lease, ...]:
    """The leases of the GPUs that a VM is to keep: without those that its guest has yet to let go of."""
    return tuple(one for one in leases if one.state is not LeaseState.RELEASING)
