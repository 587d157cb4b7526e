# SPDX-License-Identifier: Apache-2.0
"""Readings of vGPUs and VMs joined with the leases that they belong to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.readings import HostReadings, Measured, VgpuReadings
from vgpuctl.model.lease import Lease, Share
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of

_NO_USE_OF_VFS = "vgpuctl has no reading of what a VF uses, nor of the time that it loses to other VFs"


@dataclass(frozen=True)
class MeasuredShare:
    """One lease with the readings of its vGPU; None while the driver does not show it (its VM is off, or has the whole
    card, which only its guest can read)."""

    lease: Lease
    readings: VgpuReadings | None

    @property
    def measured(self) -> Measured:
        """The measurements; empty without readings."""
        return Measured() if self.readings is None else self.readings.measured


def join_leases(leases: Iterable[Lease], readings: Mapping[str, HostReadings]) -> list[MeasuredShare]:
    """Each lease with its readings. readings: by host.

    A vGPU belongs to the lease of its device. One whose device the driver does not tell belongs to a lease of the same
    VM, GPU and profile, in their order.
    """
    joined = []
    taken: set[int] = set()
    for lease in sorted(leases, key=lambda one: (one.host, one.vm_uuid, one.index)):
        host = readings.get(lease.host)
        found = None if host is None else _find(lease, host.vgpus, taken)
        if found is not None:
            taken.add(id(found))
        joined.append(MeasuredShare(lease, found))
    return joined


def why_time_unmeasured(share: Share) -> str | None:
    """Why nobody measures the time that a share loses to its neighbours.

    None where its driver tells it, and for a share without neighbours. Recent kernels count the active ticks of xe's
    engines for each function (drivers/gpu/drm/xe/xe_pmu.c). They show the use of a VF and not its loss, and the
    agent does not read them.
    """
    return _NO_USE_OF_VFS if kind_of(share.sharing).takes is Takes.FUNCTION else None


def _find(lease: Lease, vgpus: Sequence[VgpuReadings], taken: set[int]) -> VgpuReadings | None:
    left = [one for one in vgpus if one.gpu == lease.share.gpu and id(one) not in taken]
    by_device = (one for one in left if one.device is not None and one.device in lease.share.names)
    by_vm = (
        one
        for one in left
        if one.device is None and one.vm_uuid == lease.vm_uuid and one.profile == lease.share.profile
    )
    return next(by_device, None) or next(by_vm, None)
