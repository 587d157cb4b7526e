# SPDX-License-Identifier: Apache-2.0
"""Evaluation of the readings of GPUs' health: findings with stable codes.

States, such as a row that waits for its spare, are findings whenever they are there. Counters and the log only ever
grow, so of them only what is new since the reading before is a finding.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.health import OFF_THE_BUS, GpuHealth, HostHealth, Xid
from vgpuctl.agent.wire.vf_health import DRIVER
from vgpuctl.model.faults import remedy_of
from vgpuctl.model.health import HealthCode, HealthFinding
from vgpuctl.model.restriction import Restriction, restrictions_on
from vgpuctl.sharing.xids import asks_itself, classify, strays

_LOG_OF_BOOT_S = 5.0
"""The kernel's first line of a boot has a time before this."""

START_S = 180.0
"""A host that was booted may need so long until its driver tells the health of every GPU: NVML knows none before."""


# Drivers that hold a card for somebody else: they do not know whether it works.
_STAND_INS = ("vfio-pci", "xe-vfio-pci", "pci-pf-stub", "pci-stub")

_CODES = {str(one): one for one in HealthCode}


def finding(code: HealthCode, device: str, text: str) -> HealthFinding:
    """A finding with the remedy of its code."""
    return HealthFinding(code, device, text, remedy_of(code))


def gpu_of(health: HostHealth, address: str, uuid: str | None = None) -> GpuHealth | None:
    """The reading of a card: by its UUID wherever it is now, else by its address."""
    by_uuid = (gpu for gpu in health.gpus if uuid is not None and gpu.uuid == uuid)
    at_address = (gpu for gpu in health.gpus if gpu.address == address and None in (uuid, gpu.uuid))
    return next(by_uuid, None) or next(at_address, None)


def findings_of(now: HostHealth, address: str, before: HostHealth | None) -> list[HealthFinding]:
    """Everything found about one GPU: its states, and what is new since the reading before.

    before: None if there is none; all Xids of this boot then count as new.
    """
    gpu = gpu_of(now, address)
    if gpu is None:
        return [finding(HealthCode.GPU_MISSING, address, f"the host shows no GPU at {address}")]
    earlier = gpu_of(before, gpu.address, gpu.uuid) if before is not None else None
    same_boot = before is not None and before.boot_id == now.boot_id
    return [*_states(now, gpu), *_growth(gpu, earlier, same_boot=same_boot)]


def conditions_of(now: HostHealth, host: str, gpu: Gpu, restrictions: Sequence[Restriction]) -> list[HealthFinding]:
    """Everything that is wrong with one GPU now: its states, and the findings that keep it or its VFs in quarantine.

    A finding of the log or of a counter counts until its quarantine is released: no later reading shows it.
    restrictions: of the whole fleet.
    """
    found = findings_of(now, gpu.address, now)
    of_functions = [(function.address, None) for function in gpu.vfs]
    for device, uuid in [(gpu.address, gpu.uuid), *of_functions]:
        for one in restrictions_on(restrictions, host, device, uuid):
            code = _CODES.get(one.finding or "")
            if code is not None and all((other.code, other.device) != (code, device) for other in found):
                found.append(finding(code, device, one.reason))
    return found


def tells_not_yet(now: HostHealth) -> list[HealthFinding]:
    """The values that a host cannot tell yet because it was booted a moment ago; empty for any other host.

    The next reading may have them. Until then such a GPU is not handed out, and it does not go into quarantine either.
    """
    if now.read_at_s >= START_S:
        return []
    return [one for gpu in now.gpus for one in _states(now, gpu) if one.code is HealthCode.UNREAD]


def with_what_is_told(now: HostHealth) -> HostHealth:
    """The reading without what could not be read: the one to compare the next with while a host starts."""
    return replace(now, gpus=tuple(replace(gpu, unread=()) for gpu in now.gpus), unread=())


