# SPDX-License-Identifier: Apache-2.0
"""GPUs with a declared layout on simulated hosts: every command that places goes by it, and nothing live is taken."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated

H100, A40, CARD = "0000:41:00.0", "0000:43:00.0", "0000:45:00.0"
SMALL = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
WHOLE_H100 = ("--gpu", "passthrough:H100", *SMALL)
MIG = {"match": {"address": H100}, "kind": "mig", "geometry": {"1g.10gb": 7}}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host: an H100 with seven live MIG instances, an A40, and a card without vGPUs."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("declared")
    fleet = layout_fleet(home, 1, "h100-pcie+a40+rtx-3090")
    fleet.declare(sim_001={"gpus": [MIG]})
    fleet.operator.does("create-tenant", "acme")
    fleet.operator.does("apply-hosts")
    fleet.operator.does("list-gpus", "--refresh")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def instances(layouts: LayoutFleet) -> int:
    """The MIG instances that the machine itself has."""
    return len(layouts.machine("sim-001").state().instances)


def codes(layouts: LayoutFleet, gpu: str, address: str) -> set[str]:
    (explained,) = layouts.operator.json("explain-vm", "any", "--gpu", gpu, *SMALL)
    return {one["code"] for one in explained["answers"] if one["gpu"] == address}


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="seconds")


def test_a_card_declared_mig_keeps_its_instances_on_every_path(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={"gpus": [MIG]})
    before, operator = instances(layouts), layouts.operator
    refused = operator.is_refused("create-vm", "whole", *WHOLE_H100)
    assert refused["reference"] == "no-capacity" and "declared mig" in str(refused["context"])
    assert "vgpuctl apply-hosts --limit sim-001" in refused["hint"] and "host_vars/sim-001.yml:" in refused["hint"]
    gang = operator.is_refused("create-vm", "both", "--count", "2", "--gang", *WHOLE_H100)
    assert gang["reference"] == "no-capacity"
    window = ("--from", _at(60), "--until", _at(3600))
    assert operator.is_refused("reserve", "later", "--tenant", "acme", "--gpu", "passthrough:H100", *window)
    assert operator.json("capacity", "--gpu", "passthrough:H100")["now"] == 0
    assert codes(layouts, "passthrough:H100", H100) == {"declared-otherwise"}
    operator.does("create-vm", "waits", "--queue", *WHOLE_H100)
    operator.does("controller", "--once")
    assert [one["entry"]["request"]["name"] for one in operator.json("list-queue")["queue"]] == ["waits"]
    operator.does("leave-queue", "--yes", "waits", "--tenant", "acme")
    assert instances(layouts) == before == 7


def test_without_a_declaration_live_instances_still_keep_the_card(layouts: LayoutFleet) -> None:
    layouts.declare()
    refused = layouts.operator.is_refused("create-vm", "whole", *WHOLE_H100)
    assert "7 MIG instances" in str(refused["context"])
    assert codes(layouts, "passthrough:H100", H100) == {"mig-on"}
    assert instances(layouts) == 7


@pytest.mark.parametrize("kind", ["off", "vgpu"])
def test_a_card_declared_otherwise_is_not_passed_through(layouts: LayoutFleet, kind: str) -> None:
    layouts.declare(sim_001={"gpus": [{"match": {"address": A40}, "kind": kind}]})
    refused = layouts.operator.is_refused("create-vm", "whole", "--gpu", "passthrough:A40", *SMALL)
    assert f"declared {kind}" in str(refused["context"])
    assert codes(layouts, "passthrough:A40", A40) == {"declared-otherwise"}


def test_a_kept_card_that_is_declared_otherwise_does_not_start(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001={"gpus": [{"match": {"address": CARD}, "kind": "passthrough"}]})
    operator.does("create-vm", "kept", "--gpu", "passthrough:rtx-3090", *SMALL)
    drift: list[dict[str, Any]] = operator.json("check-hosts", "--no-boot")
    assert drift[0]["plan"]["differences"] == []
    operator.does("stop-vm", "kept", "--tenant", "acme", "--timeout", "0")
    layouts.declare(sim_001={"gpus": [{"match": {"address": CARD}, "kind": "off"}]})
    refused = operator.is_refused("start-vm", "kept", "--tenant", "acme")
    assert "declared off" in refused["message"] and "--hold release" in refused["hint"]
    layouts.declare(sim_001={"gpus": [{"match": {"address": CARD}, "kind": "passthrough"}]})
    operator.does("start-vm", "kept", "--tenant", "acme")
    operator.does("delete-vm", "kept", "--tenant", "acme", "--yes", "--timeout", "0")


def test_a_layout_that_cannot_be_read_keeps_that_host_out(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "passthru"}]})
    refused = layouts.operator.is_refused("create-vm", "any", "--gpu", "passthrough:rtx-3090", *SMALL)
    assert refused["reference"] == "inventory" and "passthru" in refused["message"]
