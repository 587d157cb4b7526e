# SPDX-License-Identifier: Apache-2.0
"""A VM whose console shows its vGPU goes where libvirt can show it, and nowhere else."""

from dataclasses import replace

from tests.unit.fleet_factory import a40_host, passthrough_host, vm
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet


def shown(what: str) -> VmRequest:
    return replace(vm(what), display=DisplayRequest(DisplayKind.VNC, VideoModel.NONE, VgpuDisplay.RAMFB))


def with_libvirt(version: str, name: str = "a") -> HostCapacity:
    capacity = a40_host(name)
    return replace(capacity, facts=replace(capacity.facts, libvirt_version=version))


def test_each_host_that_cannot_show_it_says_why() -> None:
    for request, capacity, code, said in (
        (shown("A40-8Q"), with_libvirt("10.2.0"), "libvirt-too-old", "libvirt 10.2.0 cannot show the picture"),
        (shown("passthrough"), passthrough_host(), "no-console", "only a vGPU's picture"),
    ):
        answer = explain(request, [capacity], [])
        assert isinstance(answer, list)
        assert {one.code for one in answer} == {code}
        assert said in answer[0].reason


def test_the_host_with_the_newer_libvirt_is_chosen_for_it_alone() -> None:
    fleet = Fleet([with_libvirt("10.2.0", "a"), with_libvirt("10.3.0", "b")])
    requests = (vm("A40-8Q"), shown("A40-8Q"), vm("A40-8Q"))
    assert [placement.host for placement in map(fleet.place, requests) if placement] == ["a", "b", "a"]


def test_only_the_share_that_is_shown_asks_for_it() -> None:
    fleet = Fleet([with_libvirt("10.3.0")])
    assert fleet.place(replace(shown("A40-8Q"), gpus=(*vm("A40-8Q").gpus, *vm("A40-8Q").gpus))) is not None
