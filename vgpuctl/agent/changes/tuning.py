# SPDX-License-Identifier: Apache-2.0
"""Set power limit, clocks, ECC and compute mode of a GPU. No VM is disturbed; ECC counts after a reset or reboot."""

from typing import Any, Callable, Optional

from vgpuctl.agent.facts import clock_notes, nvml_tuning, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, required
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.tuning import (
    COMPUTE_MODES,
    UNLOCKED,
    ClockStep,
    GpuTuning,
    SetComputeMode,
    SetEccMode,
    SetMemoryClocks,
    SetPowerLimit,
    clocks_in_words,
    watts,
)


def ensure_power_limit(host: Host, step: SetPowerLimit, *, dry_run: bool) -> Change:
    """Set the power limit. Raises Problem: `setting-missing`, `setting-refused`, NVML's."""
    pci.require(host, step.address)
    with required(host) as nvml:
        device = nvml.device(step.address)
        before = _read(nvml, device, step.address)
        found = _told(before, "power_limit_mw", "power limit", step.address)
        wanted = step.limit_mw
        if wanted is None:
            wanted = _told(before, "power_default_mw", "default power limit", step.address)
        _require(before.refuse_power_limit(wanted), step.address)
        if found == wanted:
            return Change(step.op, step.address, watts(found), watts(found), changed=False)
        if not dry_run:

            def write() -> None:
                nvml.library.nvmlDeviceSetPowerManagementLimit(device, wanted)

            after = _write(host, nvml, device, step.address, f"setting its power limit to {watts(wanted)}", write)
            _compare(step.address, watts(wanted), watts(after.power_limit_mw or 0))
    return Change(step.op, step.address, watts(found), watts(wanted), changed=True)


def ensure_clocks(host: Host, step: ClockStep, *, dry_run: bool) -> Change:
    """Lock or unlock clocks. NVML does not tell the lock, so what was set last in this boot counts as found.

    Raises Problem: `setting-missing`, `setting-refused`, NVML's.
    """
    pci.require(host, step.address)
    domain = step.domain
    lowest, highest = wanted = step.clocks_mhz
    if lowest > highest or lowest < 0:
        _require(f"{lowest}-{highest} is no range of {domain.name}", step.address)
    with required(host) as nvml:
        device = nvml.device(step.address)
        tuning = _read(nvml, device, step.address)
        if wanted != UNLOCKED and not tuning.supported(domain):
            _told(tuning, domain.supported, f"list of {domain.name}", step.address)
        _require(tuning.refuse_clocks(wanted, domain), step.address)
        key = clock_notes.key_of(step.address, domain)
        before = clock_notes.confirmed(clock_notes.read(host).get(key), nvml_tuning.read_clock(nvml, device, domain))
        words = clocks_in_words(wanted)
        if before == wanted:
            return Change(step.op, step.address, words, words, changed=False)
        if not dry_run:
            host.writes += 1
            with nvml.refusals(f"setting the {domain.name} of {step.address}: {words}"):
                _lock(nvml.library, device, step)
            clock_notes.write(host, key, wanted)
    return Change(step.op, step.address, clocks_in_words(before), words, changed=True)


def _lock(library: Any, device: Any, step: ClockStep) -> None:
    is_memory = isinstance(step, SetMemoryClocks)
    if step.clocks_mhz == UNLOCKED:
        unlock = library.nvmlDeviceResetMemoryLockedClocks if is_memory else library.nvmlDeviceResetGpuLockedClocks
        unlock(device)
    else:
        lock = library.nvmlDeviceSetMemoryLockedClocks if is_memory else library.nvmlDeviceSetGpuLockedClocks
        lock(device, *step.clocks_mhz)


def ensure_ecc(host: Host, step: SetEccMode, *, dry_run: bool) -> Change:
    """Switch ECC on or off from the next reset or reboot on. Raises Problem: `setting-missing`, NVML's."""
    pci.require(host, step.address)
    with required(host) as nvml:
        device = nvml.device(step.address)
        before = _read(nvml, device, step.address)
        current = _told(before, "ecc", "ECC", step.address)
        found = ecc_in_words(current, before.ecc_pending)
        if before.ecc_pending == step.enabled:
            return Change(step.op, step.address, found, found, changed=False)
        wanted = ecc_in_words(current, step.enabled)
        if not dry_run:

            def write() -> None:
                nvml.library.nvmlDeviceSetEccMode(device, int(step.enabled))

            what = f"switching its ECC {'on' if step.enabled else 'off'}"
            after = _write(host, nvml, device, step.address, what, write)
            _compare(step.address, wanted, ecc_in_words(bool(after.ecc), after.ecc_pending))
    return Change(step.op, step.address, found, wanted, changed=True)


def ensure_compute_mode(host: Host, step: SetComputeMode, *, dry_run: bool) -> Change:
    """Set the compute mode. Raises Problem: `setting-missing`, `setting-refused`, NVML's."""
    pci.require(host, step.address)
    if step.mode not in COMPUTE_MODES:
        _require(f"{step.mode!r} is none of {', '.join(COMPUTE_MODES)}", step.address)
    with required(host) as nvml:
        device = nvml.device(step.address)
        before = _read(nvml, device, step.address)
        found = _told(before, "compute_mode", "compute mode", step.address)
        if found == step.mode:
            return Change(step.op, step.address, found, found, changed=False)
        if not dry_run:

            def write() -> None:
                nvml.library.nvmlDeviceSetComputeMode(device, COMPUTE_MODES[step.mode])

            what = f"setting its compute mode to {step.mode}"
            after = _write(host, nvml, device, step.address, what, write)
            _compare(step.address, step.mode, after.compute_mode or "unknown")
    return Change(step.op, step.address, found, step.mode, changed=True)


def ecc_in_words(current: bool, pending: Optional[bool]) -> str:
    """Say an ECC mode as `enabled`, or `disabled, enabled pending`."""
    words = "enabled" if current else "disabled"
    return (
        words if pending is None or current == pending else f"{words}, {'enabled' if pending else 'disabled'} pending"
    )


def _read(nvml: Nvml, device: Any, address: str) -> GpuTuning:
    with nvml.refusals(f"reading the settings of {address}"):
        return nvml_tuning.read(nvml, device)


def _write(host: Host, nvml: Nvml, device: Any, address: str, what: str, write: Callable[[], None]) -> GpuTuning:
    host.writes += 1
    with nvml.refusals(f"{address}: {what}"):
        write()
    return _read(nvml, device, address)


def _told(tuning: GpuTuning, name: str, what: str, address: str) -> Any:
    """Return a setting that the GPU has and that could be read. Raises Problem `setting-missing`, `unreadable`."""
    problem = tuning.why_unread(name)
    if problem is not None:
        raise Problem(ProblemCode.UNREADABLE, f"{address}: {problem}")
    found = getattr(tuning, name)
    if found in (None, ()):
        raise Problem(ProblemCode.SETTING_MISSING, f"{address} has no {what}, or its driver does not tell it")
    return found


def _require(refusal: Optional[str], address: str) -> None:
    if refusal is not None:
        raise Problem(ProblemCode.SETTING_REFUSED, f"{address}: {refusal}")


def _compare(address: str, wanted: str, found: str) -> None:
    if wanted != found:
        raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{address} accepted {wanted} but reads {found}")
