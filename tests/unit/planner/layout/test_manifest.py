# SPDX-License-Identifier: Apache-2.0
"""The manifest of a boot is the same whoever has the host's cards just now."""

from dataclasses import replace

import pytest

from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, PassthroughLayout, VgpuLayout
from vgpuctl.planner.layout.manifest import manifest_of


@pytest.mark.parametrize(("declared", "is_same"), [(PassthroughLayout(), True), (VgpuLayout(), False)])
def test_a_vm_that_has_the_whole_card_changes_no_manifest(
    declared: PassthroughLayout | VgpuLayout, is_same: bool
) -> None:
    layout = HostLayout((GpuLayout(GpuMatch(), declared, "gpu1.yml:3"),))
    facts = SimulatedHost(SimulatedGpu("nvidia-a40")).facts()
    (gpu,) = facts.gpus
    assert gpu.uuid is not None
    with_vm = replace(facts, gpus=(replace(gpu, uuid=None),))
    (card,) = manifest_of(layout, facts).gpus
    assert (card.uuid is None) is is_same
    assert (manifest_of(layout, facts) == manifest_of(layout, with_vm)) is is_same
