# SPDX-License-Identifier: Apache-2.0
"""Readings of GPUs in MIG mode: GPM where the board has it, and a reason where it has not."""

from pathlib import Path

import pytest

from tests.agent.measured import inject, play, read, vm_uuid
from tests.agent.simulated import PF, Machine, PatientHost
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVgpuScheduler, SetVirtualFunctions
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.nvml_values import NvmlError
from vgpuctl_lab.simulated.machine.state import ComputeInstance

NOT_SUPPORTED, UNKNOWN = 3, 999
GPM = ("utilization_ratio", "sm_activity_ratio", "sm_occupancy_ratio", "tensor_activity_ratio", "memory_activity_ratio")


def with_instances(folder: Path, board: str, *profiles: str, host: type[PatientHost] = PatientHost) -> Machine:
    """A machine in MIG mode with GPU instances, each at the first place."""
    simulated = Machine(folder, board, host=host)
    simulated.done(SetMigMode(PF, True), SetVirtualFunctions(PF, simulated.card.total_vfs))
    for profile in profiles:
        places = simulated.gpu().mig
        assert places is not None
        taken = {place for one in places.instances for place in range(one.start, one.start + one.size)}
        known = next(one for one in places.profiles if one.name == profile)
        free = [one for one in known.starts if not taken & set(range(one, one + known.size))]
        simulated.done(CreateGpuInstance(PF, profile, free[0]))
    return simulated


def with_vgpu(simulated: Machine, profile: str, number: int = 0) -> str:
    """Start a VM with a vGPU; its VF."""
    vf = simulated.files.state().vfs_of(simulated.card)[number]
    simulated.done(SetVfProfile(vf, simulated.type_id(profile)))
    start(simulated.files, vm_uuid(number), f"web-{number}", [HostDevice(function=vf)])
    return vf


def with_shared_instance(folder: Path, policy: str = "best-effort") -> Machine:
    """A machine with one GPU instance that two running vGPUs share."""
    simulated = with_instances(folder, "rtx-pro-6000-blackwell-server")
    simulated.done(SetVgpuScheduler(PF, policy, None))
    assert simulated.card.mig is not None
    shared = next(one for one in simulated.card.types if one.max_per_instance > 1)
    profile = next(one for one in simulated.card.mig.profiles if one.profile_id == shared.gi_profile)
    simulated.done(CreateGpuInstance(PF, profile.name, profile.starts[0]))
    for number in range(2):
        with_vgpu(simulated, shared.full_name.rpartition(" ")[2], number)
    with simulated.files.change() as state:
        state.skipped_s += 60
    return simulated


def use_nvml_without(simulated: Machine, *methods: str) -> None:
    """Replace the machine's NVML by one without some functions."""

    def refuse(*_: object) -> None:
        raise NvmlError(13)

    newer = type("Newer", (SimulatedNvml,), dict.fromkeys(methods, refuse))
    simulated.host.nvml = lambda: newer(simulated.files)  # type: ignore[method-assign]


def test_gpm_measures_the_instances_of_hopper(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "3g.40gb", "1g.10gb")
    first, second = simulated.files.state().instances_of(simulated.card)
    play(
        simulated,
        f"gpu_instance:{PF}/{first.id} utilization_ratio 0 0:0.6",
        f"gpu_instance:{PF}/{first.id} tensor_activity_ratio 0 0:0.25",
        f"gpu_instance:{PF}/{second.id} utilization_ratio 0 0:0.2",
    )
    readings = read(simulated)
    found = {one.profile: one.measured for one in readings.instances}
    assert found["3g.40gb"].get("utilization_ratio") == pytest.approx(0.6)
    assert found["3g.40gb"].get("tensor_activity_ratio") == pytest.approx(0.25)
    assert found["1g.10gb"].get("utilization_ratio") == pytest.approx(0.2)
    [gpu] = readings.gpus
    # Three of seven slices at 60 %, one at 20 %.
    assert gpu.measured.get("utilization_ratio") == pytest.approx((3 * 0.6 + 0.2) / 7)
    assert gpu.measured.why_missing("utilization_ratio") is None
    assert gpu.measured.label("telemetry_support") == "gpm"
    assert gpu.measured.why_missing("remapped_rows") == "not-measurable: Not Supported (NVML 3)"


