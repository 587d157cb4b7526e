# SPDX-License-Identifier: Apache-2.0
"""Layouts of every kind reach simulated hosts, cost nothing the second time, and come back after a reboot."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import missing_for_simulated
from vgpuctl import lab

GPU = "0000:41:00.0"
DCGM = "nvidia-dcgm.service"
LAYOUTS: dict[str, dict[str, Any]] = {
    "sim_001": {
        "stop_services": [DCGM],
        "hugepages": {"2MiB": 64},
        "gpus": [{"match": "all", "kind": "mig-vgpu", "geometry": {"3g.40gb": 1, "2g.20gb": 2}}],
    },
    "sim_002": {
        "gpus": [
            {
                "match": "all",
                "kind": "vgpu",
                "size_mode": "mixed-size",
                "scheduler": {"policy": "equal-share"},
                "slices": {"L40S-16Q": 1, "L40S-8Q": 2},
            }
        ]
    },
    "sim_003": {"gpus": [{"match": "all", "kind": "mig", "geometry": {"3g.20gb": 1, "1g.5gb": 2}}]},
    "sim_004": {"gpus": [{"match": "all", "kind": "vf", "count": 4}]},
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """An H100, an L40S, an A100 and a Flex 170; DCGM holds the H100."""
    if missing := missing_for_simulated():
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    home: Path = tmp_path_factory.mktemp("kinds")
    fleet = layout_fleet(home, 4, "h100-pcie,l40s,a100-pcie-40gb,flex-170")
    fleet.declare(**LAYOUTS)
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def run(layouts: LayoutFleet, *arguments: str) -> dict[str, Any]:
    done = layouts.operator.run(*arguments, "--json")
    found = json.loads(done.out)
    return {one["host"]: one for one in (found["hosts"] if isinstance(found, dict) else found)}


def test_every_kind_is_reached_proven_and_restored(layouts: LayoutFleet) -> None:
    first = run(layouts, "apply-hosts", "--reset")
    assert {name: one["error"] for name, one in first.items()} == dict.fromkeys(first, None)
    reached = [profile_counts(layouts, name) for name in first]
    assert reached == [([4, 2, 2], 0, [True, True]), ([], 3, None), ([4, 1, 1], 0, [True, True]), ([], 0, None)]
    assert layouts.machine("sim-002").state().mixed_sizes == [GPU]
    second = run(layouts, "apply-hosts")
    assert [(one["changed"], one["writes"]) for one in second.values()] == [(0, 0)] * 4
    for name in first:
        lab.simulated.reboot(name, folder=layouts.folder)
    assert [profile_counts(layouts, name) for name in first] == reached, journal(layouts, "sim-001")
    checked = run(layouts, "check-hosts", "--after-reboot")
    assert {name: one["since_reboot"] for name, one in checked.items()} == {name: [] for name in checked}
    assert [one["has_drifted"] for one in checked.values()] == [False] * 4


def profile_counts(layouts: LayoutFleet, name: str) -> tuple[list[int], int, Any]:
    """Sizes of the GPU instances, number of vGPUs, MIG mode."""
    state = layouts.machine(name).state()
    sizes = sorted((one.size for one in state.instances), reverse=True)
    mode = state.mig_modes.get(GPU)
    return sizes, len(state.vgpus), list(mode) if mode else None


def journal(layouts: LayoutFleet, name: str) -> str:
    return (layouts.machine(name).root / "var/log/journal.txt").read_text()
