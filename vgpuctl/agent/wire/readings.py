# SPDX-License-Identifier: Apache-2.0
"""Readings of a host: what was measured of its GPUs, MIG instances, vGPUs and VMs. Python 3.9, standard library only.

A value that is missing is a value too: `not-measurable` (this board, driver or mode does not have it) or
`not-readable` (it has it, and did not tell it this time), with the reason.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

NOT_MEASURABLE, NOT_READABLE = "not-measurable", "not-readable"


@dataclass(frozen=True)
class Measured:
    """The measurements of one object.

    values: (name of the measure, values of its labels, value), units as in wire/measures.py. missing: (name,
    NOT_MEASURABLE or NOT_READABLE, reason).
    """

    values: Tuple[Tuple[str, Tuple[str, ...], float], ...] = ()
    missing: Tuple[Tuple[str, str, str], ...] = ()

    def get(self, name: str, *labels: str) -> Optional[float]:
        """Return a value, None for one that is missing."""
        return next((value for one, has, value in self.values if one == name and has == labels), None)

    def all(self, name: str) -> Tuple[Tuple[Tuple[str, ...], float], ...]:
        """Return (labels, value) of every value of a measure."""
        return tuple((labels, value) for one, labels, value in self.values if one == name)

    def label(self, name: str) -> Optional[str]:
        """Return the first label whose value is not 0: the state of a measure with one value per state."""
        return next((labels[0] for labels, value in self.all(name) if value and labels), None)

    def why_missing(self, name: str) -> Optional[str]:
        """Return the reason why a measure has no value, None if it has one."""
        return next((f"{kind}: {reason}" for one, kind, reason in self.missing if one == name), None)


@dataclass(frozen=True)
class GpuReadings:
    """One GPU (physical function). uuid: NVML's, None where only sysfs shows the card."""

    address: str
    uuid: Optional[str]
    model: Optional[str]
    driver: Optional[str]
    measured: Measured = Measured()


@dataclass(frozen=True)
class InstanceReadings:
    """One MIG GPU instance of the GPU at an address."""

    gpu: str
    id: int
    profile: str
    measured: Measured = Measured()


@dataclass(frozen=True)
class VgpuReadings:
    """One vGPU of a running VM. device: the mdev's UUID or the VF's address, None where the driver does not tell it.

    instance: of the MIG GPU instance that it sits in.
    """

    gpu: str
    device: Optional[str]
    vm_uuid: Optional[str]
    profile: str
    instance: Optional[int] = None
    measured: Measured = Measured()


@dataclass(frozen=True)
class VmReadings:
    """One running VM. name: of its domain; tenant: of the domain's metadata, None for a foreign domain."""

    uuid: str
    name: str
    tenant: Optional[str] = None
    measured: Measured = Measured()


@dataclass(frozen=True)
class HostReadings:
    """All readings of one host.

    read_at: seconds since the epoch by the host's clock, which may be wrong. monotonic_s: by a clock that nobody sets.
    unread: what could not be read of the host, as sentences.
    """

    boot_id: str
    read_at: float
    monotonic_s: float
    gpus: Tuple[GpuReadings, ...] = ()
    instances: Tuple[InstanceReadings, ...] = ()
    vgpus: Tuple[VgpuReadings, ...] = ()
    vms: Tuple[VmReadings, ...] = ()
    measured: Measured = Measured()
    unread: Tuple[str, ...] = ()
