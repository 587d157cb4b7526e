# SPDX-License-Identifier: Apache-2.0
"""The differences between a host before and after a run that failed."""

from collections.abc import Iterator

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.usecases.layout.layout_lines import LeftBehind
from vgpuctl.usecases.support.host_snapshot import compare, snapshot_of


def left_behind(before: HostFacts, after: HostFacts) -> tuple[LeftBehind, ...]:
    """Everything that a layout sets on a host, compared between two readings."""
    found = [
        LeftBehind(one.gpu, one.subject, one.declared, one.found)
        for one in compare(snapshot_of(before, None), snapshot_of(after, None))
    ]
    gpus = {gpu.address: gpu for gpu in after.gpus}
    pairs: list[tuple[str | None, dict[str, str], dict[str, str]]] = [
        (gpu.address, dict(_of_gpu(gpu)), dict(_of_gpu(gpus[gpu.address])))
        for gpu in before.gpus
        if gpu.address in gpus
    ]
    pairs.append((None, dict(_of_host(before)), dict(_of_host(after))))
    for gpu, was, now in pairs:
        for subject in sorted({*was, *now}):
            values = was.get(subject, "none"), now.get(subject, "none")
            if values[0] != values[1]:
                found.append(LeftBehind(gpu, subject, *values))
    return tuple(found)


def _of_gpu(gpu: Gpu) -> Iterator[tuple[str, str]]:
    """Values that a snapshot over a reboot leaves out."""
    if gpu.mig is not None:
        yield "pending-mig", str(gpu.mig.pending)
        for one in gpu.mig.instances:
            if one.heterogeneous:
                yield f"mixed-sizes of {one.profile} at {one.start}", "True"
    if gpu.scheduler is not None and gpu.scheduler.time_slice_us is not None:
        yield "time-slice", f"{gpu.scheduler.time_slice_us} us"
    for one_vgpu in existing_vgpus(gpu):
        yield f"vgpu {one_vgpu.vfio_device}", f"{one_vgpu.profile or one_vgpu.type_id} {one_vgpu.params or ''}".strip()
    for function in gpu.vfs:
        if function.driver != gpu.driver:
            yield f"driver of {function.address}", function.driver or "none"


def _of_host(facts: HostFacts) -> Iterator[tuple[str, str]]:
    for pool in facts.hugepages or ():
        yield f"hugepages of {pool.size_kib} KiB", str(pool.total)
    for service in facts.services or ():
        yield service.name, "active" if service.active else "not active"
    if facts.boot is not None:
        yield "boot manifest", facts.boot.manifest[:12]
    ovn = facts.ovn
    if ovn is None:
        return
    yield "chassis", str(ovn.chassis) if ovn.chassis is not None else "none"
    yield "ovn-switch", "active" if ovn.switch_active else "not active"
    yield "ovn-controller", "active" if ovn.controller_active else "not active"
    yield "ovn-certificate", "there" if ovn.has_certificate else "not there"
    for bridge in ovn.bridges:
        yield f"bridge {bridge.name}", " ".join(sorted(bridge.interfaces))
