# SPDX-License-Identifier: Apache-2.0
"""Sensors of a machine's GPUs and vGPUs: they follow a scenario's curves, else the running VMs.

Values without a curve are equal for equal states, in proportion to the running VMs; counters grow with time.
"""

import zlib

from vgpuctl.agent.wire.measure_states import CLOCK_EVENTS, RECOVERY_ACTIONS
from vgpuctl_lab.simulated.machine import curves as played
from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.readings import REMAP_PENDING, ecc_errors
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import GpuInstance, MachineFolder, State, Vgpu

_IDLE_C, _IDLE_SHARE = 34, 0.11
SLOWDOWN_C = 92
_MIB = 1 << 20
_IDLE_SM_MHZ, _SM_MHZ = 210, 1740
IDLE_MEMORY_MHZ, MEMORY_MHZ = 405, 7251
GPU_CLOCKS_MHZ = tuple(range(_IDLE_SM_MHZ, _SM_MHZ + 1, 15))
_BOARDS_WITH_HBM = ("A100", "A30", "H100", "H200", "H20", "H800", "B200", "B300")


class Sensors:
    """The sensors of a machine at one moment."""

    def __init__(self, machine: MachineFolder) -> None:
        self.state: State = machine.state()
        self.now = self.state.now()
        self._curves = played.read(machine.root)

    def of_gpu(self, card: CardShape, measure: str) -> float | None:
        """The value of a GPU's measure by its curve, None without one."""
        return self._curves.value(f"gpu:{card.address}", measure, self.now)

    def of_instance(self, instance: GpuInstance, measure: str) -> float | None:
        """The value of a GPU instance's measure by its curve, None without one."""
        return self._curves.value(f"gpu_instance:{instance.card}/{instance.id}", measure, self.now)

    def of_vgpu(self, vgpu: Vgpu, measure: str) -> float | None:
        """The value of a vGPU's measure by its curve, None without one."""
        return self._curves.value(f"vgpu:{vgpu.uuid or vgpu.function}", measure, self.now)

    def of_vm(self, vm_uuid: str, measure: str) -> float | None:
        """The value of a VM's measure by its curve, None without one."""
        return self._curves.value(f"vm:{vm_uuid}", measure, self.now)

    def labels_of_gpu(self, card: CardShape, measure: str) -> dict[str, float]:
        """The values of a GPU's measure by label, of those that have curves."""
        return dict(self._curves.labelled(f"gpu:{card.address}", measure, self.now))

    def labels_of_vgpu(self, vgpu: Vgpu, measure: str) -> dict[str, float]:
        """The values of a vGPU's measure by label, of those that have curves."""
        return dict(self._curves.labelled(f"vgpu:{vgpu.uuid or vgpu.function}", measure, self.now))

    def vgpu_share(self, vgpu: Vgpu, measure: str = "utilization_ratio") -> float:
        """How busy one vGPU keeps an engine of its card: 10 to 49 per cent while its VM runs, by the VM's UUID."""
        holder = self.state.holder_of(vgpu)
        if holder is None:
            return 0.0
        share = self.of_vgpu(vgpu, measure)
        if share is not None:
            return min(max(share, 0.0), 1.0)
        if measure == "memory_activity_ratio":
            return self.vgpu_share(vgpu) / 2
        # The video engines idle unless a scenario says otherwise.
        return self._unplayed_share(vgpu) if measure == "utilization_ratio" else 0.0

    def _unplayed_share(self, vgpu: Vgpu) -> float:
        """The compute time of a vGPU without a curve: its demand, less if all demands exceed the free time."""
        together = [one for one in self.state.vgpus if (one.card, one.instance) == (vgpu.card, vgpu.instance)]
        played_shares = [self.of_vgpu(one, "utilization_ratio") for one in together]
        left = max(1 - sum(share for share in played_shares if share is not None), 0.0)
        demands = sum(self._demand(one) for one, share in zip(together, played_shares, strict=True) if share is None)
        return self._demand(vgpu) * min(1.0, left / demands) if demands else 0.0

    def _demand(self, vgpu: Vgpu) -> float:
        holder = self.state.holder_of(vgpu)
        return 0.0 if holder is None else (10 + zlib.crc32(holder.encode()) % 40) / 100

    def gpu_share(self, card: CardShape, measure: str = "utilization_ratio") -> float:
        """How busy an engine of a card is: each running VM adds its own part, up to all."""
        share = self.of_gpu(card, measure)
        if share is None:
            share = sum(self.vgpu_share(vgpu, measure) for vgpu in self.state.vgpus_of(card))
        return min(max(share, 0.0), 1.0)

    def instance_share(self, instance: GpuInstance, measure: str = "utilization_ratio") -> float:
        """How busy a GPU instance is, as a part of itself."""
        share = self.of_instance(instance, measure)
        if share is None:
            inside = [one for one in self.state.vgpus if (one.card, one.instance) == (instance.card, instance.id)]
            share = sum(self.vgpu_share(one, measure) for one in inside)
        return min(max(share, 0.0), 1.0)

    def power_w(self, card: CardShape) -> float:
        """The power draw of a card, 0 where its board's figure is unknown."""
        if not card.power_w:
            return 0.0
        told = self.of_gpu(card, "power_watts")
        share = _IDLE_SHARE + (1 - _IDLE_SHARE) * self.gpu_share(card)
        limit_w = (modes.tuning(self.state, card).power_mw or card.power_w * 1000) / 1000
        return min(card.power_w * share, limit_w) if told is None else told

    def energy_j(self, card: CardShape) -> float:
        """The energy since the machine's start; it never falls."""
        told = self.of_gpu(card, "energy_joules")
        if told is not None:
            return told
        # The mean of idle and full power, whatever the load was.
        power_w = card.power_w * 0.5
        played_j = self._curves.integral(f"gpu:{card.address}", "power_watts", self.now)
        if played_j is None:
            return power_w * self.uptime_s()
        return power_w * max(self._curves.started_at - self.state.booted_at, 0.0) + played_j

    def vgpu_run_s(self, vgpu: Vgpu) -> float:
        """How long a vGPU has had the compute engine since its VM's start."""
        holder = self.state.holder_of(vgpu)
        if holder is None:
            return 0.0
        target = f"vgpu:{vgpu.uuid or vgpu.function}"
        played_s = self._curves.integral(target, "utilization_ratio", self.now)
        age_s = max(self.now - self.state.domains[holder].started_at, 0.0)
        return self._demand(vgpu) * age_s if played_s is None else played_s

    def uptime_s(self) -> float:
        """Seconds since the machine's start."""
        return max(self.now - self.state.booted_at, 0.0)

    def temperature_c(self, card: CardShape) -> int:
        """How warm a card is."""
        told = self.of_gpu(card, "temperature_celsius")
        return round(_IDLE_C + self.gpu_share(card) * 45 if told is None else told)

    def memory_temperature_c(self, card: CardShape) -> int | None:
        """How warm a card's memory is, None of boards whose memory has no sensor: those without HBM."""
        told = self.of_gpu(card, "memory_temperature_celsius")
        if told is None and not has_hbm(card):
            return None
        return round(self.temperature_c(card) + 8 if told is None else told)

    def slowdown_c(self, card: CardShape) -> int:
        """The temperature of the core at which the hardware slows down."""
        return round(self.of_gpu(card, "slowdown_temperature_celsius") or SLOWDOWN_C)

    def sm_clock_mhz(self, card: CardShape) -> int:
        """The clock of the streaming multiprocessors: low while idle or too hot."""
        told = self.of_gpu(card, "sm_clock_hertz")
        if told is not None:
            return round(told / 1e6)
        lowest, highest = modes.tuning(self.state, card).clocks_mhz or (_IDLE_SM_MHZ, _SM_MHZ)
        if self.clock_events(card) & 0x68:
            return min(_SM_MHZ // 2, highest)
        return highest if self.gpu_share(card) else lowest

    def memory_clock_mhz(self, card: CardShape) -> int:
        """The clock of the memory."""
        told = self.of_gpu(card, "memory_clock_hertz")
        locked = modes.tuning(self.state, card).memory_mhz or (MEMORY_MHZ, MEMORY_MHZ)
        return locked[1] if told is None else round(told / 1e6)

    def clock_events(self, card: CardShape) -> int:
        """The bits of reasons that slow the clocks: idle, power at its limit, heat; or those of curves."""
        bits = 0
        if not self.gpu_share(card):
            bits |= CLOCK_EVENTS["gpu_idle"]
        limit_mw = modes.tuning(self.state, card).power_mw or card.power_w * 1000
        if card.power_w and self.power_w(card) * 1000 >= limit_mw:
            bits |= CLOCK_EVENTS["sw_power_cap"]
        if self.temperature_c(card) >= self.slowdown_c(card):
            bits |= CLOCK_EVENTS["hw_slowdown"] | CLOCK_EVENTS["hw_thermal"]
        for reason, value in self.labels_of_gpu(card, "clock_event").items():
            bit = CLOCK_EVENTS.get(reason, 0)
            bits = bits | bit if value >= 0.5 else bits & ~bit
        return bits

    def ecc_errors(self, card: CardShape, severity: str) -> int:
        """ECC errors: those of the fault `ecc` are uncorrected."""
        told = self.labels_of_gpu(card, "ecc_errors").get(severity)
        if told is not None:
            return int(told)
        return ecc_errors(self.state, card) if severity == "uncorrected" else 0

    def recovery_action(self, card: CardShape) -> int:
        """Field 230 by number; the faults of memory rows ask for a reset."""
        for action, value in self.labels_of_gpu(card, "recovery_action").items():
            if value >= 0.5 and action in RECOVERY_ACTIONS:
                return RECOVERY_ACTIONS.index(action)
        return RECOVERY_ACTIONS.index("gpu-reset") if self.state.fault(card, REMAP_PENDING) else 0

    def vgpu_framebuffer(self, vgpu: Vgpu, size_mib: int) -> int:
        """The bytes of its framebuffer that a guest uses: little without load."""
        told = self.of_vgpu(vgpu, "framebuffer_used_bytes")
        return size_mib * _MIB // 32 if told is None else min(max(round(told), 0), size_mib * _MIB)


def has_hbm(card: CardShape) -> bool:
    """True for the boards whose memory has a temperature sensor."""
    return any(word in card.model for word in _BOARDS_WITH_HBM)
