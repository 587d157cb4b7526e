# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode of a card, and the steps that set them. Python 3.9, standard library only.

The driver keeps the ECC mode in the card's InfoROM, and it counts after the next reset or reboot. The driver forgets
the others when it is unloaded or the card is reset.
"""

from typing import ClassVar, Dict, Optional, Tuple, Union

from vgpuctl.agent.wire.values import dataclass

COMPUTE_MODES: Dict[str, int] = {"default": 0, "prohibited": 2, "exclusive-process": 3}
"""Numbers of nvmlComputeMode_t; NVIDIA has removed number 1, `exclusive-thread`."""
Clocks = Tuple[int, int]
UNLOCKED: Clocks = (0, 0)
"""Stands for clocks that the driver chooses itself."""


@dataclass(frozen=True)
class ClockDomain:
    """One of a board's clocks that its driver locks to a range. name: in words.

    locked, supported: the fields of GpuTuning with the range and the board's clocks.
    """

    name: str
    locked: str
    supported: str


GPU_CLOCKS = ClockDomain("clocks", "locked_clocks_mhz", "clocks")
MEMORY_CLOCKS = ClockDomain("memory clocks", "locked_memory_clocks_mhz", "memory_clocks")


@dataclass(frozen=True)
class ClockRun:
    """Clocks in MHz from `first` to `last`, `step` apart; both ends are among them."""

    first: int
    last: int
    step: int

    def has(self, clock_mhz: int) -> bool:
        """Tell whether a clock is one of them."""
        return self.first <= clock_mhz <= self.last and (clock_mhz - self.first) % max(self.step, 1) == 0

    def nearest(self, clock_mhz: int) -> Tuple[int, ...]:
        """Return those on both sides of a clock; one where it lies outside or is one of them."""
        if clock_mhz <= self.first:
            return (self.first,)
        if clock_mhz >= self.last:
            return (self.last,)
        # A host may say anything.
        step = max(self.step, 1)
        below = clock_mhz - (clock_mhz - self.first) % step
        return (below,) if below == clock_mhz else (below, below + step)


@dataclass(frozen=True)
class UnreadSetting:
    """A setting that could not be read. name: its field of GpuTuning, whose value then says nothing."""

    name: str
    problem: str


@dataclass(frozen=True)
class GpuTuning:
    """Power limit, clocks, ECC and compute mode of one GPU, as NVML tells them. None and empty: the GPU has none.

    power_limits_mw: least and most that the board takes. locked_clocks_mhz: the range that the agent has locked the
    clocks to since the driver took the card, (0, 0) where it has unlocked them; None where nobody knows, for NVML does
    not tell it. clocks: those that the board supports, ascending. locked_memory_clocks_mhz, memory_clocks: the same of
    the memory. ecc: as it is in effect; ecc_pending: after the next reset. compute_mode: a key of COMPUTE_MODES.
    persistence: the driver stays with the card while nothing has it open. unread: what did not answer.
    """

    power_limit_mw: Optional[int] = None
    power_default_mw: Optional[int] = None
    power_limits_mw: Optional[Tuple[int, int]] = None
    locked_clocks_mhz: Optional[Clocks] = None
    clocks: Tuple[ClockRun, ...] = ()
    ecc: Optional[bool] = None
    ecc_pending: Optional[bool] = None
    compute_mode: Optional[str] = None
    persistence: Optional[bool] = None
    unread: Tuple[UnreadSetting, ...] = ()
    locked_memory_clocks_mhz: Optional[Clocks] = None
    memory_clocks: Tuple[ClockRun, ...] = ()

    def why_unread(self, *names: str) -> Optional[str]:
        """Say why one of these settings could not be read; None where all of them could."""
        return "; ".join(one.problem for one in self.unread if one.name in names) or None

    def refuse_power_limit(self, limit_mw: int) -> Optional[str]:
        """Say why the board does not take a power limit; None where it does, or does not tell its bounds."""
        if self.power_limits_mw is None or self.power_limits_mw[0] <= limit_mw <= self.power_limits_mw[1]:
            return None
        least, most = self.power_limits_mw
        return f"{watts(limit_mw)} is outside what the board takes, {watts(least)} to {watts(most)}"

    def locked(self, domain: ClockDomain) -> Optional[Clocks]:
        """Return the range that clocks are locked to, as of `locked_clocks_mhz`."""
        found: Optional[Clocks] = getattr(self, domain.locked)
        return found

    def supported(self, domain: ClockDomain) -> Tuple[ClockRun, ...]:
        """Return the clocks that the board supports."""
        found: Tuple[ClockRun, ...] = getattr(self, domain.supported)
        return found

    def refuse_clocks(self, clocks_mhz: Clocks, domain: ClockDomain = GPU_CLOCKS) -> Optional[str]:
        """Say why the board does not take a range of clocks; None where it does, or does not tell its clocks."""
        runs = self.supported(domain)
        wrong = [one for one in clocks_mhz if not any(run.has(one) for run in runs)]
        if not wrong or not runs or clocks_mhz == UNLOCKED:
            return None
        near = {one for run in runs for one in run.nearest(wrong[0])}
        named = " and ".join(str(one) for one in sorted(near, key=lambda one: (abs(one - wrong[0]), one))[:2])
        least, most = runs[0].first, runs[-1].last
        return (
            f"{wrong[0]} MHz is not among the {domain.name} of the board, which are {least} to {most} MHz;"
            f" nearest: {named}"
        )


def watts(milliwatts: int) -> str:
    """Write a power as `250 W`."""
    return f"{milliwatts / 1000:g} W"


def clocks_in_words(clocks_mhz: Optional[Clocks]) -> str:
    """Write a range of clocks as `1200-1700 MHz`."""
    if clocks_mhz is None:
        return "unknown"
    lowest, highest = clocks_mhz
    if clocks_mhz == UNLOCKED:
        return "not locked"
    return f"{lowest} MHz" if lowest == highest else f"{lowest}-{highest} MHz"


def runs_of(clocks_mhz: Tuple[int, ...]) -> Tuple[ClockRun, ...]:
    """Return clocks as runs of equal steps, ascending."""
    found: Tuple[ClockRun, ...] = ()
    for clock in sorted(set(clocks_mhz)):
        last = found[-1] if found else None
        if last is not None and (last.first == last.last or clock - last.last == last.step):
            found = (*found[:-1], ClockRun(last.first, clock, clock - last.last))
        else:
            found = (*found, ClockRun(clock, clock, 1))
    return found


@dataclass(frozen=True)
class SetPowerLimit:
    """Set the power limit of a GPU: NVML `nvmlDeviceSetPowerManagementLimit`. limit_mw: None for the default."""

    op: ClassVar[str] = "gpu.set-power-limit"
    address: str
    limit_mw: Optional[int]


@dataclass(frozen=True)
class SetGpuClocks:
    """Lock the clocks of a GPU to a range, or unlock them with (0, 0): NVML `nvmlDeviceSetGpuLockedClocks`."""

    op: ClassVar[str] = "gpu.set-clocks"
    domain: ClassVar[ClockDomain] = GPU_CLOCKS
    address: str
    clocks_mhz: Tuple[int, int]


@dataclass(frozen=True)
class SetMemoryClocks:
    """Lock the clocks of a GPU's memory likewise: NVML `nvmlDeviceSetMemoryLockedClocks`, from Ampere on."""

    op: ClassVar[str] = "gpu.set-memory-clocks"
    domain: ClassVar[ClockDomain] = MEMORY_CLOCKS
    address: str
    clocks_mhz: Tuple[int, int]


@dataclass(frozen=True)
class SetEccMode:
    """Switch ECC of a GPU on or off: NVML `nvmlDeviceSetEccMode`. It counts after the next reset or reboot."""

    op: ClassVar[str] = "gpu.set-ecc"
    address: str
    enabled: bool


@dataclass(frozen=True)
class SetComputeMode:
    """Set which processes of the host may compute on a GPU: NVML `nvmlDeviceSetComputeMode`."""

    op: ClassVar[str] = "gpu.set-compute-mode"
    address: str
    mode: str


@dataclass(frozen=True)
class KeepPowerLimit:
    """Have the boot unit set a power limit that a controller tried and kept. limit_mw: None for none."""

    op: ClassVar[str] = "gpu.keep-power-limit"
    address: str
    limit_mw: Optional[int]


ClockStep = Union[SetGpuClocks, SetMemoryClocks]
TuningStep = Union[SetPowerLimit, SetGpuClocks, SetEccMode, SetComputeMode, SetMemoryClocks, KeepPowerLimit]
TUNING_STEPS = (SetPowerLimit, SetGpuClocks, SetEccMode, SetComputeMode, SetMemoryClocks, KeepPowerLimit)
