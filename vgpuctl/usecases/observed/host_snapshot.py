# SPDX-License-Identifier: Apache-2.0
"""A host's state before a reboot, and the parts that are not back."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, HostFacts
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.planner.layout.result import Difference
from vgpuctl.planner.mig_geometry import describe_compute, parts_of
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.usecases.running.services import Services

_KIND = "snapshot"


class GpuSnapshot(msgspec.Struct, frozen=True):
    """One GPU. vgpus: how many of each type id; instances: (profile or its parts, start) of GPU instances.

    vgpu_types: how many of each type, by name, since a driver may number its types in another way than the last one;
    None of a snapshot from before names were kept.
    """

    address: str
    uuid: str | None
    driver: str | None
    vfs: int
    mig: bool | None
    instances: tuple[tuple[str, int], ...]
    mixed_sizes: bool | None
    scheduler: str | None
    vgpus: dict[str, int]
    vgpu_types: dict[str, int] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """One host. active: names of the running domains; None where libvirt was not asked."""

    boot_id: str
    kernel: str
    nvidia_driver: str | None
    gpus: tuple[GpuSnapshot, ...]
    active: tuple[str, ...] | None


def snapshot_of(facts: HostFacts, active: tuple[str, ...] | None) -> Snapshot:
    """The snapshot of what was read."""
    gpus = tuple(_gpu(gpu) for gpu in sorted(facts.gpus, key=lambda one: one.address))
    return Snapshot(facts.boot_id, facts.kernel, facts.nvidia_driver, gpus, active)


def save_snapshot(services: Services, host: str, snapshot: Snapshot) -> None:
    """Keep it, in place of the one before."""
    before = saved_snapshot(services, host)
    with services.store.transaction() as session:
        session.save_host_record(host, _KIND, msgspec.json.encode(snapshot).decode())
        if snapshot != before:
            was = None if before is None else _values(before)
            session.add_event(EventKind.SNAPSHOT_TAKEN, host, host=host, before=was, after=_values(snapshot))


def saved_snapshot(services: Services, host: str) -> Snapshot | None:
    """The snapshot of a host, None when none was taken."""
    with services.store.reading() as session:
        record = session.host_record(host, _KIND)
    snapshot: Snapshot | None = None if record is None else typed_json.decode(record.content, Snapshot)
    return snapshot


def compare(before: Snapshot, now: Snapshot) -> tuple[Difference, ...]:
    """The differences to the snapshot. Another kernel or driver counts too: GPUs behave otherwise under it."""
    found = [
        Difference(None, subject, str(was), str(is_now))
        for subject, was, is_now in (
            ("kernel", before.kernel, now.kernel),
            ("nvidia-driver", before.nvidia_driver, now.nvidia_driver),
        )
        if was != is_now
    ]
    gpus = {gpu.address: gpu for gpu in now.gpus}
    for was_gpu in before.gpus:
        gpu = gpus.pop(was_gpu.address, None)
        if gpu is None:
            found.append(Difference(was_gpu.address, "gpu", "present", "missing"))
            continue
        passed_over = "vgpu_types" if was_gpu.vgpu_types is None else "vgpus"
        for name in GpuSnapshot.__struct_fields__[1:]:
            if name == passed_over:
                continue
            was, is_now = getattr(was_gpu, name), getattr(gpu, name)
            if was != is_now:
                subject = "vgpus" if name == "vgpu_types" else name.replace("_", "-")
                found.append(Difference(gpu.address, subject, _text(was), _text(is_now)))
    found += [Difference(address, "gpu", "missing", "present") for address in gpus]
    if before.active is not None and now.active is not None:
        gone = [name for name in before.active if name not in now.active]
        found += [Difference(None, "vm", f"{name} runs", "it does not run") for name in gone]
    return tuple(found)


def _values(snapshot: Snapshot) -> Values:
    return {
        "boot": snapshot.boot_id,
        "kernel": snapshot.kernel,
        "driver": snapshot.nvidia_driver,
        "gpus": [one.address for one in snapshot.gpus],
        "running": None if snapshot.active is None else list(snapshot.active),
    }


def _gpu(gpu: Gpu) -> GpuSnapshot:
    there = existing_vgpus(gpu)
    mig = gpu.mig
    return GpuSnapshot(
        address=gpu.address,
        uuid=gpu.uuid,
        driver=gpu.driver,
        vfs=len(gpu.vfs),
        mig=mig.current if mig else None,
        instances=tuple(sorted((_devices(one), one.start) for one in mig.instances)) if mig else (),
        mixed_sizes=gpu.heterogeneous,
        scheduler=gpu.scheduler.policy if gpu.scheduler else None,
        vgpus=_counted(vgpu.type_id or "unknown" for vgpu in there),
        vgpu_types=_counted(vgpu.profile or vgpu.type_id or "unknown" for vgpu in there),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _devices(one: GpuInstance) -> str:
    """A GPU instance by its profile, or by its parts."""
    return describe_compute(one.profile, parts_of(one.profile, one.compute))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} x {name}" for name, count in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(f"{profile} at {start}" for profile, start in value) or "none"
    return "none" if value is None else str(value)