def test_the_two_samples_of_gpm_are_more_than_100_ms_apart(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "1g.10gb", "1g.10gb")
    assert isinstance(simulated.host, PatientHost)
    waited_s = simulated.host.waited_s
    read(simulated)
    # One wait for all instances, not one for each.
    assert 0.1 < simulated.host.waited_s - waited_s < 0.2


def test_a_board_before_hopper_has_no_utilization_in_mig_mode(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "a100-pcie-40gb", "1g.5gb")
    readings = read(simulated)
    [instance], [gpu] = readings.instances, readings.gpus
    for name in GPM:
        assert "boards before Hopper have no GPM" in (instance.measured.why_missing(name) or "")
    assert gpu.measured.label("telemetry_support") == "none"
    assert (gpu.measured.why_missing("utilization_ratio") or "").startswith("not-measurable")
    assert gpu.measured.get("power_watts") is not None


def test_a_driver_without_gpm_says_so(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "1g.10gb")
    inject(simulated, nvmlGpmQueryDeviceSupport=13)
    [instance] = read(simulated).instances
    assert "NVML tells no GPM of this GPU: Function Not Found" in (
        instance.measured.why_missing("sm_activity_ratio") or ""
    )


def test_a_mig_mode_that_is_not_told_hides_only_mig(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "1g.10gb")
    inject(simulated, nvmlDeviceGetMigMode=UNKNOWN)
    readings = read(simulated)
    assert readings.instances == ()
    assert readings.unread == (f"{PF}: NVML does not tell its MIG mode: Unknown Error (NVML 999)",)
    assert readings.gpus[0].measured.get("temperature_celsius") is not None


