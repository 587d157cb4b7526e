# SPDX-License-Identifier: Apache-2.0
"""The node pools of a tenant's file on simulated hosts: made, left alone, changed, pruned."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.node.pools import ONCE, nodes, nothing_is_left, secret_file, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import operator

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
TOKEN = "K10abc::node:secret"
TENANT = """
version: 1
tenant: acme
priority: high
"""
POOL = """
node_pools:
  - name: gpu
    role: k3s
    min: 1
    max: 3
    labels: [team=vision]
    join: {server: "https://10.0.0.2:6443", token: token}
    vm: {gpus: [A40-24Q], vcpus: 1, memory: 96MiB, network: none, disk: {size: 64MiB}}
"""


def _outcomes(answer: dict[str, Any], kind: str = "node-pool") -> dict[str, str]:
    return {one["name"]: one["outcome"] for one in answer["objects"] if one["kind"] == kind}


def test_a_pool_of_the_file_is_made_once_changed_and_pruned(operator: Operator, tmp_path: Path) -> None:
    secret_file(tmp_path, "token", f"{TOKEN}\n")
    file = tmp_path / "acme.yml"
    file.write_text(TENANT + POOL)
    onboard = ("onboard", str(file))
    assert _outcomes(operator.json(*onboard, "--dry-run")) == {"gpu": "created"}
    assert operator.json("list-node-pools") == []
    made = operator.json(*onboard)
    assert _outcomes(made) == {"gpu": "created"}
    again = operator.json(*onboard)
    assert (again["changed"], _outcomes(again)) == (False, {"gpu": "unchanged"})
    assert TOKEN not in json.dumps([made, again, operator.json("list-events"), operator.json("list-node-pools")])
    operator.does(*ONCE)
    node = vms(operator)["gpu-001"]
    assert node["request"]["priority"] == 700, "as the file says for VMs that name none"

    file.write_text(TENANT + POOL.replace("max: 3", "max: 4").replace("team=vision", "team=sound"))
    dry = operator.json(*onboard, "--dry-run")["objects"]
    (planned,) = [one for one in dry if one["kind"] == "node-pool"]
    assert planned["detail"] == ["max: 3 there, 4 wanted", "labels: team=vision there, team=sound wanted"]
    assert _outcomes(operator.json(*onboard)) == {"gpu": "changed"}
    assert operator.json(*onboard)["changed"] is False
    assert vms(operator)["gpu-001"]["uuid"] == node["uuid"]
    limited = f"{TENANT}max_downtime: 30s\n" + POOL.replace("max: 3", "max: 4").replace("team=vision", "team=sound")
    file.write_text(limited)
    assert _outcomes(operator.json(*onboard)) == {"gpu": "changed"}, "nodes that are there keep their limit"
    assert operator.json(*onboard)["changed"] is False
    assert operator.json("list-node-pools")[0]["pool"]["request"]["max_downtime_s"] == 30

    file.write_text(TENANT)
    kept = operator.json(*onboard, "--prune", "--dry-run")
    assert _outcomes(operator.json(*onboard)) == {"gpu": "not in the file"}
    assert (_outcomes(kept), _outcomes(kept, "vm")) == ({"gpu": "removed"}, {}), "a node is no VM of the file"
    assert nodes(operator) == {"gpu-001": "joining"}
    assert _outcomes(operator.json(*onboard, "--prune")) == {"gpu": "removed"}
    assert operator.json("list-node-pools") == []
    assert vms(operator) == {}
    assert operator.json(*onboard, "--prune")["changed"] is False


def test_what_a_pool_cannot_change_is_refused_before_anything_is_changed(operator: Operator, tmp_path: Path) -> None:
    secret_file(tmp_path, "token", TOKEN)
    file = tmp_path / "acme.yml"
    file.write_text(TENANT + POOL)
    operator.does("onboard", str(file))
    text = TENANT + "quotas: {vms: 5}\n" + POOL.replace("96MiB", "128MiB").replace("max: 3", "cluster: k8s\n    max: 9")
    file.write_text(text)
    assert _outcomes(operator.ends(6, "onboard", str(file), "--dry-run")) == {"gpu": "differs"}
    refused = operator.is_refused("onboard", str(file))
    assert refused["context"] == ["cluster: main there, k8s wanted", "vm.memory: 96MiB there, 128MiB wanted"]
    (pool,) = operator.json("list-node-pools")
    assert pool["pool"]["maximum"] == 3
    (tenant,) = operator.json("list-tenants")
    assert tenant["quotas"] == []
    file.write_text(TENANT + POOL.replace("A40-24Q", "A40-24X").replace("gpu\n", "other\n"))
    assert "no host has a vGPU type 'A40-24X'" in operator.is_refused("onboard", str(file))["message"]
