# SPDX-License-Identifier: Apache-2.0
"""The differences between a host before and after a run that failed."""

from collections.abc import Iterator
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.tuning import GpuTuning, clocks_in_words, watts
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.usecases.layout.layout_lines import LeftBehind
from vgpuctl.usecases.observed.host_snapshot import compare, snapshot_of
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.shares import describe_share


@dataclass(frozen=True)
class VmShares:
    """A VM on the host and what it has there, in words. devices: of its shares, which need no line of their own."""

    name: str
    text: str
    devices: frozenset[str]


@dataclass(frozen=True)
class SeenHost:
    """A host as it was read, and its VMs then."""

    facts: HostFacts
    vms: tuple[VmShares, ...] = ()


def seen_host(services: Services, host: str, facts: HostFacts) -> SeenHost:
    """The facts that were read of a host just now, with its VMs in the store."""
    with services.store.reading() as session:
        vms, leases = session.vms(host=host), session.leases(host=host)
    found = []
    for vm in vms:
        own = [one for one in leases if one.vm_uuid == vm.uuid]
        shares = ", ".join(map(describe_share, own)) or "no share"
        devices = frozenset(one.share.vfio_device for one in own)
        found.append(VmShares(f"VM {vm.request.name} of {vm.request.tenant}", f"{vm.state} with {shares}", devices))
    return SeenHost(facts, tuple(found))


def left_behind(was: SeenHost, now: SeenHost) -> tuple[LeftBehind, ...]:
    """Everything that a layout sets on a host, compared between two readings; each VM that is otherwise is one line."""
    before, after = was.facts, now.facts
    vms_before, vms_after = ({one.name: one.text for one in seen.vms} for seen in (was, now))
    of_vms = {f"vgpu {device}" for one in (*was.vms, *now.vms) for device in one.devices}
    found = [
        LeftBehind(None, name, vms_before.get(name, "not here"), vms_after.get(name, "not here"))
        for name in sorted({*vms_before, *vms_after})
        if vms_before.get(name) != vms_after.get(name)
    ]
    found += [
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
    for gpu, old, new in pairs:
        for subject in sorted({*old, *new} - of_vms):
            values = old.get(subject, "none"), new.get(subject, "none")
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
    if gpu.tuning is not None:
        yield from _of_tuning(gpu.tuning)
    for one_vgpu in existing_vgpus(gpu):
        yield f"vgpu {one_vgpu.vfio_device}", f"{one_vgpu.profile or one_vgpu.type_id} {one_vgpu.params or ''}".strip()
    for function in gpu.vfs:
        if function.driver != gpu.driver:
            yield f"driver of {function.address}", function.driver or "none"


def _of_tuning(tuning: GpuTuning) -> Iterator[tuple[str, str]]:
    if tuning.power_limit_mw is not None:
        yield "power-limit", watts(tuning.power_limit_mw)
    yield "gpu-clocks", clocks_in_words(tuning.locked_clocks_mhz)
    yield "memory-clocks", clocks_in_words(tuning.locked_memory_clocks_mhz)
    yield "pending-ecc", str(tuning.ecc_pending)
    yield "compute-mode", tuning.compute_mode or "none"


def _of_host(facts: HostFacts) -> Iterator[tuple[str, str]]:
    for pool in facts.hugepages or ():
        yield f"hugepages of {pool.size_kib} KiB", str(pool.total)
    for service in facts.services or ():
        yield service.name, "active" if service.active else "not active"
    if facts.fabric_manager is not None:
        yield "FABRIC_MODE", str(facts.fabric_manager.mode)
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
