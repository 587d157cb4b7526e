# SPDX-License-Identifier: Apache-2.0
"""Readings of GPUs and vGPUs: each measure as the machine has it, and a reason for each that is missing."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.agent.measured import gpu_of, inject, play, read, vm_uuid, with_vgpus
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.wire.measures import GPU, MEASURES, VGPU
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, SetVgpuScheduler
from vgpuctl_lab.simulated.machine.domains import HostDevice, start

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, UNKNOWN = 3, 4, 6, 13, 15, 999


def _names(measured: Measured) -> set[str]:
    return {name for name, _, _ in measured.values} | {name for name, _, _ in measured.missing}


def test_an_idle_card_has_its_values(tmp_path: Path) -> None:
    readings = read(Machine(tmp_path, "a40"))
    [gpu] = readings.gpus
    assert (gpu.address, gpu.model, gpu.driver) == (PF, "NVIDIA A40", "nvidia")
    assert gpu.measured.get("utilization_ratio") == 0
    assert gpu.measured.get("temperature_celsius") == 34
    assert gpu.measured.label("clock_event") == "gpu_idle"
    assert gpu.measured.label("recovery_action") == "none"
    assert (readings.vgpus, readings.vms, readings.unread) == ((), (), ())


def test_every_measure_of_a_gpu_and_a_vgpu_has_a_value_or_a_reason(tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    [gpu], [vgpu] = read(simulated).gpus, read(simulated).vgpus
    # A GPU without an Xid has no series of it.
    assert _names(gpu.measured) == {one.name for one in MEASURES if one.of == GPU} - {"xid"}
    assert _names(vgpu.measured) == {one.name for one in MEASURES if one.of == VGPU}


@pytest.mark.parametrize(
    ("curve", "name", "labels", "value"),
    [
        ("utilization_ratio 0 0:0.37", "utilization_ratio", (), 0.37),
        ("memory_activity_ratio 0 0:0.21", "memory_activity_ratio", (), 0.21),
        ("encoder_utilization_ratio 0 0:0.4", "encoder_utilization_ratio", (), 0.4),
        ("decoder_utilization_ratio 0 0:0.3", "decoder_utilization_ratio", (), 0.3),
        ("jpeg_utilization_ratio 0 0:0.2", "jpeg_utilization_ratio", (), 0.2),
        ("ofa_utilization_ratio 0 0:0.1", "ofa_utilization_ratio", (), 0.1),
        ("power_watts 0 0:123.4", "power_watts", (), 123.4),
        ("energy_joules 0 0:5000.5", "energy_joules", (), 5000.5),
        ("temperature_celsius 0 0:71", "temperature_celsius", (), 71),
        ("memory_temperature_celsius 0 0:80", "memory_temperature_celsius", (), 80),
        ("slowdown_temperature_celsius 0 0:95", "slowdown_temperature_celsius", (), 95),
        ("sm_clock_hertz 0 0:900000000", "sm_clock_hertz", (), 900e6),
        ("memory_clock_hertz 0 0:7000000000", "memory_clock_hertz", (), 7000e6),
        ("clock_event/hw_power_brake 0 0:1", "clock_event", ("hw_power_brake",), 1),
        ("ecc_errors/corrected 0 0:7", "ecc_errors", ("corrected",), 7),
        ("remapped_rows/uncorrected 0 0:2", "remapped_rows", ("uncorrected",), 2),
        ("row_remap_pending 0 0:1", "row_remap_pending", (), 1),
        ("row_remap_failed 0 0:1", "row_remap_failed", (), 1),
        ("sram_threshold_exceeded 0 0:1", "sram_threshold_exceeded", (), 1),
        ("repair_pending/tpc 0 0:1", "repair_pending", ("tpc",), 1),
        ("pcie_replays 0 0:12", "pcie_replays", (), 12),
        ("recovery_action/node-reboot 0 0:1", "recovery_action", ("node-reboot",), 1),
        ("xid/63 0 0:2", "xid", ("63", "ignore"), 2),
    ],
    ids=lambda one: one.split()[0] if isinstance(one, str) and " " in one else "",
)
def test_a_gpus_measure_has_the_value_that_the_machine_plays(
    curve: str, name: str, labels: tuple[str, ...], value: float, tmp_path: Path
) -> None:
    simulated = Machine(tmp_path, "a40")
    play(simulated, f"gpu:{PF} {curve}")
    assert gpu_of(simulated).get(name, *labels) == value


@pytest.mark.parametrize(
    ("curve", "name", "labels", "value"),
    [
        ("utilization_ratio 0 0:0.5", "utilization_ratio", (), 0.5),
        ("memory_activity_ratio 0 0:0.25", "memory_activity_ratio", (), 0.25),
        ("encoder_utilization_ratio 0 0:0.4", "encoder_utilization_ratio", (), 0.4),
        ("decoder_utilization_ratio 0 0:0.3", "decoder_utilization_ratio", (), 0.3),
        ("jpeg_utilization_ratio 0 0:0.2", "jpeg_utilization_ratio", (), 0.2),
        ("ofa_utilization_ratio 0 0:0.1", "ofa_utilization_ratio", (), 0.1),
        ("framebuffer_used_bytes 0 0:1073741824", "framebuffer_used_bytes", (), 1 << 30),
        ("encoder_sessions 0 0:3", "encoder_sessions", (), 3),
        ("encoder_frame_rate_hertz 0 0:58", "encoder_frame_rate_hertz", (), 58),
        ("encoder_latency_seconds 0 0:0.004", "encoder_latency_seconds", (), 0.004),
        ("encoder_capacity_ratio 0 0:0.5", "encoder_capacity_ratio", (), 0.5),
        ("frame_rate_limit_hertz 0 0:45", "frame_rate_limit_hertz", (), 45),
        ("license_state/unlicensed-restricted 0 0:1", "license_state", ("unlicensed-restricted",), 1),
        ("license_expiry_timestamp_seconds 0 0:1800000000", "license_expiry_timestamp_seconds", (), 1_800_000_000),
        ("guest_driver_info/550.163.01 0 0:1", "guest_driver_info", ("550.163.01",), 1),
    ],
    ids=lambda one: one.split()[0] if isinstance(one, str) and " " in one else "",
)
def test_a_vgpus_measure_has_the_value_that_the_machine_plays(
    curve: str, name: str, labels: tuple[str, ...], value: float, tmp_path: Path
) -> None:
    simulated, [vf] = with_vgpus(tmp_path, 1)
    play(simulated, f"vgpu:{vf} {curve}")
    [vgpu] = read(simulated).vgpus
    assert (vgpu.device, vgpu.vm_uuid, vgpu.profile) == (vf, vm_uuid(0), "A40-8Q")
    assert vgpu.measured.get(name, *labels) == value


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization_ratio memory_activity_ratio"),
        ("nvmlDeviceGetEncoderUtilization", "encoder_utilization_ratio"),
        ("nvmlDeviceGetOfaUtilization", "ofa_utilization_ratio"),
        ("nvmlDeviceGetMemoryInfo", "framebuffer_total_bytes framebuffer_used_bytes"),
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_joules"),
        ("nvmlDeviceGetTemperature", "temperature_celsius"),
        ("nvmlDeviceGetClockInfo", "sm_clock_hertz memory_clock_hertz"),
        ("nvmlDeviceGetTotalEccErrors", "ecc_errors"),
        ("nvmlDeviceGetRemappedRows", "remapped_rows row_remap_pending row_remap_failed"),
        ("nvmlDeviceGetSramEccErrorStatus", "sram_threshold_exceeded"),
        ("nvmlDeviceGetRepairStatus", "repair_pending"),
        ("nvmlDeviceGetPcieReplayCounter", "pcie_replays"),
        ("nvmlDeviceGetFieldValues", "recovery_action memory_temperature_celsius"),
        (
            "nvmlDeviceGetVgpuSchedulerState",
            "scheduler_policy scheduler_arr scheduler_time_slice_seconds",
        ),
        ("nvmlDeviceGetVgpuSchedulerLog", "scheduler_run_seconds scheduler_preempted_seconds"),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION, UNKNOWN])
def test_a_call_that_fails_hides_only_its_own_measures_and_says_why(
    function: str, names: str, code: int, tmp_path: Path
) -> None:
    simulated = Machine(tmp_path, "a40")
    before = gpu_of(simulated)
    inject(simulated, **{function: code})
    after = gpu_of(simulated)
    kind = "not-measurable" if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND) else "not-readable"
    for name in names.split():
        assert after.all(name) == ()
        reason = after.why_missing(name)
        assert reason is not None
        assert reason.startswith(f"{kind}: ")
        assert f"(NVML {code})" in reason
    assert {name for name, _, _ in before.values} - {name for name, _, _ in after.values} <= set(names.split())


@pytest.mark.parametrize("temperature", [40, 99])
def test_a_driver_without_thresholds_tells_the_distance_to_the_slowdown(temperature: int, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    play(simulated, f"gpu:{PF} temperature_celsius 0 0:{temperature}")
    inject(simulated, nvmlDeviceGetTemperatureThreshold=NOT_SUPPORTED)
    assert gpu_of(simulated).get("slowdown_temperature_celsius") == 92
    inject(
        simulated,
        nvmlDeviceGetTemperatureThreshold=NOT_SUPPORTED,
        nvmlDeviceGetMarginTemperature=FUNCTION_NOT_FOUND,
    )
    assert gpu_of(simulated).why_missing("slowdown_temperature_celsius") == (
        "not-measurable: Function Not Found (NVML 13)"
    )


def test_a_field_that_is_younger_than_the_driver_is_not_measurable(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")

    class OldDriver(type(simulated.host.nvml())):  # type: ignore[misc]  # the class of this very NVML
        def device_get_field_values(self, _device: object, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
            return [SimpleNamespace(nvmlReturn=2, valueType=1) for _ in fields]

    simulated.host.nvml = lambda: OldDriver(simulated.files)  # type: ignore[method-assign]
    measured = gpu_of(simulated)
    assert measured.why_missing("recovery_action") == "not-measurable: Not Supported (NVML 3)"
    assert measured.get("power_watts") is not None


def test_the_clock_events_of_an_old_driver_have_their_old_name(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    inject(simulated, nvmlDeviceGetCurrentClocksEventReasons=FUNCTION_NOT_FOUND)
    assert gpu_of(simulated).label("clock_event") == "gpu_idle"
    inject(
        simulated,
        nvmlDeviceGetCurrentClocksEventReasons=FUNCTION_NOT_FOUND,
        nvmlDeviceGetCurrentClocksThrottleReasons=FUNCTION_NOT_FOUND,
    )
    assert "not-measurable" in (gpu_of(simulated).why_missing("clock_event") or "")


def test_an_old_driver_tells_the_use_of_vgpus_by_the_older_call(tmp_path: Path) -> None:
    simulated, [vf] = with_vgpus(tmp_path, 1)
    play(simulated, f"vgpu:{vf} utilization_ratio 0 0:0.4")
    inject(simulated, nvmlDeviceGetVgpuInstancesUtilizationInfo=FUNCTION_NOT_FOUND)
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.get("utilization_ratio") == 0.4
    assert vgpu.measured.why_missing("ofa_utilization_ratio") == "not-measurable: this driver does not tell it of vGPUs"
    assert vgpu.measured.label("telemetry_support") == "util"


@pytest.mark.parametrize(
    ("code", "support", "kind"),
    [(NOT_SUPPORTED, "none", "not-measurable"), (NOT_FOUND, "util", "not-readable"), (UNKNOWN, "util", "not-readable")],
)
def test_without_samples_a_vgpu_keeps_its_other_values(code: int, support: str, kind: str, tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    inject(simulated, nvmlDeviceGetVgpuInstancesUtilizationInfo=code)
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.label("telemetry_support") == support
    assert (vgpu.measured.why_missing("utilization_ratio") or "").startswith(kind)
    assert vgpu.measured.why_missing("share_utilization_ratio") == "not-readable: the utilization is missing"
    assert vgpu.measured.get("promised_ratio") == 1 / 6
    assert vgpu.measured.get("framebuffer_size_bytes") == 8 << 30


@pytest.mark.parametrize(
    ("policy", "promise"), [("best-effort", 1 / 6), ("equal-share", 1 / 3), ("fixed-share", 1 / 6)]
)
def test_the_promise_follows_the_scheduler(policy: str, promise: float, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40", with_vfs=True)
    simulated.done(SetVgpuScheduler(PF, policy, None))
    for number, vf in enumerate(simulated.files.state().vfs_of(simulated.card)[:3]):
        simulated.done(SetVfProfile(vf, simulated.type_id("A40-8Q")))
        start(simulated.files, vm_uuid(number), f"web-{number}", [HostDevice(function=vf)])
    readings = read(simulated)
    assert readings.gpus[0].measured.label("scheduler_policy") == policy
    assert [one.measured.get("promised_ratio") for one in readings.vgpus] == [promise] * 3
    limits = {one.measured.get("frame_rate_limit_hertz") for one in readings.vgpus}
    assert limits == ({60.0} if policy == "best-effort" else {0.0})


def test_a_noisy_neighbour_is_seen_in_share_and_steal(tmp_path: Path) -> None:
    simulated, vfs = with_vgpus(tmp_path, 3)
    shares = (0.9, 0.07, 0.0)
    play(simulated, *(f"vgpu:{vf} utilization_ratio 0 0:{share}" for vf, share in zip(vfs, shares, strict=True)))
    first, second, third = (one.measured for one in read(simulated).vgpus)
    assert first.get("share_utilization_ratio") == pytest.approx(5.4)
    assert first.get("steal_ratio") == 0
    assert second.get("steal_ratio") == pytest.approx(1 / 6 - 0.07)
    # It does nothing, so nobody took anything from it.
    assert third.get("steal_ratio") == 0


def test_a_scheduler_that_is_not_told_leaves_the_promise_open(tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    inject(simulated, nvmlDeviceGetVgpuSchedulerState=FUNCTION_NOT_FOUND)
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.get("utilization_ratio") is not None
    assert all(vgpu.measured.why_missing(name) for name in ("promised_ratio", "share_utilization_ratio", "steal_ratio"))


def test_the_log_of_the_scheduler_counts_by_runlist_and_only_rises(tmp_path: Path) -> None:
    simulated, vfs = with_vgpus(tmp_path, 2)
    play(simulated, *(f"vgpu:{vf} utilization_ratio 0 0:0.5" for vf in vfs), began_s=100)
    found = dict(gpu_of(simulated).all("scheduler_run_seconds"))
    assert found.keys() == {("0",), ("1",)}
    assert all(seconds >= 50 for seconds in found.values())
    again = dict(gpu_of(simulated).all("scheduler_run_seconds"))
    assert all(again[runlist] >= seconds for runlist, seconds in found.items())


@pytest.mark.parametrize("version", ["not a version", "\x1b[31m580", "5" * 100, "580.95.05\n", "580"])
def test_a_guest_that_tells_nonsense_as_its_version_gets_no_label(version: str, tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)

    class Guest(type(simulated.host.nvml())):  # type: ignore[misc]  # the class of this very NVML
        def vgpu_instance_get_vm_driver_version(self, _number: int) -> str:
            return version

    simulated.host.nvml = lambda: Guest(simulated.files)  # type: ignore[method-assign]
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.all("guest_driver_info") == ()
    assert vgpu.measured.why_missing("guest_driver_info") == "not-readable: the guest tells a text that is no version"


def test_a_guest_without_driver_has_no_version_and_no_licence_yet(tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    inject(simulated, nvmlVgpuInstanceGetLicenseInfo=9, nvmlVgpuInstanceGetVmDriverVersion=9)
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.why_missing("license_state") == "not-readable: Driver Not Loaded (NVML 9)"
    assert vgpu.measured.get("utilization_ratio") is not None


def test_a_vgpu_that_ends_while_it_is_read_is_left_out_and_an_odd_one_is_said(tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    inject(simulated, nvmlVgpuInstanceGetType=NOT_FOUND)
    readings = read(simulated)
    assert (readings.vgpus, readings.unread) == ((), ())
    inject(simulated, nvmlVgpuInstanceGetType=UNKNOWN)
    assert read(simulated).unread == (f"{PF}: NVML does not tell a running vGPU: Unknown Error (NVML 999)",)


def test_a_passthrough_card_is_said_to_be_invisible(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40/passthrough")
    simulated.done(BindDriver((PF,), "vfio-pci"))
    readings = read(simulated)
    [gpu] = readings.gpus
    assert (gpu.uuid, gpu.driver) == (None, "vfio-pci")
    assert gpu.measured.label("telemetry_support") == "none"
    reason = "not-measurable: the GPU is passed through: only the driver in its guest measures it"
    assert gpu.measured.why_missing("utilization_ratio") == reason
    assert readings.unread == ()


def test_a_card_that_fell_off_the_bus_costs_only_itself_and_keeps_its_xid(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40*2")
    simulated.begin("fallen")
    lost, well = read(simulated).gpus
    assert lost.measured.get("xid", "79", "restart-bm") == 1
    assert lost.measured.why_missing("power_watts") == "not-readable: NVML does not show the GPU"
    assert well.measured.get("temperature_celsius") == 34


def test_a_card_that_is_lost_in_the_middle_keeps_what_was_read_of_it(tmp_path: Path) -> None:
    simulated, _ = with_vgpus(tmp_path, 1)
    inject(simulated, nvmlDeviceGetPowerUsage=GPU_IS_LOST, nvmlDeviceGetActiveVgpus=GPU_IS_LOST)
    readings = read(simulated)
    [gpu] = readings.gpus
    assert gpu.measured.get("utilization_ratio") is not None
    assert gpu.measured.why_missing("power_watts") == "not-readable: GPU is lost (NVML 15)"
    assert readings.vgpus == ()
    assert readings.unread == (f"{PF}: NVML does not tell its vGPUs: GPU is lost (NVML 15)",)


def test_a_fresh_driver_with_ecc_has_no_utilization_yet(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    simulated.files.log("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.06")
    measured = gpu_of(simulated)
    assert "is clearing the memory, because ECC is on" in (measured.why_missing("utilization_ratio") or "")
    assert measured.get("temperature_celsius") == 34
    with simulated.files.change() as state:
        state.skipped_s += 61
    assert gpu_of(simulated).get("utilization_ratio") == 0


def test_vgpus_of_one_vm_have_their_own_vfs(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40", with_vfs=True)
    vfs = simulated.files.state().vfs_of(simulated.card)[:3]
    simulated.done(*(SetVfProfile(vf, simulated.type_id("A40-8Q")) for vf in vfs))
    # The guest sees them in the order of the host's addresses, but for the first two.
    devices = "".join(_hostdev(vf, bus) for vf, bus in zip(vfs, (2, 1, 3), strict=True))
    xml = f"<domain><name>web</name><uuid>{vm_uuid(0)}</uuid><devices>{devices}</devices></domain>"
    start(simulated.files, vm_uuid(0), "web", [HostDevice(function=vf) for vf in vfs], xml=xml)
    found = [one.device for one in read(simulated).vgpus]
    assert sorted(device or "" for device in found) == vfs
    # NVML's guest addresses follow the order of creation, libvirt's file the guest's.
    assert found == [vfs[1], vfs[0], vfs[2]]


def _hostdev(vf: str, guest_bus: int) -> str:
    domain, bus, rest = vf.split(":")
    slot, function = rest.split(".")
    source = f"<source><address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source>"
    guest = f"<address type='pci' domain='0x0000' bus='0x{guest_bus:02x}' slot='0x00' function='0x0'/>"
    return f"<hostdev mode='subsystem' type='pci' managed='no'>{source}{guest}</hostdev>"


def test_vgpus_of_one_vm_that_nothing_tells_apart_have_no_device(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40", with_vfs=True)
    vfs = simulated.files.state().vfs_of(simulated.card)[:2]
    simulated.done(*(SetVfProfile(vf, simulated.type_id("A40-8Q")) for vf in vfs))
    start(simulated.files, vm_uuid(0), "web", [HostDevice(function=vf) for vf in vfs])
    assert [one.device for one in read(simulated).vgpus] == [None, None]


def test_an_mdev_has_its_uuid_as_device(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "t4")
    uuid = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
    simulated.host.write(
        f"/sys/bus/pci/devices/{PF}/mdev_supported_types/nvidia-{simulated.type_id('T4-2Q')}/create", uuid
    )
    start(simulated.files, vm_uuid(0), "web", [HostDevice(uuid=uuid)])
    [vgpu] = read(simulated).vgpus
    assert (vgpu.device, vgpu.profile) == (uuid, "T4-2Q")


def test_a_card_whose_driver_is_gone_has_no_readings_and_nobody_starts_nvml(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    with simulated.files.change() as state:
        state.drivers[PF] = None
    readings = read(simulated)
    [gpu] = readings.gpus
    assert gpu.measured.why_missing("power_watts") == "not-measurable: the GPU has no driver"
    assert readings.unread == ()
