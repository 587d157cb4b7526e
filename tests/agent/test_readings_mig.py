# SPDX-License-Identifier: Apache-2.0
"""Readings of GPUs in MIG mode: GPM where the board has it, and a reason where it has not."""

from pathlib import Path

import pytest

from tests.agent.measured import inject, play, read, vm_uuid
from tests.agent.simulated import PF, Machine, PatientHost
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVirtualFunctions
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
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
