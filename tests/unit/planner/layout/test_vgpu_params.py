# SPDX-License-Identifier: Apache-2.0
"""Parameters that a layout declares: with new shares, and for idle ones that it made before."""

from dataclasses import replace

import pytest

from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.sharing import CreateMdev, SetVfProfile
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, VgpuLayout
from vgpuctl.planner.layout.manifest import shares_of
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.sharing.kinds import existing_vgpus

NO_LIMITER = (("frame_rate_limiter", "0"),)


def layout(params: tuple[tuple[str, str], ...], share: tuple[str, int]) -> HostLayout:
    return HostLayout((GpuLayout(GpuMatch(), VgpuLayout(shares=(share,), vgpu_params=params), "gpu1.yml:3"),))


def with_share(board: str, params: str) -> tuple[HostFacts, str]:
    """A host with one idle share, and the share's device."""
    host = SimulatedHost(SimulatedGpu(board))
    host.services = dict.fromkeys(host.services, False)
    share = ("T4-4Q", 1) if board == "nvidia-t4" else ("A40-8Q", 1)
    for _ in range(3):
        for planned in plan_host(layout((), share), host.facts()).steps:
            host.take(planned.step)
    facts = host.facts()
    (gpu,) = facts.gpus
    told = _telling(gpu, params)
    (vgpu,) = existing_vgpus(told)
    return replace(facts, gpus=(told,)), vgpu.vfio_device


def _telling(gpu: Gpu, params: str) -> Gpu:
    return replace(
        gpu,
        mdevs=tuple(replace(one, vgpu_params=params) for one in gpu.mdevs),
        vfs=tuple(replace(one, vgpu_params=params if one.current_type else None) for one in gpu.vfs),
    )


@pytest.mark.parametrize(("board", "share"), [("nvidia-t4", ("T4-4Q", 1)), ("nvidia-a40", ("A40-8Q", 1))])
def test_idle_shares_get_the_parameters_of_the_layout_and_lose_them(board: str, share: tuple[str, int]) -> None:
    for found, declared, wanted in (("", NO_LIMITER, "frame_rate_limiter=0"), ("frame_rate_limiter=0", (), "")):
        facts, device = with_share(board, found)
        plan = plan_host(layout(declared, share), facts, made={device})
        (planned,) = plan.steps
        assert isinstance(planned.step, CreateMdev | SetVfProfile)
        assert (planned.step.params, planned.step.device) == (wanted, device)
        assert planned.undo == (replace(planned.step, params=found),)
        assert [one.subject for one in plan.differences] == ["vgpu-params"]
        assert plan_host(layout(NO_LIMITER if found else (), share), facts, made={device}).steps == ()


def test_a_new_share_is_made_with_them_and_the_manifest_of_the_boot_has_them() -> None:
    host = SimulatedHost(SimulatedGpu("nvidia-t4"))
    (planned,) = plan_host(layout(NO_LIMITER, ("T4-4Q", 1)), host.facts()).steps
    assert getattr(planned.step, "params", None) == "frame_rate_limiter=0"
    facts, device = with_share("nvidia-t4", "frame_rate_limiter=0")
    (at_boot,) = shares_of(facts, [], {device})
    assert getattr(at_boot.step, "params", None) == "frame_rate_limiter=0"
