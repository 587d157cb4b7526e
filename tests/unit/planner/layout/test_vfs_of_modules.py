# SPDX-License-Identifier: Apache-2.0
"""VFs that a module makes when it is loaded: how many the vendor's releases name, and the partitions they need."""

from dataclasses import replace

import pytest

from tests.unit.planner.layout.test_plan_host import plan_with
from vgpuctl.model.layout import VfLayout


@pytest.mark.parametrize(
    ("count", "code", "words"),
    [
        (8, "vfs-by-module", "partitions of 8 (CPX, NPS4, matching firmware) with `amd-smi partition`, set vf_num=8"),
        (4, "vfs-not-supported", "declare a count that they name: 1 (SPX, NPS1), 8 (CPX, NPS4, matching firmware)"),
    ],
)
def test_vfs_of_a_module_are_named_with_the_partitions_that_they_need(count: int, code: str, words: str) -> None:
    plan = plan_with(VfLayout(count), "amd-mi300x", lambda gpu: replace(gpu, driver="gim", total_vfs=8))
    (obstacle,) = plan.obstacles
    assert (obstacle.code, words in str(obstacle.remedy)) == (code, True)