def has_whole_log(now: HostHealth, before: HostHealth | None) -> bool:
    """True if the kernel's log goes back to the reading before, or to the boot: it shows every Xid since then."""
    same_boot = before is not None and before.boot_id == now.boot_id
    return now.log_begins_s <= max(before.read_at_s if before is not None and same_boot else 0.0, _LOG_OF_BOOT_S)


def news(now: HostHealth, before: HostHealth | None) -> list[HealthFinding]:
    """The findings that are new, about every GPU of the host, by address."""
    found: list[HealthFinding] = []
    for gpu in now.gpus:
        earlier = gpu_of(before, gpu.address, gpu.uuid) if before is not None else None
        known = {one.code for one in _states(before, earlier)} if before is not None and earlier is not None else set()
        found += [one for one in findings_of(now, gpu.address, before) if one.code not in known]
    if before is not None and not now.unread:
        found += [
            finding(HealthCode.GPU_MISSING, gpu.address, f"GPU {gpu.uuid or gpu.address} is no longer on the host")
            for gpu in before.gpus
            if gpu_of(now, gpu.address, gpu.uuid) is None
        ]
    return found


def with_last_known(now: HostHealth, before: HostHealth | None) -> HostHealth:
    """The reading with what a card does not tell now but told before: the one to compare the next reading with.

    A whole card that a VM has is on vfio-pci, where nobody tells its UUID, VBIOS, and counts of its life.
    """
    if before is None:
        return now
    return replace(now, gpus=tuple(_with_last_known(gpu, gpu_of(before, gpu.address, gpu.uuid)) for gpu in now.gpus))


def _with_last_known(gpu: GpuHealth, before: GpuHealth | None) -> GpuHealth:
    if before is None or before.kernel_ids != gpu.kernel_ids:
        return gpu
    return replace(
        gpu,
        uuid=gpu.uuid or before.uuid,
        vbios=gpu.vbios or before.vbios,
        volatile=gpu.volatile or before.volatile,
        aggregate=gpu.aggregate or before.aggregate,
        retired=gpu.retired or before.retired,
    )


def _states(host: HostHealth, gpu: GpuHealth) -> Iterator[HealthFinding]:
    for code, text in (*_states_on_the_bus(gpu), *_states_of_memory(gpu)):
        yield finding(code, gpu.address, text)
    if host.scrubs_memory is False and gpu.driver == DRIVER:
        yield finding(HealthCode.SCRUB_OFF, gpu.address, "the driver does not clear memory that is freed")
    for text in (*gpu.unread, *host.unread):
        yield finding(HealthCode.UNREAD, gpu.address, text)


def _states_on_the_bus(gpu: GpuHealth) -> Iterator[tuple[HealthCode, str]]:
    if gpu.config_ids == OFF_THE_BUS:
        yield HealthCode.OFF_THE_BUS, "its config space reads as all ones"
    elif gpu.nvml_state == "lost":
        yield HealthCode.OFF_THE_BUS, "NVML says that the GPU is lost"
    elif gpu.config_ids is not None and gpu.config_ids != gpu.kernel_ids:
        yield HealthCode.CONFIG_DIFFERS, f"its config space has {gpu.config_ids}, the kernel found {gpu.kernel_ids}"
    lost = [str(bar.number) for bar in gpu.bars if not bar.is_assigned]
    if lost and gpu.config_ids != OFF_THE_BUS:
        yield HealthCode.BAR_UNASSIGNED, f"BAR {', '.join(lost)} has no address"


def _states_of_memory(gpu: GpuHealth) -> Iterator[tuple[HealthCode, str]]:
    if gpu.nvml_state == "reset-required":
        yield HealthCode.RESET_REQUIRED, "NVML says that the GPU needs a reset"
    if gpu.remapped is not None and gpu.remapped.has_failed:
        yield HealthCode.ROW_REMAP_FAILED, "no spare row was left for a memory row"
    if gpu.remapped is not None and gpu.remapped.is_pending:
        yield HealthCode.ROW_REMAP_PENDING, "a memory row waits for its spare row until the next reset"
    if gpu.retired is not None and gpu.retired.is_pending:
        yield HealthCode.PAGE_RETIREMENT_PENDING, "a memory page is retired at the next reset"


