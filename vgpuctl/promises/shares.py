# SPDX-License-Identifier: Apache-2.0
"""Rows about a VM's GPU shares: type, holder, framebuffer, compute time, driver, licence.

Texts and failures are those of the references guest.md, sections 9 and 10, and host-interfaces.md, section 7.
"""

from collections.abc import Iterable, Iterator
from itertools import permutations

from vgpuctl.agent.wire.readings import NOT_MEASURABLE, Measured
from vgpuctl.model.compute import percent_text
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.lease import Lease
from vgpuctl.model.licence import Edition
from vgpuctl.model.over_promise import is_work_stopped
from vgpuctl.model.promise import Witness
from vgpuctl.model.units import MIB
from vgpuctl.model.vgpu_params import params_text, show_vgpu_param, split_params
from vgpuctl.promises.answer import RowAnswer, RowAnswers, not_looked
from vgpuctl.promises.witnessed import NO_CONSENT, InsideGpu, NotLookedAt, Promised, SeenInside, Witnessed
from vgpuctl.sharing.compute import compute_of, refuse_compute
from vgpuctl.sharing.declared import declared_of
from vgpuctl.sharing.fabric import partition_of, why_untold
from vgpuctl.sharing.kinds import existing_vgpus, takes_card, takes_function
from vgpuctl.sharing.measured import MeasuredShare
from vgpuctl.sharing.occupancy import gpu_at, vf_at
from vgpuctl.sharing.params import of_vf
from vgpuctl.sharing.partition_rules import used_partition
from vgpuctl.sharing.share_on_host import holders_of, is_unread, missing_card
from vgpuctl.sharing.type_names import names_on

_KEPT_MEMORY = 0.8
"""A guest's driver keeps part of the framebuffer for itself: vGPU types of the catalogue show 81 to 100 percent."""
_KEPT_COMPUTE = 0.8
_NOTHING_TAKEN = "of the GPU's time, nothing of it taken by neighbours"
"""As the alert of the same fault counts it (telemetry/alerts/of_shares.py)."""
_DRIVER = "in the guest: `dmesg | grep NVRM`; on the host: `journalctl -u nvidia-vgpu-mgr`; `vgpuctl plan-upgrade`"
_LICENCE = "in the guest: `journalctl -u nvidia-gridd`, its clock, the token and the way to the licence server"
_GPUS = "`vgpuctl show-vm`: which devices QEMU gave to the guest; in the guest: `lspci -d 10de:`"
_CUDA = (
    "cuInit 802: the NVSwitch partition is not active; 803: driver and CUDA library are of two versions after an update"
)
_PEERS = (
    "in the guest: `nvidia-smi topo -p2p r`, `dmesg | grep NVRM`; an adopted domain must not hide KVM from its guest"
)
_PCIE_MOST_MIB_S = 60_083
"""PCIe 5.0 with 16 lanes: 32 GT/s each, 128 of 130 bits are data. What is faster took NVLink, except over PCIe 6.0."""
_PARTITION = "`vgpuctl repair` activates it again, and the guest's GPUs compute then without its restart"
_LIE = "host and guest contradict each other: believe the host, and look at who changes the guest"
_TYPE = "stop the VM and start it again: `vgpuctl restart-vm`; its share is made again by the name of its type"
_HELD = "`vgpuctl show-vm` names who holds the device; `vgpuctl repair` makes a lost one again"
_COMPUTE = "run `vgpuctl top` to see the VMs of the GPU; move one of them: `vgpuctl move-vm`"
_WORK = "start it again: `vgpuctl restart-vm`"
_PRODUCTS = {
    Edition.VWS: "RTX Virtual Workstation",
    Edition.VPC: "Virtual PC",
    Edition.VAPPS: "Virtual Applications",
    Edition.VCS: "vGPU for Compute",
}
"""As a licensed guest's driver names them (reference guest, section 2.1)."""


