# SPDX-License-Identifier: Apache-2.0
"""The promise of a VM's leases against what its guest and its host's driver show. Pure.

Texts and failures are those of the references guest.md, sections 9 and 10, and host-interfaces.md, section 7.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.readings import NOT_MEASURABLE, Measured
from vgpuctl.model.lease import Lease
from vgpuctl.model.proof import AskedOf, PartProof, PromiseVerdict
from vgpuctl.sharing.kinds import takes_card
from vgpuctl.sharing.measured import MeasuredShare

_MIB = 2**20
_KEPT_MEMORY = 0.8
"""A guest's driver keeps part of the framebuffer for itself: vGPU types of the catalogue show 81 to 100 percent."""
_LOOK_DRIVER = "in the guest: `dmesg | grep NVRM`; on the host: `journalctl -u nvidia-vgpu-mgr`; `vgpuctl plan-upgrade`"
_LOOK_LICENCE = "in the guest: `journalctl -u nvidia-gridd`, its clock, the token and the way to the licence server"
_LOOK_GPUS = "`vgpuctl show-vm`: which devices QEMU gave to the guest; in the guest: `lspci -d 10de:`"
_LOOK_CUDA = (
    "cuInit 802: the NVSwitch partition is not active; 803: driver and CUDA library are of two versions after an update"
)
_LOOK_LIE = "host and guest contradict each other: believe the host, and look at who changes the guest"


@dataclass(frozen=True)
class InsideGpu:
    """One GPU as the guest shows it. memory_mib: its framebuffer. licence: nvidia-smi's words.

    uuid: decides nothing but that two GPUs are two: a guest can name that of another VM's GPU.
    """

    name: str | None
    memory_mib: int | None
    licence: str | None
    uuid: str | None = None


@dataclass(frozen=True)
class SeenInside:
    """A guest as it shows itself. cuda_devices, cuda_copies: None where the guest has no CUDA."""

    driver: str | None
    gpus: tuple[InsideGpu, ...]
    cuda_devices: int | None
    cuda_copies: int | None


def compare(
    leases: Sequence[Lease], inside: SeenInside | None, outside: Sequence[MeasuredShare]
) -> tuple[PartProof, ...]:
    """Every part of the promise, with what the guest (None: not asked) and the host's driver show of it."""
    findings = list(_host_parts(outside))
    if inside is not None:
        findings += [*_guest_parts(leases, inside), *_contradictions(inside, outside)]
    return tuple(findings)


