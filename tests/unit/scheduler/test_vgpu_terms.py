# SPDX-License-Identifier: Apache-2.0
"""Terms of a VM for its vGPUs beside their types: parameters, and a host driver that works with the guest's."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, intel_vf_host, passthrough_host, vm
from vgpuctl.agent.wire.sharing import SetVfParams
from vgpuctl.errors import NoCapacity
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.guest_driver import GuestDriver
from vgpuctl.model.layout import GpuLayout, GpuMatch, VgpuLayout
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vgpu_params import VgpuParams, merge_params, params_against_migration, params_text
from vgpuctl.model.vm import VmRequest
from vgpuctl.planner.plan import params_of, plan_release, plan_share
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.place import place

UVM: VgpuParams = (("enable_uvm", "1"),)
NO_LIMITER: VgpuParams = (("frame_rate_limiter", "0"),)


def wanting(what: str, *, params: VgpuParams = (), os: str | None = None, driver: str | None = None) -> VmRequest:
    return replace(vm(what), vgpu_params=params, os=os, guest_driver=GuestDriver(version=driver))


def declaring(params: VgpuParams, capacity: HostCapacity) -> HostCapacity:
    return replace(capacity, declared=(GpuLayout(GpuMatch(), VgpuLayout(vgpu_params=params), "gpu1.yml:3"),))


def with_driver(version: str | None, name: str = "gpu1", *, sharing: str = "vf-profile") -> HostCapacity:
    capacity = a40_host(name, sharing)
    return replace(capacity, facts=replace(capacity.facts, nvidia_driver=version))


def refusals(request: VmRequest, *capacities: HostCapacity) -> Sequence[tuple[str, str]]:
    answer = explain(request, list(capacities), [])
    assert not isinstance(answer, Placement), answer
    return [(str(one.code), one.reason) for one in answer]


@pytest.mark.parametrize("sharing", ["vf-profile", "mdev-vf"])
def test_unified_memory_is_for_types_that_take_the_whole_gpu_and_for_linux(sharing: str) -> None:
    here = a40_host(sharing=sharing)
    (code, reason) = refusals(wanting("A40-8Q", params=UVM), here)[0]
    assert (code, "takes several A40-8Q" in reason) == ("vgpu-params", True)
    assert "series B" in refusals(wanting("A40-2B", params=UVM), here)[0][1]
    assert "Linux guests only" in refusals(wanting("A40-48Q", params=UVM, os="win11"), here)[0][1]
    for os in (None, "ubuntu-24.04"):
        assert place(wanting("A40-48Q", params=UVM, os=os), [here], []).shares


def test_a_request_by_size_gets_a_type_that_can_have_the_parameters() -> None:
    request = replace(wanting("memory>=8GiB,series=C", params=UVM))
    assert place(request, [a40_host()], []).shares[0].profile == "A40-48C"


def test_the_parameters_of_the_layout_count_too_and_the_vm_s_own_win() -> None:
    here = declaring(UVM, a40_host())
    assert refusals(wanting("A40-8Q"), here)[0][0] == "vgpu-params"
    assert place(wanting("A40-8Q", params=(("enable_uvm", "0"),)), [here], []).shares
    share = place(wanting("A40-48Q"), [here], []).shares[0]
    assert params_of(share, here.facts, here.rules, NO_LIMITER) == (*UVM, *NO_LIMITER)
    step = plan_share(share, here.facts, (*UVM, *NO_LIMITER)).steps[0]
    assert getattr(step, "params", None) == "enable_uvm=1,frame_rate_limiter=0"


def test_a_layout_that_takes_the_picture_away_serves_no_vm_that_shows_it() -> None:
    shown = DisplayRequest(DisplayKind.VNC, VideoModel.NONE, VgpuDisplay.RAMFB)
    here = declaring((("disable_vnc", "1"),), a40_host(sharing="mdev-vf"))
    assert "takes away the picture" in refusals(replace(vm("A40-8Q"), display=shown), here)[0][1]
    assert place(vm("A40-8Q"), [here], []).shares


def test_a_guest_driver_that_is_newer_than_the_host_s_is_refused_and_an_older_one_is_not() -> None:
    here = with_driver("580.95.05")
    assert refusals(wanting("A40-8Q", driver="595"), here) == [
        (
            "guest-driver",
            "the guest driver 595 cannot load beside the host's driver 580.95.05: the guest's R595 is newer than the "
            "host's R580",
        )
    ]
    for driver in (None, "580", "570.133.20", "535"):
        assert place(wanting("A40-8Q", driver=driver), [here], []).shares
    assert place(wanting("A40-8Q", driver="595"), [with_driver(None)], []).shares, "nobody knows the host's"


def test_the_host_whose_driver_goes_with_the_guest_s_is_chosen() -> None:
    fleet = Fleet([with_driver("595.45.04", "a"), with_driver("580.95.05", "b")])
    requests = [wanting("A40-8Q"), wanting("A40-8Q", driver="550.54"), wanting("A40-8Q", driver="595")]
    assert [one.host for one in map(fleet.place, requests) if one] == ["a", "b", "a"]


@pytest.mark.parametrize("capacity", [passthrough_host(), intel_vf_host()])
def test_a_device_that_the_guest_drives_alone_works_with_any_driver_of_the_host(capacity: HostCapacity) -> None:
    what = capacity.facts.gpus[0].sharing[0]
    here = replace(capacity, facts=replace(capacity.facts, nvidia_driver="535.54"))
    share = place(wanting(what, driver="595"), [here], []).shares[0]
    assert plan_share(share, here.facts, ()) == plan_share(share, here.facts)


TIME = (("exec_quantum_ms", "20"),)


def told(vgpu_params: str, first_params: str | None = None) -> HostCapacity:
    """An Intel host whose driver tells these parameters of each VF."""
    capacity = intel_vf_host()
    card = capacity.facts.gpus[0]
    vfs = tuple(replace(one, vgpu_params=vgpu_params, first_params=first_params) for one in card.vfs)
    return replace(capacity, facts=replace(capacity.facts, gpus=(replace(card, vfs=vfs),)))


def test_a_vf_gets_what_its_driver_has_and_is_refused_what_it_has_not() -> None:
    here, wanted = told("exec_quantum_ms=0,preempt_timeout_us=0,sched_priority=low"), wanting("vf", params=TIME)
    share = place(wanted, [here], []).shares[0]
    (step,) = plan_share(share, here.facts, TIME).steps
    assert step == SetVfParams(share.function, "exec_quantum_ms=20")
    assert plan_share(share, here.facts, ()).steps == plan_share(share, here.facts).steps == ()
    assert SetVfParams not in map(type, plan_release(share, here.facts).steps), "nobody has set any"
    with pytest.raises(NoCapacity) as refused:
        place(wanted, [intel_vf_host()], [])
    assert "has no exec_quantum_ms" in str(refused.value.context)


def test_what_was_set_stays_as_it_is_or_goes_back() -> None:
    here = told("exec_quantum_ms=20,preempt_timeout_us=0,sched_priority=low", "exec_quantum_ms=0")
    share = place(wanting("vf", params=TIME), [here], []).shares[0]
    back = SetVfParams(share.function, "")
    assert plan_share(share, here.facts, TIME).steps == plan_share(share, here.facts).steps == ()
    assert plan_share(share, here.facts, ()).steps == (back,)
    assert back in plan_release(share, here.facts).steps
    assert back in plan_release(share, None).steps, "of a host that was not read nobody knows"


def test_a_vf_and_a_vgpu_of_one_vm_take_each_their_own() -> None:
    both = (("exec_quantum_ms", "20"), ("frame_rate_limiter", "0"))
    intel, nvidia = told("exec_quantum_ms=0,preempt_timeout_us=0"), a40_host()
    vf = place(wanting("vf", params=both), [intel], []).shares[0]
    assert plan_share(vf, intel.facts, both).steps == (SetVfParams(vf.function, "exec_quantum_ms=20"),)
    vgpu = place(wanting("A40-8Q", params=both), [nvidia], []).shares[0]
    (step,) = plan_share(vgpu, nvidia.facts, both).steps
    assert getattr(step, "params", None) == "frame_rate_limiter=0"


def test_parameters_as_the_driver_reads_them() -> None:
    merged = merge_params((("disable_vnc", "1"), ("enable_uvm", "1")), (("enable_uvm", "0"),))
    assert params_text(merged) == "disable_vnc=1,enable_uvm=0"
    assert params_against_migration((("enable_profiling", "1"), *merged)) == ["enable_profiling"]