def gpu_type(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The type of each device, by the name that the host's driver gives it now; of a whole card its model."""
    for lease in promised.leases:
        share, facts = lease.share, seen.kernel
        if isinstance(facts, NotLookedAt):
            yield not_looked(share.profile, share.profile, facts)
            continue
        gpu = gpu_at(facts, share.gpu)
        if gpu is None or is_unread(facts, share):
            why = f"{share.gpu} could not be read" if facts.unread_functions or gpu is not None else ""
            if why:
                yield not_looked(share.profile, share.profile, why)
            else:
                yield RowAnswer(share.profile, False, share.profile, f"no GPU at {share.gpu}", remedy=_HELD)
            continue
        if share.type_id is None:
            other = missing_card(promised.vm, lease, facts)
            model = gpu.name or f"{gpu.vendor_id}:{gpu.device_id}"
            yield RowAnswer(share.profile, other is None, "the card of the request", other or model, remedy=_HELD)
            continue
        vgpu = next((one for one in existing_vgpus(gpu) if one.vfio_device == share.vfio_device), None)
        if vgpu is None:
            yield RowAnswer(share.profile, False, share.profile, "no such device", remedy=_HELD)
            continue
        name = names_on(gpu).get(vgpu.type_id or "")
        if name is None:
            yield not_looked(share.profile, share.profile, f"the host's driver does not name type {vgpu.type_id}")
            continue
        yield RowAnswer(share.profile, name == share.profile, share.profile, name, remedy=_TYPE)


def gpu_held(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The QEMU of the VM has each device open, and no other process."""
    wanted = "held by this VM's QEMU"
    for lease in promised.leases:
        share, facts = lease.share, seen.kernel
        if isinstance(facts, NotLookedAt):
            yield not_looked(share.profile, wanted, facts)
            continue
        holders = holders_of(facts, share)
        if holders is None and is_unread(facts, share):
            yield not_looked(share.profile, wanted, f"{share.function} could not be read")
            continue
        others = [one for one in holders or () if one.vm_uuid != promised.vm.uuid]
        if holders and not others:
            yield RowAnswer(share.profile, True, wanted, wanted)
        else:
            told = ", ".join(f"{one.command} ({one.pid})" for one in others)
            found = f"held by {told}" if told else "no such device" if holders is None else "held by nobody"
            yield RowAnswer(share.profile, False, wanted, found, remedy=_HELD)


def gpu_state(promised: Promised, _seen: Witnessed) -> RowAnswers:
    """No vGPU was reset under its guest. Nothing is said where none is known to have been: only QEMU's log tells."""
    vm = promised.vm
    if vm.must_restart:
        remedy = f"`vgpuctl restart-vm {vm.printed_name}` gives its guest a vGPU that works"
        yield RowAnswer("", False, "the state that its guest gave it", vm.problem or "", remedy=remedy)


def partition(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The partition of the VM's GPUs, as Fabric Manager lists it; no row where the host's facts name none."""
    wanted, facts = "active", seen.kernel
    if isinstance(facts, NotLookedAt):
        return
    used = used_partition((one.share for one in promised.leases), facts, promised.vm.uuid)
    if used is None:
        return
    untold = why_untold(facts)
    if untold is not None:
        yield not_looked("", wanted, untold)
        return
    found = partition_of(used.gpus, facts)
    told = "no partition of its GPUs" if found is None else "active" if found.is_active else "not active"
    subject = "" if found is None else str(found.number)
    yield RowAnswer(subject, told == wanted, wanted, told, remedy=_PARTITION)


def vf_params(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The parameters of each VF, as the host's driver has them."""
    vm, facts = promised.vm, seen.kernel
    wanted = of_vf(vm.request.vgpu_params)
    for share in (one.share for one in promised.leases if wanted and takes_function(one.share)):
        words = params_text(wanted)
        if isinstance(facts, NotLookedAt):
            yield not_looked(share.profile, words, facts)
            continue
        gpu = gpu_at(facts, share.gpu)
        vf = None if gpu is None or is_unread(facts, share) else vf_at(gpu, share.function)
        if vf is None:
            yield not_looked(share.profile, words, f"{share.function} could not be read")
            continue
        told = dict(split_params(vf.vgpu_params))
        found = ",".join(f"{name}={told.get(name, 'not told')}" for name, _ in wanted)
        given = " ".join(f"--vgpu-param {show_vgpu_param(one)}" for one in vm.request.vgpu_params)
        remedy = f"`vgpuctl resize-vm {vm.printed_name} {given}` sets them again"
        yield RowAnswer(share.profile, found == words, words, found, remedy=remedy)


def framebuffer(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The framebuffer of each vGPU, as the host's driver and the guest show it."""
    for lease, one in _vgpus(promised, seen):
        share = lease.share
        wanted = "not known" if share.framebuffer_mib is None else f"{share.framebuffer_mib} MiB"
        if isinstance(one, NotLookedAt):
            yield not_looked(share.profile, wanted, one)
            continue
        size = one.measured.get("framebuffer_size_bytes")
        if size is None or share.framebuffer_mib is None:
            yield not_looked(share.profile, wanted, _missing(one.measured, "framebuffer_size_bytes"))
            continue
        yield _memory(lease, int(size) // MIB, Witness.NVML)
    for lease, gpu in _inside(promised, seen):
        if gpu is not None and gpu.memory_mib is not None and lease.share.framebuffer_mib is not None:
            answer = _memory(lease, gpu.memory_mib, Witness.GUEST)
            if not answer.is_kept:
                yield answer


def compute(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Compute time: broken if neighbours above their promise take time that the VM was promised and needs."""
    for lease, one in _vgpus(promised, seen):
        profile = lease.share.profile
        if isinstance(one, NotLookedAt):
            yield not_looked(profile, f"its part {_NOTHING_TAKEN}", one)
            continue
        part, stolen = one.measured.get("promised_ratio"), one.measured.get("steal_ratio")
        used = one.measured.get("share_utilization_ratio")
        if part is None or stolen is None or used is None:
            missing = {"promised_ratio": part, "steal_ratio": stolen, "share_utilization_ratio": used}
            name = next(name for name, value in missing.items() if value is None)
            yield not_looked(profile, f"its part {_NOTHING_TAKEN}", _missing(one.measured, name))
            continue
        wanted = f"{percent_text(100 * part)} {_NOTHING_TAKEN}"
        is_kept = not (stolen > 0 and used < _KEPT_COMPUTE)
        taken = f"{stolen:.0%} of the GPU" if stolen > 0 else "nothing"
        found = f"{used:.0%} of it used, {taken} taken by neighbours"
        yield RowAnswer(profile, is_kept, wanted, found, remedy=_COMPUTE)


def compute_promise(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The compute time of each share that asks for some, by its GPU's scheduler or its GPU instance."""
    wanted = {one.position: one for one in placed_gpus(promised.vm.request.gpus)}
    for lease in promised.leases:
        request, share, facts = wanted.get(lease.index), lease.share, seen.kernel
        if request is None or not request.wants_compute:
            continue
        if is_work_stopped(promised.vm, share.function):
            yield RowAnswer(share.profile, False, request.compute_text, str(promised.vm.problem), remedy=_WORK)
            continue
        if isinstance(facts, NotLookedAt):
            yield not_looked(share.profile, request.compute_text, facts)
            continue
        gpu = gpu_at(facts, share.gpu)
        if gpu is None:
            yield not_looked(share.profile, request.compute_text, f"{share.gpu} could not be read")
            continue
        declared = declared_of(gpu, facts, promised.declared)
        found, refusal = compute_of(share, gpu, declared), refuse_compute(request, share, gpu, declared, lease.host)
        if not found.is_read:
            yield not_looked(share.profile, request.compute_text, found.why)
            continue
        remedy = (refusal and refusal.remedy) or ""
        yield RowAnswer(share.profile, refusal is None, request.compute_text, str(found), remedy=remedy)


def guest_driver(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The driver of each vGPU's guest; that of a guest with whole cards where a version was promised."""
    version = promised.vm.request.guest_driver.version
    wanted = "a guest driver is loaded" if version is None else f"driver {version}"
    for lease, one in _vgpus(promised, seen):
        if isinstance(one, NotLookedAt):
            yield not_looked(lease.share.profile, wanted, one)
            continue
        told = one.measured.label("guest_driver_info")
        if told is not None:
            is_kept = version is None or _is_version(told, version)
            yield RowAnswer(lease.share.profile, is_kept, wanted, told, remedy=_DRIVER)
        elif one.readings is not None and _can_tell(one.measured, "guest_driver_info"):
            seen_of_it = _missing(one.measured, "guest_driver_info")
            yield RowAnswer(lease.share.profile, False, wanted, seen_of_it, remedy=_DRIVER)
        else:
            yield not_looked(lease.share.profile, wanted, _missing(one.measured, "guest_driver_info"))
        if isinstance(seen.guest, SeenInside) and told is not None and seen.guest.driver not in (None, told):
            yield RowAnswer(
                lease.share.profile, False, f"{told}, by the host", str(seen.guest.driver), "", _LIE, Witness.GUEST
            )
    if version is not None and any(takes_card(one.share) for one in promised.leases):
        yield _driver_by_guest(seen.guest, version)
    elif isinstance(seen.guest, SeenInside) and promised.leases and seen.guest.driver is None:
        yield RowAnswer("", False, wanted, "none", "", _DRIVER, Witness.GUEST)


def licence(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The licence of each vGPU's guest."""
    for lease, one in _vgpus(promised, seen):
        profile = lease.share.profile
        if isinstance(one, NotLookedAt):
            yield not_looked(profile, "licensed", one)
            continue
        state = one.measured.label("license_state")
        if state in (None, "unknown"):
            yield not_looked(profile, "licensed", state or _missing(one.measured, "license_state"))
            continue
        is_kept = state == "licensed"
        yield RowAnswer(profile, is_kept, "licensed", str(state), remedy=_LICENCE)
    for lease, gpu in _inside(promised, seen):
        if gpu is not None and gpu.licence is not None and not gpu.licence.startswith("Licensed"):
            yield RowAnswer(lease.share.profile, False, "licensed", gpu.licence, "", _LICENCE, Witness.GUEST)


def licence_edition(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The product that the guest's driver names, where one was asked for."""
    edition = promised.vm.request.licence
    if edition is None:
        return
    for lease in promised.leases:
        if takes_card(lease.share):
            continue
        profile = lease.share.profile
        if isinstance(seen.guest, NotLookedAt):
            yield not_looked(profile, edition, f"only the guest can tell: {seen.guest.why}")
            continue
        gpu = {one.id: inside for one, inside in _inside(promised, seen)}.get(lease.id)
        if gpu is None or gpu.product is None:
            yield not_looked(profile, edition, "the guest does not name the product")
            continue
        named = next((one for one, name in _PRODUCTS.items() if name in (gpu.product or "")), None)
        if named is None:
            yield not_looked(profile, edition, f"the guest names a product that is not known: {gpu.product}")
            continue
        is_kept = named is edition
        yield RowAnswer(profile, is_kept, edition, gpu.product, remedy=_LICENCE)


def guest_gpus(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The GPUs as the guest shows them, and CUDA, where the guest is asked."""
    inside, leases = seen.guest, promised.leases
    if not leases or inside is NO_CONSENT:
        return
    wanted = ", ".join(one.share.profile for one in leases)
    if isinstance(inside, NotLookedAt):
        yield not_looked("", wanted, f"only the guest can tell: {inside.why}")
        return
    names = ", ".join(gpu.name or "?" for gpu in inside.gpus) or "none"
    uuids = [gpu.uuid for gpu in inside.gpus if gpu.uuid is not None]
    if len(inside.gpus) != len(leases):
        yield RowAnswer("", False, wanted, names, remedy=_GPUS)
    elif len(set(uuids)) != len(uuids):
        yield RowAnswer("", False, wanted, f"{names}: one of them twice", remedy=_GPUS)
    else:
        is_kept = all(gpu is not None for _lease, gpu in _inside(promised, seen))
        yield RowAnswer("", is_kept, wanted, names, remedy=_GPUS)
    if inside.cuda_devices is not None:
        is_whole = inside.cuda_devices == len(leases) == inside.cuda_copies
        found = f"{inside.cuda_devices} devices, {inside.cuda_copies or 0} of them copied whole"
        yield RowAnswer("CUDA", is_whole, f"{len(leases)} devices", found, remedy=_CUDA)


def gpu_peers(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Copies between the GPUs of a VM that are one partition, both ways; no row for other VMs, nor for one GPU."""
    if isinstance(seen.kernel, NotLookedAt):
        return
    used = used_partition((one.share for one in promised.leases), seen.kernel, promised.vm.uuid)
    if used is None or not 1 < len(used.gpus) == len(promised.leases):
        return
    pairs, inside = list(permutations(range(len(used.gpus)), 2)), seen.guest
    wanted = f"{len(pairs)} copies between {len(used.gpus)} GPUs whole"
    if isinstance(inside, NotLookedAt):
        yield not_looked("", wanted, f"only the guest can tell: {inside.why}")
        return
    if inside.cuda_devices is None or inside.peers is None:
        why = "CUDA cannot be used in it" if inside.cuda_devices is None else "its probe is of an older vgpuctl"
        yield not_looked("", wanted, f"the guest copied nothing between its GPUs: {why}")
        return
    tried = {(one.source, one.target): one for one in inside.peers}
    failed = {pair: problem for pair in pairs if pair in tried and (problem := tried[pair].problem) is not None}
    untried = [pair for pair in pairs if pair not in tried]
    if failed:
        found = f"{len(failed)} failed, {_named(failed)}; the first: {next(iter(failed.values()))}"
        yield RowAnswer("", False, wanted, found, remedy=_PEERS)
    elif untried:
        yield not_looked("", wanted, f"the guest did not try {len(untried)} of them, {_named(untried)}")
    else:
        slowest = min(tried[pair].mib_s or 0 for pair in pairs)
        kind = "nvlink" if slowest > _PCIE_MOST_MIB_S else "pcie"
        yield RowAnswer("", True, wanted, f"{wanted}, the slowest at {slowest} MiB/s ({kind})")


def _named(pairs: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{source} to {target}" for source, target in pairs)


def _vgpus(promised: Promised, seen: Witnessed) -> Iterator[tuple[Lease, MeasuredShare | NotLookedAt]]:
    """Each lease of a vGPU with its readings. The host's driver shows nothing of a whole card that a guest has."""
    for lease in promised.leases:
        if takes_card(lease.share) or lease.share.type_id is None:
            continue
        if isinstance(seen.nvml, NotLookedAt):
            yield lease, seen.nvml
            continue
        found = next((one for one in seen.nvml if one.lease.id == lease.id), MeasuredShare(lease, None))
        yield lease, found


def _inside(promised: Promised, seen: Witnessed) -> Iterator[tuple[Lease, InsideGpu | None]]:
    """Each lease with the GPU of the guest that is it, None where the guest shows none; nothing of a silent guest."""
    if isinstance(seen.guest, NotLookedAt):
        return
    left = list(seen.guest.gpus)
    for lease in promised.leases:
        found = next((gpu for gpu in left if takes_card(lease.share) or _is_type(gpu, lease.share.profile)), None)
        if found is not None:
            left.remove(found)
        yield lease, found


def _is_type(gpu: InsideGpu, profile: str) -> bool:
    """nvidia-smi in the guest names a vGPU by its type: `NVIDIA A40-8Q`."""
    return gpu.name is not None and gpu.name.rpartition(" ")[2] == profile.rpartition(" ")[2]


def _memory(lease: Lease, mib: int, witness: Witness) -> RowAnswer:
    promised = lease.share.framebuffer_mib or 0
    is_kept = promised * _KEPT_MEMORY <= mib <= promised
    remedy = _GPUS
    return RowAnswer(lease.share.profile, is_kept, f"{promised} MiB", f"{mib} MiB", "", remedy, witness)


def _driver_by_guest(guest: SeenInside | NotLookedAt, version: str) -> RowAnswer:
    wanted = f"driver {version}"
    if isinstance(guest, NotLookedAt):
        return not_looked("whole card", wanted, f"only the guest can tell: {guest.why}", Witness.GUEST)
    is_kept = guest.driver is not None and _is_version(guest.driver, version)
    return RowAnswer("whole card", is_kept, wanted, guest.driver or "none", "", _DRIVER, Witness.GUEST)


def _is_version(told: str, wanted: str) -> bool:
    """True if a version is the wanted one, or one of the wanted branch: `580.95.05` is of `580`."""
    return told == wanted or told.startswith(f"{wanted}.")


def _can_tell(measured: Measured, name: str) -> bool:
    """True if the host's driver has this measure at all."""
    return not (measured.why_missing(name) or "").startswith(NOT_MEASURABLE)


def _missing(measured: Measured, name: str) -> str:
    return measured.why_missing(name) or "the host's driver shows no such vGPU"
