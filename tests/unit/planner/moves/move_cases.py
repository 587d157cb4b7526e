# SPDX-License-Identifier: Apache-2.0
"""A VM that can move live, and for each rule a change that forbids it."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.planner.moves.case import (
    Compatibility,
    HostProcessor,
    MoveCase,
    MovedCard,
    MovedDomain,
    MovedGpu,
    MoveHost,
    MoveTransfer,
    MovingVm,
)

CPU = HostProcessor("AMD", "EPYC-Milan", frozenset({"avx2", "pdpe1gb"}), "0xa0011d5")
MACHINES = frozenset({"pc-q35-8.2", "pc-q35-9.2"})
HERE = MoveHost(
    "gpu1", "6.8.0-31", "9.2.0", "11.0.0", ("ubuntu", "24.04"), "580.65.06", (18, 20), MACHINES, CPU,
    logs_dma=True,
)  # fmt: skip
CARD = MovedCard(
    "0000:41:00.0", "nvidia-a40", ecc=True, gsp=False, can_migrate=True, read_mb_s=10_000, write_mb_s=10_000,
    streams=False, on_fabric=False,
)  # fmt: skip
GPU = MovedGpu(
    0, Sharing.MDEV, is_nvidia=True, here=CARD, there=replace(CARD, address="0000:81:00.0"),
    there_sharing=Sharing.MDEV, has_equal_type=True, params=(("frame_rate_limiter", "0"),), can_migrate=True,
    guest_version=19, compatibility=Compatibility(0xF, 0), state_bytes=8 << 30,
)  # fmt: skip
VF = replace(
    GPU, sharing=Sharing.VF, there_sharing=Sharing.VF, is_nvidia=False, driver="xe-vfio-pci", has_p2p=True,
    has_iommufd=True,
)  # fmt: skip
WHOLE = replace(GPU, sharing=Sharing.PASSTHROUGH, there_sharing=Sharing.PASSTHROUGH, driver="vfio-pci")
DOMAIN = MovedDomain(
    "pc-q35-9.2", "host-passthrough", cpu_runs_there=True, has_free_invtsc=False, has_viommu=False, has_virtiofs=False,
    snapshots=0, block_jobs=(), job="", unsafe_disks=(), transient_disks=(), other_devices=(),
)  # fmt: skip
LOOKS = (
    "host-silent", "host-closed", "cordon", "gpu-health", "reservation", "quota", "licence", "no-equal-share",
    "name-taken", "mac-taken", "network", "disks", "host-parts", "guest-cells", "mmio-window",
    "move-network", "move-certificates", "lost-before",
)  # fmt: skip
LIVE = MoveCase(
    MovingVm("acme/train-1", is_running=True, max_downtime_s=60), HERE, replace(HERE, name="gpu2"), (GPU,), DOMAIN,
    MoveTransfer(25_000, 16 << 30, 1 << 20, 0), dict.fromkeys(LOOKS, ""),
)  # fmt: skip


def with_gpu(case: MoveCase = LIVE, **changes: Any) -> MoveCase:
    """Change the VM's first GPU."""
    return replace(case, gpus=(replace(case.gpus[0], **changes), *case.gpus[1:]))


def with_there(**changes: Any) -> MoveCase:
    """Change the other host."""
    return replace(LIVE, there=replace(LIVE.there, **changes))


def with_domain(**changes: Any) -> MoveCase:
    """Change the running domain."""
    return replace(LIVE, domain=replace(LIVE.domain, **changes))


def with_vm(**changes: Any) -> MoveCase:
    """Change the VM."""
    return replace(LIVE, vm=replace(LIVE.vm, **changes))


def _refused(limit_code: int) -> MoveCase:
    return with_gpu(compatibility=Compatibility(0x1, limit_code))


_VF_CASE = replace(
    LIVE, gpus=(VF,), here=replace(HERE, libvirt="12.2.0"), there=replace(HERE, name="gpu2", libvirt="12.2.0")
)
_TWO = replace(LIVE, gpus=(GPU, replace(GPU, index=1)))
_RHEL_94 = replace(LIVE, here=replace(HERE, distribution=("rhel", "9.4")))

