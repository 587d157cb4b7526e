# SPDX-License-Identifier: Apache-2.0
"""The device of a lease is lost if the host was read without it. A device that could not be read is not lost."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import (
    a40_host,
    emulated_a40,
    emulated_t4,
    host_facts,
    lease,
    passthrough_host,
    whole_card,
)
from tests.unit.fleet_factory import vm as request_of
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import Gpu, HostFacts, Mdev, UnreadFunction
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
        (replace(FACTS, gpus=(), unread_functions=(UnreadFunction(VF, "EIO"),)), False),
        (replace(FACTS, gpus=(), unread_functions=(UnreadFunction("0000:41:00.1", "EIO"),)), False),
        (replace(FACTS, gpus=(), unread_functions=(UnreadFunction("0000:99:00.0", "EIO"),)), True),
        (replace(on_vf(current_type=None), unread_functions=(UnreadFunction("0000:99:00.0", "EIO"),)), True),
        (replace(on_vf(current_type=None), unread_functions=(UnreadFunction("0000:41:00.1", "EIO"),)), True),
    ],
    ids=[
        *("there", "no card", "no VFs", "no type", "other type", "unread card", "unread VF", "unread"),
        *("VF is an unread function", "unread beside no card", "unread far from no card"),
        *("unread elsewhere", "unread beside the card that was read"),
    ],
)
def test_a_device_is_lost_only_if_it_was_looked_for(facts: HostFacts, expected: bool) -> None:
    assert is_lost(vm("A40-8Q"), lease("gpu1", SHARE), facts) is expected


UUID = "5d1c3f0e-6a5e-4d0e-9d1f-2a2f0c8f8b11"
OTHER_CARD = "0000:5e:00.0"


def mdev_host(sharing: Sharing, parent: str, type_id: str) -> HostFacts:
    """Two cards whose vGPUs are mdevs; one of them has the mdev."""
    cards = [
        (emulated_a40(address, sharing) if sharing is Sharing.MDEV_VF else emulated_t4(address)).facts()
        for address in (GPU, OTHER_CARD)
    ]
    made = (Mdev(UUID, parent, type_id, None),)
    return host_facts(
        [replace(gpu, mdevs=made) if parent in (gpu.address, *(vf.address for vf in gpu.vfs)) else gpu for gpu in cards]
    )


@pytest.mark.parametrize(
    ("sharing", "function", "parent", "type_id", "reason"),
    [
        (Sharing.MDEV, GPU, GPU, "nvidia-232", None),
        (Sharing.MDEV, GPU, GPU, "nvidia-231", f"its mdev {UUID} carries "),
        (Sharing.MDEV, GPU, OTHER_CARD, "nvidia-232", f"its mdev {UUID} is on {OTHER_CARD} now, not on {GPU}"),
        (Sharing.MDEV, GPU, OTHER_CARD, "nvidia-231", f"its mdev {UUID} is on {OTHER_CARD} now, not on {GPU}"),
        (Sharing.MDEV_VF, VF, VF, "nvidia-232", None),
        (Sharing.MDEV_VF, VF, VF, "nvidia-231", f"its VF {VF} carries "),
        (Sharing.MDEV_VF, VF, "0000:41:00.5", "nvidia-232", f"its mdev {UUID} is on 0000:41:00.5 now, not on {VF}"),
        (Sharing.MDEV_VF, VF, "0000:5e:00.4", "nvidia-232", f"its mdev {UUID} is on 0000:5e:00.4 now, not on {VF}"),
    ],
)
def test_a_mediated_device_is_the_share_only_in_its_place_and_of_its_type(
    sharing: Sharing, function: str, parent: str, type_id: str, reason: str | None
) -> None:
    profile = "A40-4Q" if sharing is Sharing.MDEV_VF else "T4-4Q"
    share = Share(GPU, sharing, profile, function, "nvidia-232", UUID)
    facts = mdev_host(sharing, parent, type_id)
    assert is_lost(vm(profile), lease("gpu1", share), facts) is (reason is not None)
    found = check_kept(share, facts)
    assert found is None if reason is None else found is not None and found.startswith(reason)


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
