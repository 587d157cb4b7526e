# SPDX-License-Identifier: Apache-2.0
"""Steps that roll others back, in words."""

import pytest

from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import (
    STEPS,
    CreateGpuInstance,
    DestroyGpuInstance,
    SetFabricMode,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetServiceActive,
    SetUplinkBridge,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)
from vgpuctl.planner.layout import step_words
from vgpuctl.planner.layout.step_words import describe_step

GPU = "0000:41:00.0"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (SetVirtualFunctions(GPU, 0), f"have 0 VFs on {GPU}"),
        (SetMigMode(GPU, False), f"switch MIG of {GPU} off"),
        (CreateGpuInstance(GPU, "3g.20gb", 4), f"create the GPU instance 3g.20gb at 4 of {GPU}"),
        (DestroyGpuInstance(GPU, "3g.20gb", None), f"destroy the GPU instance 3g.20gb of {GPU}"),
        (SetVfProfile(GPU, "0"), f"remove the vGPU {GPU}"),
        (SetVfProfile(GPU, "692", profile="A40-8Q"), f"make the vGPU {GPU} of type A40-8Q on {GPU}"),
        (SetHeterogeneousMode(GPU, True, 4), f"switch mixed-size mode of the GPU instance at 4 of {GPU} on"),
        (SetVgpuScheduler(GPU, "equal-share", 4000), f"set the vGPU scheduler of {GPU} to equal-share with 4 ms"),
        (SetHugepages(2048, 16), "have 16 huge pages of 2 MiB"),
        (SetServiceActive("dcgm.service", True), "start dcgm.service"),
        (SetFabricMode(1, True), "write FABRIC_MODE=1 and FABRIC_MODE_RESTART=1 for Fabric Manager"),
        (SetUplinkBridge("br-provider", None), "delete the bridge br-provider"),
        (SetContainerGpus((GPU,)), f"have {GPU} in /etc/cdi/vgpuctl.json, for containers of the host"),
        (SetContainerGpus(()), "remove /etc/cdi/vgpuctl.json"),
        (SetNetworkFunction("vgn_0123456789ab"), "remove the network function vgn_0123456789ab"),
    ],
)
def test_a_step_is_told_in_words(step: Step, words: str) -> None:
    assert describe_step(step) == words


def test_every_step_has_words() -> None:
    assert set(step_words.WORDS) == set(STEPS)