FORBIDDEN: dict[str, MoveCase] = {
    "unfinished": with_vm(unfinished="its live move to gpu2 has not ended"),
    "adopted": with_vm(is_adopted=True),
    "declared-host": with_vm(declared_host="gpu1"),
    "host-network": with_vm(network="acme/lan"),
    "disk-snapshots": with_vm(has_disk_snapshots=True),
    "suspended": with_vm(is_suspended=True),
    "vm-is-off": with_vm(is_running=False),
    "gpu-pending": with_vm(pending=("T4-2Q on 0000:41:00.4",)),
    "no-equal-card": replace(LIVE, gpus=(WHOLE,), looks={**LIVE.looks, "no-equal-share": "no A40 is free"}),
    "nvml-no-cold": with_gpu(compatibility=Compatibility(0x8, 0)),
    "nvml-host-driver": _refused(0x1),
    "nvml-guest-driver": _refused(0x2),
    "nvml-gpu": _refused(0x4),
    "nvml-other": _refused(0x80000000),
    "vgpu-not-migratable": with_gpu(can_migrate=False),
    "card-not-migratable": with_gpu(there=replace(CARD, can_migrate=False)),
    "vgpu-version": with_gpu(guest_version=17),
    "board-differs": with_gpu(there=replace(CARD, board="nvidia-h100-nvl")),
    "vgpu-type-differs": with_gpu(has_equal_type=False),
    "ecc-differs": with_gpu(there=replace(CARD, ecc=False)),
    "vgpu-params": with_gpu(params=(("enable_uvm", "1"),)),
    "driver-differs": replace(_RHEL_94, there=replace(HERE, name="gpu2", driver="580.95.05")),
    "vf-on-old-rhel": replace(_RHEL_94, gpus=(replace(GPU, sharing=Sharing.VF_PROFILE),)),
    "rhel-10-and-9": replace(_RHEL_94, there=replace(HERE, name="gpu2", distribution=("rocky", "10.0"))),
    "sharing-differs": with_gpu(there_sharing=Sharing.VF_PROFILE),
    "nvlink-partition": replace(
        _TWO, gpus=tuple(replace(one, here=replace(CARD, on_fabric=True)) for one in _TWO.gpus)
    ),
    "passthrough": replace(LIVE, gpus=(WHOLE,)),
    "vf-without-migration": with_gpu(_VF_CASE, driver="vfio-pci"),
    "vf-dirty-pages": replace(_VF_CASE, there=replace(HERE, name="gpu2", libvirt="12.1.0")),
    "devices-without-p2p": replace(_VF_CASE, gpus=(VF, replace(VF, index=1, has_p2p=False))),
    "qemu-too-old": with_there(qemu="8.0.9"),
    "libvirt-too-old": with_there(libvirt="8.5.0"),
    "kernel-too-old": with_there(kernel="5.15.0-91"),
    "precopy-differs": replace(LIVE, here=replace(HERE, kernel="6.1.0-56-amd64")),
    "dma-log": replace(LIVE, here=replace(HERE, logs_dma=False)),
    "qemu-older": with_there(qemu="8.2.2"),
    "machine-unknown": with_there(machines=frozenset({"pc-q35-8.2"})),
    "cpu-differs": with_there(cpu=replace(CPU, microcode="0xa0011d3")),
    "cpu-does-not-fit": with_domain(cpu_mode="custom", cpu_runs_there=False),
    "invtsc": with_domain(has_free_invtsc=True),
    "viommu": with_domain(has_viommu=True),
    "virtiofs": with_domain(has_virtiofs=True),
    "must-restart": with_vm(must_restart=True),
    "snapshots": with_domain(snapshots=2),
    "block-job": with_domain(block_jobs=("vda",)),
    "job": with_domain(job="snapshot"),
    "disk-cache": with_domain(unsafe_disks=("vda",)),
    "transient-disk": with_domain(transient_disks=("vdb",)),
    "other-device": with_domain(other_devices=("0000:03:00.0",)),
    **{code: replace(LIVE, looks={**LIVE.looks, code: f"{code} on gpu2"}) for code in LOOKS},
}
"""For the code of each rule a case that it forbids."""

MOVABLE: tuple[MoveCase, ...] = (
    LIVE,
    _VF_CASE,
    _TWO,
    _RHEL_94,
    replace(_VF_CASE, gpus=(VF, replace(VF, index=1))),
    replace(LIVE, gpus=()),
    with_domain(cpu_mode="custom"),
    with_domain(cpu_mode="maximum"),
    with_gpu(sharing=Sharing.VF_PROFILE, there_sharing=Sharing.VF_PROFILE),
)
"""Cases that can move live."""

Forget = Callable[[MoveCase], MoveCase]


def forgettable(case: MoveCase) -> list[Forget]:
    """Return for each thing that is known in a case a function that forgets it."""
    found: list[Forget] = [lambda one, code=code: replace(one, looks=_without(one.looks, code)) for code in case.looks]  # type: ignore[misc]
    for name in ("here", "there", "domain", "link"):
        found += (_inside(name, inner) for inner in _optional(getattr(case, name)))
    for number, gpu in enumerate(case.gpus):
        found += (_of_gpu(number, inner) for inner in _optional(gpu))
        for card in ("here", "there"):
            found += (_of_card(number, card, inner) for inner in _optional(getattr(gpu, card)))
    return found


def _without(looks: Any, code: str) -> dict[str, str]:
    return {name: text for name, text in looks.items() if name != code}


def _optional(value: Any) -> Iterator[str]:
    """Names of the fields that may be unknown, and are known."""
    for one in fields(value) if is_dataclass(value) else ():
        if one.default is None and getattr(value, one.name) is not None:
            yield one.name


def _inside(name: str, inner: str) -> Forget:
    return lambda case: replace(case, **{name: replace(getattr(case, name), **{inner: None})})


def _of_gpu(number: int, inner: str) -> Forget:
    return lambda case: _with_gpu_at(case, number, {inner: None})


def _of_card(number: int, card: str, inner: str) -> Forget:
    def forget(case: MoveCase) -> MoveCase:
        known = getattr(case.gpus[number], card)
        return case if known is None else _with_gpu_at(case, number, {card: replace(known, **{inner: None})})

    return forget


def _with_gpu_at(case: MoveCase, number: int, changes: dict[str, Any]) -> MoveCase:
    changed = replace(case.gpus[number], **changes)
    return replace(case, gpus=(*case.gpus[:number], changed, *case.gpus[number + 1 :]))