def _growth(gpu: GpuHealth, before: GpuHealth | None, *, same_boot: bool) -> Iterator[HealthFinding]:
    """Counters that have grown since the reading before; those of the whole boot without one."""
    errors = _new_errors(gpu, before, same_boot=same_boot)
    if errors:
        yield finding(HealthCode.ECC_UNCORRECTED, gpu.address, f"{errors} new uncorrected memory errors")
    if gpu.retired is not None and before is not None and before.retired is not None:
        pages = gpu.retired.double_bit - before.retired.double_bit
        if pages > 0:
            yield finding(HealthCode.PAGES_RETIRED, gpu.address, f"{pages} more memory pages are retired")
    if before is not None and None not in (gpu.vbios, before.vbios) and gpu.vbios != before.vbios:
        yield finding(HealthCode.VBIOS_CHANGED, gpu.address, f"VBIOS {gpu.vbios}, before {before.vbios}")
    earlier = before if same_boot else None
    failed_until = max((one.at_s for one in earlier.driver_failures), default=-1.0) if earlier is not None else -1.0
    failures = [one.text for one in gpu.driver_failures if one.at_s > failed_until]
    if failures and not _is_served(gpu):
        times = f"{len(failures)} times, the last one: " if len(failures) > 1 else ""
        yield finding(HealthCode.DRIVER_FAILED, gpu.address, f"{times}{failures[-1]}")
    seen_until = max((one.at_s for one in earlier.xids), default=-1.0) if earlier is not None else -1.0
    yield from _new_xids(gpu, [xid for xid in gpu.xids if xid.at_s > seen_until])


def looks_where(gpu: GpuHealth, reason: str) -> bool:
    """True if a reading looked at what could not be read before, as the reason of a quarantine says it.

    NVML is not asked about a card that its driver does not have, so such a reading says nothing of what NVML tells.
    """
    return _is_served(gpu) or "NVML" not in reason


def _is_served(gpu: GpuHealth) -> bool:
    """True if the card's own driver has it and it answers: that the driver gave it up before is then history."""
    answers = gpu.config_ids not in (None, OFF_THE_BUS) and gpu.nvml_state is None and not gpu.unread
    return answers and gpu.driver is not None and gpu.driver not in _STAND_INS


def _new_xids(gpu: GpuHealth, new: Sequence[Xid]) -> Iterator[HealthFinding]:
    """One finding for each code: a program in a guest can cause the same Xid a thousand times.

    By time, but what the driver wants now comes first: it is the remedy that counts, and the reason of a quarantine.
    """
    counts = Counter(xid.code for xid in new)
    last = {xid.code: xid for xid in new}
    for code in sorted(set(counts) - strays(counts), key=lambda one: (not asks_itself(last[one]), last[one].at_s)):
        times = f"{counts[code]} times, the last one: " if counts[code] > 1 else ""
        yield finding(classify(code, last[code].text), gpu.address, f"Xid {code}: {times}{last[code].text}")


def _new_errors(gpu: GpuHealth, before: GpuHealth | None, *, same_boot: bool) -> int:
    """Uncorrected errors since the reading before. A driver that is loaded again begins its volatile count again."""
    if before is not None and gpu.aggregate is not None and before.aggregate is not None:
        return max(0, gpu.aggregate.uncorrected - before.aggregate.uncorrected)
    if gpu.volatile is None:
        return 0
    known = before.volatile.uncorrected if same_boot and before is not None and before.volatile is not None else 0
    return gpu.volatile.uncorrected - known if gpu.volatile.uncorrected >= known else gpu.volatile.uncorrected
