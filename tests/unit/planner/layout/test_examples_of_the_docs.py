# SPDX-License-Identifier: Apache-2.0
"""docs/layout.md: every worked example is read, and brings an emulated board of its kind into the layout."""

import re
from pathlib import Path

import pytest

from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.inventory import load_inventory
from vgpuctl.planner.layout.plan import plan_host

PAGE = (Path(__file__).parents[4] / "docs" / "layout.md").read_text()
EXAMPLES = re.findall(r"<!-- board: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_every_board_kind_has_its_example() -> None:
    assert len(EXAMPLES) == PAGE.count("```yaml") == 10


@pytest.mark.parametrize(("board", "text"), EXAMPLES, ids=[board for board, _ in EXAMPLES])
def test_an_example_brings_its_board_into_the_layout(tmp_path: Path, board: str, text: str) -> None:
    (tmp_path / "hosts.ini").write_text("gpu1\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "gpu1.yml").write_text(text)
    layout = load_inventory([tmp_path / "hosts.ini"]).layout("gpu1")
    assert layout is not None
    host = SimulatedHost(SimulatedGpu(board))
    if board.startswith("amd"):  # gim is loaded with its option, as the example says
        (gpu,) = host.gpus.values()
        gpu.driver, gpu.total_vfs, gpu.vf_count = "gim", 8, 8
    host.services["dcgm.service"] = "dcgm.service" in layout.stop_services
    for _ in range(3):
        plan = plan_host(layout, host.facts(), made=host.shares())
        for planned in plan.steps:
            host.take(planned.step)
    plan = plan_host(layout, host.facts(), made=host.shares())
    about_gpus = [difference for difference in plan.differences if difference.gpu]
    assert (plan.steps, plan.later, about_gpus) == ((), (), [])
    assert {obstacle.code for obstacle in plan.obstacles} <= {"gpu-missing", "no-such-hugepages"}