@pytest.mark.parametrize("function", ["nvmlGpmSampleAlloc", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"])
def test_gpm_that_fails_hides_only_gpm(function: str, tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "1g.10gb")
    inject(simulated, **{function: UNKNOWN})
    readings = read(simulated)
    [instance], [gpu] = readings.instances, readings.gpus
    assert all((instance.measured.why_missing(name) or "").startswith("not-readable") for name in GPM)
    assert gpu.measured.get("temperature_celsius") is not None
    assert gpu.measured.label("telemetry_support") == "none"


def test_a_vgpu_with_an_instance_of_its_own_is_measured_by_gpm(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "h100-pcie", "3g.40gb")
    with_vgpu(simulated, "H100-3-40C")
    [one] = simulated.files.state().instances_of(simulated.card)
    play(simulated, f"gpu_instance:{PF}/{one.id} utilization_ratio 0 0:0.5")
    [vgpu] = read(simulated).vgpus
    assert vgpu.instance == one.id
    assert vgpu.measured.label("telemetry_support") == "gpm"
    assert vgpu.measured.get("promised_ratio") == pytest.approx(3 / 7)
    assert vgpu.measured.get("utilization_ratio") == pytest.approx(0.5 * 3 / 7)
    assert vgpu.measured.get("share_utilization_ratio") == pytest.approx(0.5)
    assert vgpu.measured.why_missing("steal_ratio") == (
        "not-measurable: a GPU instance is not shared with other GPU instances"
    )


def test_a_vgpu_that_shares_its_instance_cannot_be_measured(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "rtx-pro-6000-blackwell-server")
    assert simulated.card.mig is not None
    shared = next(one for one in simulated.card.types if one.max_per_instance > 1)
    profile = next(one for one in simulated.card.mig.profiles if one.profile_id == shared.gi_profile)
    simulated.done(CreateGpuInstance(PF, profile.name, profile.starts[0]))
    with_vgpu(simulated, shared.full_name.rpartition(" ")[2])
    [vgpu] = read(simulated).vgpus
    assert vgpu.measured.label("telemetry_support") == "none"
    assert vgpu.measured.why_missing("utilization_ratio") == (
        "not-measurable: neither NVML nor GPM tells it of a vGPU that shares its GPU instance"
    )
    assert vgpu.measured.get("framebuffer_used_bytes") is not None
    share = vgpu.measured.get("promised_ratio")
    assert share is not None
    assert share == pytest.approx(profile.slices / simulated.card.mig.slices / shared.max_per_instance)


def test_an_instance_with_a_compute_instance_tells_its_framebuffer(tmp_path: Path) -> None:
    simulated = with_instances(tmp_path, "a100-pcie-40gb", "1g.5gb", "1g.5gb")
    with simulated.files.change() as state:
        state.instances[0].computes.append(ComputeInstance(0, 0, 0, 1))
    with_ci, without = simulated.files.state().instances_of(simulated.card)
    play(simulated, f"gpu_instance:{PF}/{with_ci.id} framebuffer_used_bytes 0 0:1000000")
    found = {one.id: one.measured for one in read(simulated).instances}
    assert found[with_ci.id].get("framebuffer_used_bytes") == 1_000_000
    assert 4 << 30 < (found[with_ci.id].get("framebuffer_size_bytes") or 0) < 5 << 30
    assert "no compute instance on the host" in (found[without.id].why_missing("framebuffer_size_bytes") or "")


def test_instances_that_vgpus_share_have_a_scheduler_of_their_own(tmp_path: Path) -> None:
    simulated = with_shared_instance(tmp_path)
    readings = read(simulated)
    [instance] = readings.instances
    assert instance.measured.label("scheduler_policy") == "best-effort"
    assert instance.measured.label("scheduler_arr") == "default"
    assert instance.measured.get("scheduler_time_slice_seconds") == 0
    assert [labels for labels, _ in instance.measured.all("scheduler_run_seconds")] == [("0",), ("1",)]
    first, second = (waited for _, waited in instance.measured.all("scheduler_preempted_seconds"))
    assert (first > 0, second > 0) == (True, True)


def test_the_scheduler_of_an_instance_decides_the_promise(tmp_path: Path) -> None:
    (tmp_path / "equal").mkdir()
    fixed, equal = with_shared_instance(tmp_path / "fixed"), with_shared_instance(tmp_path / "equal", "equal-share")
    assert fixed.card.mig is not None
    [instance] = fixed.files.state().instances_of(fixed.card)
    most = next(one.max_per_instance for one in fixed.card.types if one.max_per_instance > 1)
    slices = next(one.slices for one in fixed.card.mig.profiles if one.profile_id == instance.profile_id)
    part = slices / fixed.card.mig.slices
    assert [one.measured.get("promised_ratio") for one in read(fixed).vgpus] == [pytest.approx(part / most)] * 2
    assert [one.measured.get("promised_ratio") for one in read(equal).vgpus] == [pytest.approx(part / 2)] * 2
    assert most > 2


def test_a_driver_with_the_newer_calls_alone_tells_the_scheduler_without_its_mode(tmp_path: Path) -> None:
    simulated = with_shared_instance(tmp_path)
    before = read(simulated).instances[0].measured
    gone = (
        "device_get_vgpu_scheduler_state",
        "gpu_instance_get_vgpu_scheduler_state",
        "gpu_instance_get_vgpu_scheduler_log",
    )
    use_nvml_without(simulated, *gone)
    readings = read(simulated)
    [gpu], [instance] = readings.gpus, readings.instances
    for one in (gpu.measured, instance.measured):
        assert one.label("scheduler_policy") == "best-effort"
        assert one.get("scheduler_time_slice_seconds") == 0
        assert one.why_missing("scheduler_arr") == (
            "not-measurable: this driver has only the newer call, which does not tell the mode"
        )
    assert len(instance.measured.all("scheduler_run_seconds")) == len(before.all("scheduler_run_seconds")) == 2
    assert simulated.gpu().scheduler is not None


def test_a_driver_without_any_of_the_calls_hides_only_the_scheduler(tmp_path: Path) -> None:
    simulated = with_shared_instance(tmp_path)
    inject(simulated, nvmlGpuInstanceGetVgpuSchedulerState=13, nvmlGpuInstanceGetVgpuSchedulerLog=UNKNOWN)
    [instance] = read(simulated).instances
    assert instance.measured.why_missing("scheduler_policy") == "not-measurable: Function Not Found (NVML 13)"
    assert instance.measured.why_missing("scheduler_run_seconds") == "not-readable: Unknown Error (NVML 999)"
    assert instance.measured.get("utilization_ratio") is not None


def test_an_instance_of_one_vgpu_has_no_scheduler(tmp_path: Path) -> None:
    [instance] = read(with_instances(tmp_path, "h100-pcie", "1g.10gb")).instances
    assert instance.measured.why_missing("scheduler_policy") == "not-measurable: Not Supported (NVML 3)"
