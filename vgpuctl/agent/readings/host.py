# SPDX-License-Identifier: Apache-2.0
"""All readings of a host by one question."""

from functools import partial
from typing import Dict, List, Optional

from vgpuctl.agent.facts import nvidia, pci, pools
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.readings import domains, machine, vms, xids
from vgpuctl.agent.readings.cards import Cards, record_xids
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.readings.xids import XidCounts
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.measure_states import NO_TELEMETRY, SUPPORT
from vgpuctl.agent.wire.measures import GPU, MEASURES
from vgpuctl.agent.wire.memory import PoolRooms
from vgpuctl.agent.wire.readings import GpuReadings, HostReadings, Measured, VmReadings

VFIO = "vfio-pci"
# The other side gives up after a minute, and the GPUs may take half of it. libvirt comes last: virsh needs more than
# 10 s on a busy host, and one that hangs must not keep the GPUs' readings back for long.
LIMIT_S, VMS_LIMIT_S = 50.0, 20.0
_KEPT = " ".join(one.name for one in MEASURES if one.of == GPU and one.is_kept)


def read(host: Host) -> HostReadings:
    """Read everything that can be measured. A failure is a sentence in `unread` or a missing value.

    A mistake in the code of one part hides this part alone.
    """
    began_s = host.monotonic()
    unread: List[str] = []
    unknown: Optional[float] = None
    cpu_s = guarded(unread, "the agent's CPU time", host.cpu_seconds, unknown)
    boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
    counts = guarded(unread, "Xids", lambda: _count_xids(host, boot_id, unread), None)
    running: Dict[str, domains.RunningDomain] = guarded(
        unread, "libvirt's files of running VMs", lambda: domains.read(host, unread), {}
    )
    functions: List[pci.Function] = guarded(unread, "the GPUs in sysfs", lambda: _find_gpus(host, unread), [])
    cards = Cards(host, unread)
    # NVML's start would load a driver that nobody uses.
    if any(function.driver == nvidia.DRIVER for function in functions):
        loaded_since_s = guarded(unread, "the driver's age", lambda: _loaded_since(host, counts), None)
        guarded(unread, "NVML", lambda: cards.read(counts, loaded_since_s, running), None)
    gpus = [gpu for card in cards.found for gpu in card.gpus]
    shown = {gpu.address for gpu in gpus}
    for function in functions:
        if function.address not in shown:
            gpus += guarded(unread, function.address, partial(_read_other, function, counts, unread), [])
    read_at = host.now()
    mounts = guarded(unread, "/proc/mounts", lambda: host.read_optional("/proc/mounts") or "", "")
    filesystems = pools.FileSystems(mounts)
    told = len(unread)
    rooms = guarded(
        unread, "the room of storage pools", lambda: pools.read_rooms(host, unread, filesystems), PoolRooms()
    )
    are_pools_read = len(unread) == told
    left_s = min(LIMIT_S - (host.monotonic() - began_s), VMS_LIMIT_S)
    measured_vms: List[VmReadings] = guarded(
        unread, "the VMs", lambda: vms.read(host, running, rooms.spaces, filesystems, unread, limit_s=left_s), []
    )
    now_s = host.monotonic()
    used_s = None if cpu_s is None else host.cpu_seconds() - cpu_s
    measured = guarded(
        unread,
        "the host itself",
        lambda: machine.read(
            host, rooms, are_pools_read=are_pools_read, took_s=now_s - began_s, cpu_s=used_s
        ).measured(),
        Measured((), ()),
    )
    return HostReadings(
        boot_id=boot_id,
        read_at=read_at,
        monotonic_s=now_s,
        gpus=tuple(sorted(gpus, key=lambda one: one.address)),
        instances=tuple(one for card in cards.found for one in card.parts),
        vgpus=tuple(one for card in cards.found for one in card.vgpus),
        vms=tuple(measured_vms),
        measured=measured,
        unread=tuple(unread),
    )


def _count_xids(host: Host, boot_id: str, unread: List[str]) -> Optional[XidCounts]:
    try:
        counts = xids.count(host, boot_id)
    except Problem as problem:
        unread.append(f"Xids are not counted: {problem.message}")
        return None
    if counts.lost:
        unread.append(
            f"{counts.lost} messages of the kernel's log were overwritten before anybody read them; "
            "they may have been Xids"
        )
    return counts


def _loaded_since(host: Host, counts: Optional[XidCounts]) -> Optional[float]:
    """Return how long ago NVIDIA's driver was loaded, as far as the kernel's log tells it."""
    if counts is None or counts.driver_loaded_at_s is None:
        return None
    return host.uptime() - counts.driver_loaded_at_s


def _find_gpus(host: Host, unread: List[str]) -> List[pci.Function]:
    found = []
    for address in pci.read_addresses(host):
        try:
            function = pci.read_gpu(host, address)
        except Problem as refusal:
            unread.append(refusal.message)
            continue
        if function is not None:
            found.append(function)
    return found


def _read_other(function: pci.Function, counts: Optional[XidCounts], unread: List[str]) -> List[GpuReadings]:
    """Return a GPU that only sysfs shows, with the reason why nothing is measured of it."""
    recorder = Recorder(GPU)
    if function.driver == nvidia.DRIVER:
        unread.append(f"{function.address}: NVML does not show it")
        recorder.unread(_KEPT, "NVML does not show the GPU")
    else:
        recorder.add_states("telemetry_support", SUPPORT, NO_TELEMETRY)
        recorder.lacks(_KEPT, _why_invisible(function.driver))
    if counts is not None and counts.of(function.address):
        record_xids(recorder, function.address, counts)
    return [GpuReadings(function.address, None, None, function.driver, recorder.measured())]


def _why_invisible(driver: Optional[str]) -> str:
    if driver == VFIO:
        return "the GPU is passed through: only the driver in its guest measures it"
    return f"the driver {driver} tells no readings that vgpuctl knows" if driver else "the GPU has no driver"
