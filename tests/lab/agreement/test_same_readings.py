# SPDX-License-Identifier: Apache-2.0
"""The agent reads the same measures from both NVMLs of the lab, idle, with running VMs, and by a scenario's curves."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.simulated import PF, VM, Machine
from tests.lab.agreement.test_same_nvml import EMULATED, state_text, use_driver_of
from tests.lab.nvml_fixtures import ModuleDouble, module, nvml, nvml_library, vm_process
from vgpuctl.agent import nvml_metadata, nvml_scheduler
from vgpuctl.agent.facts import nvml_gpus, nvml_migration
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.readings import gpu, vgpu
from vgpuctl.agent.readings.instances import Instances
from vgpuctl.agent.wire.facts import NvLinks
from vgpuctl.agent.wire.measures import GPU, MEASURES, VGPU
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVgpuScheduler
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.simulated.machine.curves import CURVES
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml

__all__ = ["module", "nvml", "nvml_library"]

# They follow the hosts' clocks and ages, or the version of the host's driver: both have one, and not the same.
GOES_ON = {
    "energy_joules",
    "scheduler_run_seconds",
    "scheduler_preempted_seconds",
    "license_expiry_timestamp_seconds",
    "guest_driver_info",
}
GPU_CURVES = """\
gpu:{pf} utilization_ratio 0 0:0.4
gpu:{pf} memory_activity_ratio 0 0:0.125
gpu:{pf} encoder_utilization_ratio 0 0:0.5
gpu:{pf} ofa_utilization_ratio 0 0:1
gpu:{pf} power_watts 0 0:300
gpu:{pf} energy_joules 0 0:12345.5
gpu:{pf} temperature_celsius 0 0:95.5
gpu:{pf} memory_temperature_celsius 0 0:99
gpu:{pf} slowdown_temperature_celsius 0 0:93
gpu:{pf} memory_clock_hertz 0 0:5001000000
gpu:{pf} clock_event/sync_boost 0 0:1
gpu:{pf} clock_event/hw_thermal 0 0:0
gpu:{pf} ecc_errors/corrected 0 0:7
gpu:{pf} ecc_errors/uncorrected 0 0:2
gpu:{pf} remapped_rows/corrected 0 0:3
gpu:{pf} row_remap_pending 0 0:1
gpu:{pf} sram_threshold_exceeded 0 0:1
gpu:{pf} repair_pending/tpc 0 0:1
gpu:{pf} pcie_replays 0 0:41
gpu:{pf} recovery_action/drain-and-reset 0 0:1
"""
VGPU_CURVES = """\
vgpu:{vf} utilization_ratio 0 0:0.75
vgpu:{vf} encoder_utilization_ratio 0 0:0.25
vgpu:{vf} framebuffer_used_bytes 0 0:5000000000
vgpu:{vf} encoder_sessions 0 0:2
vgpu:{vf} encoder_frame_rate_hertz 0 0:58.5
vgpu:{vf} encoder_latency_seconds 0 0:0.004
vgpu:{vf} encoder_capacity_ratio 0 0:0.5
vgpu:{vf} frame_rate_limit_hertz 0 0:45
vgpu:{vf} license_state/unlicensed-restricted 0 0:1
vgpu:{vf} guest_driver_info/550.54.15 0 0:1
"""


class Both:
    """One host of each kind with equal cards, VMs and curves."""

    def __init__(self, machine: Machine, module: ModuleDouble, library: Any, cards: str) -> None:
        self.machine, self._module, self._library = machine, module, library
        self.vfs: list[str] = []
        self._running = ""
        module.write(cards=card_table(parse_host(f"gpu1={cards}")))

    def run_vms(self, stack: ExitStack, count: int) -> None:
        """Start VMs with an A40-8Q each."""
        self.vfs = [vf.address for vf in self.machine.gpu().vfs[:count]]
        for number, vf in enumerate(self.vfs):
            uuid, type_id = f"{VM[:-1]}{number:x}", self.machine.type_id("A40-8Q")
            self.machine.done(SetVfProfile(vf, type_id))
            start(self.machine.files, uuid, f"web-{number}", [HostDevice(function=vf)])
            pid = stack.enter_context(vm_process(f"web-{number}", uuid))
            self._running += (
                f"vgpu {EMULATED} function={self._emulated(vf)} type={type_id} framebuffer=8192 placement=0 in_use=1"
                f" uuid=- id={number + 1} gi=- vm_pid={pid}\n"
            )

    def play(self, text: str) -> None:
        """Let both play curves from now on."""
        ours = self.machine.files.root / CURVES.lstrip("/")
        ours.parent.mkdir(parents=True, exist_ok=True)
        lines = f"start {self.machine.files.state().now()}\n{text}"
        ours.write_text(lines)
        (self._module.folder / "curves").write_text(self._emulated(lines))

    def read(self) -> Iterator[tuple[list[Measured], list[Measured]]]:
        """The readings of each GPU with its vGPUs, of both kinds."""
        self._module.write(state=state_text(self.machine) + self._running)
        yield from zip(_read(SimulatedNvml(self.machine.files)), _read(self._library), strict=True)

    @staticmethod
    def _emulated(text: str) -> str:
        return text.replace(PF.rpartition(":")[0], EMULATED.rpartition(":")[0])


def _read(library: Any) -> list[list[Measured]]:
    library.nvmlInit()
    found = []
    with Nvml(library) as opened:
        for index in range(library.nvmlDeviceGetCount()):
            device = library.nvmlDeviceGetHandleByIndex(index)
            unread: list[str] = []
            running = vgpu.read(opened, device, EMULATED, unread)
            assert unread == []
            found.append([gpu.read(opened, device).measured(), *(one.found.measured() for one in running)])
    return found


def _comparable(measured: Measured) -> Measured:
    values = tuple(
        (name, () if name in GOES_ON else labels, 0.0 if name in GOES_ON else value)
        for name, labels, value in measured.values
    )
    return replace(measured, values=values)


CASES = {
    "idle": ("a40", "a40", 0, ""),
    "before-ampere": ("t4", "t4", 0, ""),
    "with-hbm": ("h100-pcie", "h100-pcie", 0, ""),
    "running": ("a40", "a40", 3, ""),
    "gpu-curves": ("a40", "a40", 1, GPU_CURVES),
    "vgpu-curves": ("a40", "a40", 2, VGPU_CURVES),
    "played-in-rounds": ("a40", "a40", 0, "gpu:{pf} temperature_celsius 10000 0:40 9999:40\n"),
    "bridged": (
        "a40~bridged*2",
        "a40~bridged,a40~bridged",
        0,
        "gpu:{pf} nvlink_bytes/tx 0 0:4096000\ngpu:{pf} nvlink_errors/replay 0 0:3\n"
        "gpu:{pf} nvlink_active_links 0 0:3\n",
    ),
    "nvswitch": ("h100-sxm5*2", "h100-sxm5,h100-sxm5", 0, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_both_libraries_tell_the_agent_the_same_measures(
    name: str, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    simulated, emulated, vms, curves = CASES[name]
    both = Both(Machine(tmp_path / "simulated", simulated, with_vfs=bool(vms)), module, nvml, emulated)
    with ExitStack() as stack:
        both.run_vms(stack, vms)
        if curves:
            both.play(curves.format(pf=PF, vf=both.vfs[0] if both.vfs else ""))
        for ours, theirs in both.read():
            assert len(ours) == len(theirs) == (1 + vms if ours[0].get("nvlink_active_links") is None else 1)
            for one, other in zip(ours, theirs, strict=True):
                assert sorted(_comparable(one).values) == sorted(_comparable(other).values)
                assert one.missing == other.missing


def test_every_measure_of_nvml_has_a_value_or_a_reason_on_a_running_host(
    nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    both = Both(Machine(tmp_path / "simulated", "a40", with_vfs=True), module, nvml, "a40")
    with ExitStack() as stack:
        both.run_vms(stack, 1)
        [(_, [of_gpu, of_vgpu])] = both.read()
    for kind, measured in ((GPU, of_gpu), (VGPU, of_vgpu)):
        told = {name for name, _, _ in measured.values} | {name for name, _, _ in measured.missing}
        wanted = {one.name for one in MEASURES if one.of == kind and one.source == "NVML"}
        # Found with the help of the whole host's readings.
        assert wanted - told <= {"telemetry_support", "framebuffer_size_bytes"}, kind


def test_both_libraries_tell_the_same_of_gpu_instances(nvml: Any, module: ModuleDouble, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "simulated", "h100-pcie")
    machine.done(SetMigMode(PF, True), CreateGpuInstance(PF, "3g.40gb", 0, compute_instance=True))
    both = Both(machine, module, nvml, "h100-pcie")
    [instance] = machine.files.state().instances_of(machine.card)
    both.play(
        f"gpu_instance:{PF}/{instance.id} utilization_ratio 0 0:0.5\n"
        f"gpu_instance:{PF}/{instance.id} sm_occupancy_ratio 0 0:0.125\n"
    )
    module.write(state=state_text(machine))
    found = []
    for library in (SimulatedNvml(machine.files), nvml):
        library.nvmlInit()
        with Nvml(library) as opened:
            read = Instances(opened, library.nvmlDeviceGetHandleByIndex(0))
            read.take_first(machine.host)
            found.append([replace(one, gpu="") for one in read.read(machine.host, EMULATED)])
    assert found[0] == found[1]
    [measured] = [one.measured for one in found[0]]
    assert (measured.get("utilization_ratio"), measured.get("sm_occupancy_ratio")) == (0.5, 0.125)


def _renamed(links: NvLinks, names: dict[str, str]) -> NvLinks:
    return replace(links, peer=None if links.peer is None else names.get(links.peer, links.peer))


@pytest.mark.parametrize(
    ("simulated", "emulated"),
    [("a40~bridged*3", "a40~bridged,a40~bridged,a40~bridged"), ("h100-sxm5*4", ",".join(["h100-sxm5"] * 4))],
)
@pytest.mark.parametrize("is_fallen", [False, True])
def test_both_libraries_tell_the_same_links(
    simulated: str, emulated: str, is_fallen: bool, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "simulated", simulated)
    if is_fallen:
        machine.begin("fallen")
    module.write(cards=card_table(parse_host(f"gpu1={emulated}")), state=state_text(machine))
    names = {card.address: f"0000:{card.number + 1:02x}:00.0" for card in machine.files.shape.cards}
    found = []
    for library in (SimulatedNvml(machine.files), nvml):
        library.nvmlInit()
        with Nvml(library) as opened:
            gpus, _ = nvml_gpus.read(opened)
        found.append([one.topology for one in gpus.values()])
    translated = [
        replace(
            one, nvlinks=tuple(replace(each, peer=names.get(str(each.peer), each.peer)) for each in one.nvlinks or ())
        )
        for one in found[0]
    ]
    assert translated == found[1]
    assert len(translated) == len(names) - is_fallen
    assert any(one.nvlinks for one in translated)


@pytest.mark.parametrize("policy", ["best-effort", "equal-share"])
@pytest.mark.parametrize("is_newer", [False, True])
def test_both_libraries_tell_the_same_scheduler_of_a_shared_instance(
    policy: str, is_newer: bool, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    board = "rtx-pro-6000-blackwell-server"
    machine = Machine(tmp_path / "simulated", board)
    machine.done(SetVgpuScheduler(PF, policy, None), SetMigMode(PF, True))
    assert machine.card.mig is not None
    shared = next(one for one in machine.card.types if one.max_per_instance > 1)
    profile = next(one for one in machine.card.mig.profiles if one.profile_id == shared.gi_profile)
    machine.done(CreateGpuInstance(PF, profile.name, profile.starts[0]))
    both = Both(machine, module, nvml, board)
    both.play("")
    [instance] = machine.files.state().instances_of(machine.card)
    running = "".join(
        f"vgpu {EMULATED} function={EMULATED[:-1]}{number} type={shared.type_id} framebuffer=1024 placement=0 in_use=1"
        f" uuid=- id={number} gi={instance.id} vm_pid={{pid}}\n"
        for number in (1, 2)
    )
    with vm_process("web", VM) as pid:
        module.write(state=state_text(machine) + running.format(pid=pid))
        found = []
        for library in (SimulatedNvml(machine.files), nvml):
            library.nvmlInit()
            with Nvml(library) as opened:
                handle = opened.library.nvmlDeviceGetHandleByIndex(0)
                one = library.nvmlDeviceGetGpuInstanceById(handle, instance.id)
                if is_newer:
                    wanted = library.c_nvmlVgpuSchedulerStateInfo_v2_t()
                    wanted.engineId = 1
                    state = library.nvmlGpuInstanceGetVgpuSchedulerState_v2(one, wanted)
                    found.append((state.schedulerPolicy, state.timeslice))
                    log = library.c_nvmlVgpuSchedulerLogInfo_v2_t()
                    entries = library.nvmlGpuInstanceGetVgpuSchedulerLog_v2(one, log).entriesCount
                else:
                    scheduler = nvml_scheduler.instance_state(library, one)
                    found.append((scheduler.policy, scheduler.arr))
                    entries = len(nvml_scheduler.instance_log(library, one))
        # Only the emulated host's state has running VMs here.
        assert entries == 2
    assert found[0][0] == found[1][0] == (2 if policy == "equal-share" else 1)
    if not is_newer:
        assert found[0] == found[1]


@pytest.mark.parametrize("guest_driver", ["580.65.06", "550.54.15"])
def test_both_libraries_tell_the_same_of_moves(
    guest_driver: str, nvml: Any, module: ModuleDouble, tmp_path: Path
) -> None:
    """Metadata, what a move carries, and the comparison with GPUs of other boards and drivers."""
    both = Both(Machine(tmp_path / "simulated", "a40", with_vfs=True), module, nvml, "a40")
    use_driver_of(both.machine, module)
    others = [_gpu_metadata(tmp_path / "t4", "t4"), *(_gpu_metadata(tmp_path / f"{at}", "a40", at) for at in "59")]
    found = []
    with ExitStack() as stack:
        both.run_vms(stack, 1)
        both.play(f"vgpu:{both.vfs[0]} guest_driver_info/{guest_driver} 0 0:1\n")
        next(both.read())
        for library in (SimulatedNvml(both.machine.files), nvml):
            library.nvmlInit()
            with Nvml(library) as opened:
                device = library.nvmlDeviceGetHandleByIndex(0)
                told = nvml_migration.read(opened, device)
                [instance] = library.nvmlDeviceGetActiveVgpus(device)
                vgpu_data = nvml_metadata.read_vgpu(library, instance)
                own = nvml_metadata.read_gpu(library, device)
                compared = [nvml_metadata.compare(library, vgpu_data, one) for one in (own, *others)]
                found.append((replace(told, vgpus=(replace(told.vgpus[0], device=None),)), compared))
    assert found[0] == found[1]
    told, compared = found[0]
    assert told.problems == () and told.vgpus[0].state_bytes == 8 << 30
    # Equal; another board; a driver 550, which knows no newer version; one of 590, which knows no older one.
    newer, older = ((0xF, 0), (0, 0x2)) if guest_driver < "580" else ((0x1, 0x1), (0xF, 0))
    assert compared == [(0xF, 0), (0x1, 0x4), newer, older]


def _gpu_metadata(folder: Path, board: str, branch: str = "") -> bytes:
    """The metadata of another host's GPU, with a driver of the branch 5?0."""
    machine = Machine(folder, board)
    if branch:
        machine.files.shape = replace(machine.files.shape, nvidia_driver=f"5{branch}0.44.01")
    library: Any = SimulatedNvml(machine.files)
    library.nvmlInit()
    return nvml_metadata.read_gpu(library, library.nvmlDeviceGetHandleByIndex(0))
