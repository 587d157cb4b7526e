# SPDX-License-Identifier: Apache-2.0
"""What the hosts say about a move, as the oracle wants it: cards, shares, versions; None for what nobody tells."""

import re
from collections.abc import Collection, Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.migration import GpuMigration, VgpuComparison, VgpuMigration
from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.vgpu_params import VgpuParams, parse_vgpu_param
from vgpuctl.planner.moves.case import Compatibility, HostProcessor, MovedCard, MovedGpu, MoveHost
from vgpuctl.planner.moves.rule import is_before
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.occupancy import gpu_at, vf_at
from vgpuctl.usecases.running.services import HostSession

_NVIDIA = "10de"
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def move_host(
    name: str,
    facts: HostFacts | None,
    machines: frozenset[str] | None,
    cpu: HostProcessor | None,
    gpus: Collection[str],
) -> MoveHost:
    """One of the two hosts. gpus: addresses of the cards that the VM has there or gets there."""
    if facts is None:
        return MoveHost(name, machines=machines, cpu=cpu)
    release = _VERSION.search(facts.operating_system)
    told = [gpu.migration for gpu in facts.gpus if gpu.address in gpus and gpu.migration is not None]
    return MoveHost(
        name,
        facts.kernel or None,
        facts.qemu_version,
        facts.libvirt_version,
        (facts.distribution[0], release[0] if release else "") if facts.distribution else None,
        facts.nvidia_driver,
        next((one.versions for one in told), None),
        machines,
        cpu,
        # Before Linux 6.7, VFIO itself has what IOMMUFD_DRIVER stands for since then.
        True if is_before(facts.kernel, "6.7") else facts.iommufd_driver,
    )


def moved_gpu(
    lease: Lease,
    there: Share | None,
    facts: HostFacts | None,
    facts_there: HostFacts | None,
    iommufd: frozenset[str] | None,
) -> MovedGpu:
    """One share and the one that the VM would get for it. iommufd: devices that QEMU has by one."""
    share = lease.share
    gpu = None if facts is None else gpu_at(facts, share.gpu)
    target = None if there is None or facts_there is None else gpu_at(facts_there, there.gpu)
    vgpu = _vgpu_of(None if gpu is None else gpu.migration, lease)
    vf = None if gpu is None else vf_at(gpu, share.function)
    has_migration = vf is not None and vf.migration is not None
    return MovedGpu(
        lease.index,
        share.sharing,
        is_nvidia=not share.sharing.is_asked_for_by_name() if gpu is None else gpu.vendor_id == _NVIDIA,
        here=_card(share.gpu, gpu),
        there=None if there is None else _card(there.gpu, target),
        there_sharing=None if there is None else there.sharing,
        has_equal_type=None if there is None else there.profile == share.profile,
        params=None if gpu is None else _params_of(gpu, share),
        driver=None if gpu is None else vf.driver if vf is not None else gpu.driver,
        has_migration=has_migration or None,
        has_iommufd=None if iommufd is None else share.vfio_device in iommufd,
        can_migrate=None if vgpu is None else vgpu.can_migrate,
        guest_version=None if vgpu is None else vgpu.guest_version,
        state_bytes=None if vgpu is None else vgpu.state_bytes,
    )


def compare(source: HostSession, lease: Lease, there: Share, facts_there: HostFacts) -> Compatibility | None:
    """Ask the NVML of the VM's host whether its vGPU can go to a card of another host; None where it does not say."""
    target = gpu_at(facts_there, there.gpu)
    if target is None or target.migration is None or target.migration.metadata is None:
        return None
    question = VgpuComparison(lease.share.gpu, lease.vm_uuid, target.migration.metadata, lease.share.vfio_device)
    try:
        answer = source.agent.compatibility(question)
    except VgpuctlError:
        # NVML of this host has no such call, or the VM has ended meanwhile: a verdict says that nobody looked.
        return None
    return Compatibility(answer.ways, answer.limit_code)


def shares_of(leases: Sequence[Lease]) -> frozenset[str]:
    """The devices of a VM's shares as libvirt names them, with the functions that go with whole cards."""
    devices = {one.share.vfio_device for one in leases}
    return frozenset(devices.union(*(one.share.companions for one in leases)))


def _card(address: str, gpu: Gpu | None) -> MovedCard:
    if gpu is None:
        return MovedCard(address)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    told = gpu.migration or GpuMigration()
    return MovedCard(
        address,
        f"{gpu.vendor_id}:{gpu.device_id} {gpu.subsystem_id}" if board is None else board.key,
        told.ecc,
        told.gsp,
        told.can_migrate,
        told.read_mb_s,
        told.write_mb_s,
        told.streams,
        None if gpu.topology is None else gpu.topology.fabric is not None,
    )


def _vgpu_of(migration: GpuMigration | None, lease: Lease) -> VgpuMigration | None:
    """What NVML says of a share. Two vGPUs of one VM that it does not tell apart are none."""
    known = migration.vgpus if migration is not None else ()
    found = [one for one in known if one.is_of(lease.vm_uuid, lease.share.vfio_device)]
    return found[0] if len(found) == 1 else None


def _params_of(gpu: Gpu, share: Share) -> VgpuParams | None:
    """The parameters that the driver has for a share's vGPU; none where it takes none."""
    if kind_of(share.sharing).takes is not Takes.VGPU:
        return ()
    mdev = next((one for one in gpu.mdevs if one.uuid == share.mdev_uuid), None)
    vf = vf_at(gpu, share.function)
    if mdev is None and vf is None:
        return None
    text = mdev.vgpu_params if mdev is not None else vf.vgpu_params if vf is not None else None
    try:
        return tuple(parse_vgpu_param(one) for one in (text or "").split(",") if one)
    except UsageError:
        return None
