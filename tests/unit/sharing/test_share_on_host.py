# SPDX-License-Identifier: Apache-2.0
"""When the device of a lease is lost: the host was read, and does not have it. What nobody could read is not lost."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, host_facts, lease, passthrough_host, whole_card
from tests.unit.fleet_factory import vm as request_of
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import Gpu, HostFacts, UnreadFunction
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Share
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.planner.plan import check_kept
from vgpuctl.sharing.share_on_host import is_lost, missing_card

GPU, VF = "0000:41:00.0", "0000:41:00.4"
FACTS = a40_host(vgpus=["A40-8Q"]).facts
TYPE = next(one.current_type for one in FACTS.gpus[0].vfs if one.address == VF)
SHARE = Share(GPU, Sharing.VF_PROFILE, "A40-8Q", VF, TYPE)


def vm(text: str) -> Vm:
    return Vm("uuid-of-web-0", request_of(text, name="web-0"), "gpu1", VmState.STOPPED)


def with_gpu(change: Callable[[Gpu], Gpu]) -> HostFacts:
    return replace(FACTS, gpus=(change(FACTS.gpus[0]),))


def on_vf(**values: object) -> HostFacts:
    def changed(gpu: Gpu) -> Gpu:
        vfs = tuple(replace(one, **values) if one.address == VF else one for one in gpu.vfs)  # type: ignore[arg-type]
        return replace(gpu, vfs=vfs)

    return with_gpu(changed)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, False),
        (replace(FACTS, gpus=()), True),
        (with_gpu(lambda gpu: replace(gpu, vfs=())), True),
        (on_vf(current_type=None), True),
        (on_vf(current_type="1"), True),
        (with_gpu(lambda gpu: replace(gpu, vfs=(), unread=("its VFs: EIO",))), False),
        (on_vf(current_type=None, problem="EIO"), False),
        (replace(FACTS, gpus=(), unread_functions=(UnreadFunction(GPU, "EIO"),)), False),
        (replace(FACTS, gpus=(), unread_functions=(UnreadFunction("0000:99:00.0", "EIO"),)), False),
    ],
    ids=["there", "no card", "no VFs", "no type", "other type", "unread card", "unread VF", "unread", "unread other"],
)
def test_a_device_is_lost_only_if_it_was_looked_for(facts: HostFacts, expected: bool) -> None:
    assert is_lost(vm("A40-8Q"), lease("gpu1", SHARE), facts) is expected


def test_a_whole_card_is_lost_if_another_model_is_in_its_slot() -> None:
    facts = passthrough_host().facts
    share = Share(facts.gpus[0].address, Sharing.PASSTHROUGH, "passthrough", facts.gpus[0].address)
    held = lease("gpu1", share)
    other = host_facts([whole_card(share.gpu, "nvidia-a40")])
    assert not is_lost(vm("passthrough:nvidia-geforce-rtx-3090"), held, facts)
    assert is_lost(vm("passthrough:nvidia-geforce-rtx-3090"), held, other)
    assert "another card is at" in (missing_card(vm("passthrough:nvidia-geforce-rtx-3090"), held, other) or "")
    assert not is_lost(vm("passthrough"), held, other), "any card was asked for"


def test_a_kept_vf_that_carries_the_vgpu_of_somebody_else_serves_nobody() -> None:
    assert check_kept(SHARE, FACTS) is None
    assert check_kept(SHARE, on_vf(current_type=None)) is None
    assert f"its VF {VF} carries a vGPU of type 1 now" in (check_kept(SHARE, on_vf(current_type="1")) or "")


def test_a_kept_share_of_a_mig_instance_waits_for_it() -> None:
    gpu = SimulatedGpu("nvidia-h100-pcie-80gb")
    facts = SimulatedHost(gpu).facts()
    in_instance = Share(GPU, Sharing.VF_PROFILE, "H100-3-40C", VF, "1")
    assert "has no MIG instance 3g.40gb" in (check_kept(in_instance, facts) or "")
    assert check_kept(replace(in_instance, profile="H100-20C"), facts) is None
    with_mig = replace(facts, gpus=(replace(facts.gpus[0], mig_mode="enabled"),))
    assert "makes no H100-20C" in (check_kept(replace(in_instance, profile="H100-20C"), with_mig) or "")