def _host_parts(outside: Sequence[MeasuredShare]) -> Iterator[PartProof]:
    for one in outside:
        if takes_card(one.lease.share):
            continue
        name, measured = one.lease.share.profile, one.measured
        driver = measured.label("guest_driver_info")
        missing = _missing(measured, "guest_driver_info")
        yield PartProof(
            f"driver of {name}",
            AskedOf.HOST,
            _word(bool(driver) if _can_tell(one, "guest_driver_info") else None),
            "a guest driver is loaded",
            driver or missing,
            "" if driver else _LOOK_DRIVER,
        )
        state = measured.label("license_state")
        is_licensed = state == "licensed"
        yield PartProof(
            f"licence of {name}",
            AskedOf.HOST,
            _word(None if state in (None, "unknown") else is_licensed),
            "licensed",
            state or _missing(measured, "license_state"),
            "" if is_licensed else _LOOK_LICENCE,
        )
        size = measured.get("framebuffer_size_bytes")
        yield _memory(f"framebuffer of {name}", AskedOf.HOST, one.lease, None if size is None else int(size) // _MIB)


def _can_tell(one: MeasuredShare, name: str) -> bool:
    """True if the host's driver shows the vGPU, and has this measure at all."""
    reason = one.measured.why_missing(name) or ""
    return one.readings is not None and not reason.startswith(NOT_MEASURABLE)


def _missing(measured: Measured, name: str) -> str:
    return measured.why_missing(name) or "the host's driver shows no such vGPU"


def _memory(part: str, source: AskedOf, lease: Lease, mib: int | None) -> PartProof:
    promised = lease.share.framebuffer_mib
    if promised is None or mib is None:
        wanted = "not known" if promised is None else f"{promised} MiB"
        return PartProof(part, source, _word(None), wanted, "not told" if mib is None else f"{mib} MiB", _LOOK_GPUS)
    is_kept = promised * _KEPT_MEMORY <= mib <= promised
    return PartProof(part, source, _word(is_kept), f"{promised} MiB", f"{mib} MiB", "" if is_kept else _LOOK_GPUS)


def _guest_parts(leases: Sequence[Lease], inside: SeenInside) -> Iterator[PartProof]:
    yield _part("driver", bool(inside.driver), "loaded", inside.driver, _LOOK_DRIVER)
    names = ", ".join(gpu.name or "?" for gpu in inside.gpus) or "none"
    uuids = [gpu.uuid for gpu in inside.gpus if gpu.uuid is not None]
    is_count = len(inside.gpus) == len(leases) and len(set(uuids)) == len(uuids)
    is_twice = len(inside.gpus) == len(leases) and not is_count
    yield _part("GPUs", is_count, str(len(leases)), f"{names}: one of them twice" if is_twice else names, _LOOK_GPUS)
    if not is_count:
        return
    left = list(inside.gpus)
    for lease in leases:
        wanted = lease.share.profile
        found = next((gpu for gpu in left if takes_card(lease.share) or _is_type(gpu.name, wanted)), None)
        if found is None:
            yield _part(f"GPU {wanted}", False, wanted, names, _LOOK_GPUS)
            continue
        left.remove(found)
        yield _part(f"GPU {wanted}", True, wanted, found.name, "")
        if not takes_card(lease.share):
            yield _memory(f"framebuffer of {wanted}", AskedOf.GUEST, lease, found.memory_mib)
            is_licensed = (found.licence or "").startswith("Licensed")
            is_kept = None if found.licence is None else is_licensed
            yield _part(f"licence of {wanted}", is_kept, "licensed", found.licence, _LOOK_LICENCE)
    if inside.cuda_devices is not None:
        whole = inside.cuda_devices == len(leases) == inside.cuda_copies
        seen = f"{inside.cuda_devices} devices, {inside.cuda_copies or 0} of them copied whole"
        yield _part(
            "CUDA",
            whole,
            f"{len(leases)} devices",
            seen,
            _LOOK_CUDA,
        )


def _part(part: str, is_kept: bool | None, promised: str, seen: str | None, look: str) -> PartProof:
    return PartProof(part, AskedOf.GUEST, _word(is_kept), promised, seen or "not told", "" if is_kept else look)


def _word(is_kept: bool | None) -> PromiseVerdict:
    return {True: PromiseVerdict.KEPT, False: PromiseVerdict.NOT_KEPT, None: PromiseVerdict.UNKNOWN}[is_kept]


def _is_type(name: str | None, profile: str) -> bool:
    """nvidia-smi in the guest names a vGPU by its type: `NVIDIA A40-8Q`."""
    return name is not None and name.rpartition(" ")[2] == profile


def _contradictions(inside: SeenInside, outside: Sequence[MeasuredShare]) -> Iterator[PartProof]:
    """Where the guest says other than the host's driver, which the guest cannot change."""
    for one in outside:
        told = one.measured.label("guest_driver_info")
        if told is not None and inside.driver is not None and told != inside.driver:
            yield _part("driver, twice", False, f"{told}, by the host", inside.driver, _LOOK_LIE)
        state = one.measured.label("license_state")
        gpus = [gpu for gpu in inside.gpus if _is_type(gpu.name, one.lease.share.profile)]
        said = [gpu.licence for gpu in gpus if (gpu.licence or "").startswith("Licensed")]
        if state is not None and state.startswith("unlicensed") and said and len(said) == len(gpus):
            yield _part("licence, twice", False, f"{state}, by the host", said[0], _LOOK_LIE)
