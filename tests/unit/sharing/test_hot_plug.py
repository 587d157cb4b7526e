# SPDX-License-Identifier: Apache-2.0
"""Each kind says whether its shares come to a guest that runs."""

import pytest

from tests.unit.fleet_factory import passthrough_host
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.lease import Share
from vgpuctl.sharing.hot_plug import PlugTime
from vgpuctl.sharing.kind import VgpuKind
from vgpuctl.sharing.kinds import VGPU_KINDS, kind_of

ADDRESS = "0000:41:00.0"


def test_a_card_with_companions_waits_for_the_next_start() -> None:
    (gpu,) = passthrough_host().facts.gpus
    kind = kind_of(Sharing.PASSTHROUGH)
    alone = Share(gpu.address, Sharing.PASSTHROUGH, "passthrough", gpu.address)
    assert kind.hot_plug(alone, VgpuDisplay.OFF).time is PlugTime.NOW
    with_audio = Share(gpu.address, Sharing.PASSTHROUGH, "passthrough", gpu.address, companions=("0000:41:00.1",))
    answer = kind.hot_plug(with_audio, VgpuDisplay.OFF)
    assert (answer.time, "one PCI function at a time" in (answer.reason or "")) == (PlugTime.NEXT_START, True)


@pytest.mark.parametrize("kind", VGPU_KINDS, ids=lambda kind: str(kind.sharing))
def test_a_vgpu_is_tried_on_request_and_never_with_ramfb(kind: VgpuKind) -> None:
    share = Share(ADDRESS, kind.sharing, "A40-8Q", ADDRESS)
    assert kind.hot_plug(share, VgpuDisplay.OFF).time is PlugTime.ON_REQUEST
    assert kind.hot_plug(share, VgpuDisplay.RAMFB).time is PlugTime.NEXT_START
