# SPDX-License-Identifier: Apache-2.0
"""Node pools on simulated hosts: their nodes are VMs like any other, made and deleted by the controller."""

import json
from pathlib import Path

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.node.pools import ONCE, nodes, nothing_is_left, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
POOL = ("create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "4", "--gpu", "A40-24Q", *SIZE)


def test_the_minimum_is_made_by_the_controller_and_its_vm_is_like_any_other(operator: Operator) -> None:
    assert operator.json(*POOL, "--min", "2")["changed"]
    assert nodes(operator) == {"gpu-001": "waiting", "gpu-002": "waiting"}
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining", "gpu-002": "joining"}
    there = vms(operator)
    (pool,) = operator.json("list-node-pools", "gpu", *ACME)
    assert pool["group"] == "acme/main/gpu/default"
    for one in pool["nodes"]:
        assert one["node"]["vm_uuid"] == there[one["node"]["name"]]["uuid"]
        assert one["provider_id"] == f"vgpuctl://default/acme/{one['node']['vm_uuid']}"
    assert {vm["host"] for vm in there.values()} == {"sim-001", "sim-002"}, "the nodes are spread over hosts"
    assert operator.json(*POOL, "--min", "2")["changed"] is False
    refused = operator.is_refused(*POOL, "--min", "1")
    assert refused["context"] == ["min: 2 there, 1 wanted"]


def test_a_pool_may_have_no_gpu(operator: Operator) -> None:
    operator.does("create-tenant", "acme")
    create = ("create-node-pool", "acme/plain", "--role", "k3s", "--max", "1", "--gpu", "none")
    assert operator.json(*create, "--dry-run")["pool"]["request"]["gpus"] == []
    assert operator.is_refused(*create, "--gpu", "A40-8Q")["reference"] == "usage"


def test_scaling_makes_nodes_and_deletes_those_that_are_let_go(operator: Operator) -> None:
    operator.does(*POOL)
    planned = operator.json("scale-node-pool", "gpu", "2", *ACME, "--dry-run")
    assert (planned["changed"], planned["wanted"]) == (True, ["gpu-001", "gpu-002"])
    assert nodes(operator) == {}
    scaled = operator.json("scale-node-pool", "gpu", "3", *ACME)
    assert scaled == {"changed": True, "size": 3, "wanted": ["gpu-001", "gpu-002", "gpu-003"], "let_go": []}
    assert operator.json("scale-node-pool", "gpu", "2", *ACME)["let_go"] == ["gpu-003"]
    assert nodes(operator) == {"gpu-001": "waiting", "gpu-002": "waiting"}, "one without a VM is gone at once"
    operator.does(*ONCE)
    assert operator.json("scale-node-pool", "gpu", "1", *ACME)["let_go"] == ["gpu-002"]
    assert nodes(operator) == {"gpu-001": "joining", "gpu-002": "leaving"}
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining"}
    assert list(vms(operator)) == ["gpu-001"]
    kinds = [one["kind"] for one in operator.json("list-events", "acme/gpu-002")]
    assert [kind for kind in kinds if kind.startswith("node-")][-4:] == [
        "node-wanted",
        "node-let-go",
        "node-drained",
        "node-gone",
    ]
    assert operator.is_refused("scale-node-pool", "gpu", "5", *ACME)["reference"] == "usage"


def test_listings_say_of_a_node_its_pool_and_its_cluster(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1", "--cluster", "k8s")
    operator.does("create-vm", "web", *ACME, *SIZE)
    of_node = ("gpu", "k8s")
    (waiting,) = operator.json("list-queue")["queue"]
    assert (waiting["node_pool"], waiting["cluster"]) == of_node
    assert "NODE POOL" in operator.does("list-queue").out
    operator.does(*ONCE)
    listed = {one["vm"]["request"]["name"]: (one["node_pool"], one["cluster"]) for one in operator.json("list-vms")}
    assert listed == {"gpu-001": of_node, "web": (None, None)}
    (node,) = operator.json("list-vms", *ACME, "--node-pool", "gpu")
    assert node["vm"]["request"]["name"] == "gpu-001"
    shown = operator.json("show-vm", "gpu-001", *ACME)
    assert (shown["node_pool"], shown["cluster"]) == of_node
    assert "of pool gpu of cluster k8s" in operator.does("show-vm", "gpu-001", *ACME).out
    subjects = {one["subject"] for one in operator.json("list-events", *ACME, "--node-pool", "gpu", "--since", "1m")}
    assert {"acme/gpu", "acme/gpu-001"} <= subjects
    assert not {"acme/web", "acme"} & subjects
    for command in ("list-vms", "list-events"):
        assert "needs its tenant" in operator.is_refused(command, "--node-pool", "gpu")["message"]
    assert operator.is_refused("list-vms", *ACME, "--node-pool", "other")["reference"] == "not-found"


def test_nodes_above_a_lowered_maximum_stay_until_they_are_let_go(operator: Operator) -> None:
    operator.does(*POOL)
    operator.does("set-node-pool", "gpu", *ACME, "--max", "3")
    operator.does("scale-node-pool", "gpu", "3", *ACME)
    operator.does(*ONCE)
    rehearsed = operator.does("set-node-pool", "gpu", *ACME, "--max", "1", "--dry-run").err
    assert "node pool acme/gpu: max: 3 -> 1" in rehearsed
    operator.does("set-node-pool", "gpu", *ACME, "--max", "1")
    operator.does(*ONCE)
    assert set(nodes(operator)) == {"gpu-001", "gpu-002", "gpu-003"}, "a lower maximum deletes nothing"
    (pool,) = operator.json("list-node-pools")
    assert (pool["size"], pool["pool"]["maximum"]) == (3, 1)
    assert operator.json("scale-node-pool", "gpu", "1", *ACME)["let_go"] == ["gpu-003", "gpu-002"]
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining"}


def test_a_node_that_is_wanted_again_is_not_made_above_a_lowered_maximum(operator: Operator) -> None:
    operator.does(*POOL)
    operator.does("set-node-pool", "gpu", *ACME, "--max", "2")
    operator.does("scale-node-pool", "gpu", "2", *ACME)
    operator.does(*ONCE)
    assert operator.json("scale-node-pool", "gpu", "1", *ACME)["let_go"] == ["gpu-002"]
    assert operator.json("scale-node-pool", "gpu", "2", *ACME)["wanted"] == ["gpu-002"]
    operator.does("set-node-pool", "gpu", *ACME, "--max", "1")
    operator.does(*ONCE)
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining"}


def test_a_pool_without_room_says_why_its_nodes_wait(operator: Operator) -> None:
    operator.does("create-node-pool", "big", *ACME, "--role", "k3s", "--max", "3", "--gpu", "A40-48Q", *SIZE)
    operator.does("scale-node-pool", "big", "3", *ACME)
    operator.does(*ONCE)
    (pool,) = operator.json("list-node-pools", "big", *ACME)
    assert [one["state"] for one in pool["nodes"]] == ["joining", "joining", "waiting"]
    assert pool["nodes"][2]["refusal"] == "no-capacity"
    assert "can take it now; " in pool["nodes"][2]["reason"], "with the most common reason"


def test_a_node_that_was_deleted_as_a_vm_is_replaced_by_the_minimum(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does(*ONCE)
    before = vms(operator)["gpu-001"]["uuid"]
    operator.does("delete-vm", "gpu-001", *ACME, "--yes", "--timeout", "0")
    operator.does(*ONCE)
    after = vms(operator)["gpu-001"]["uuid"]
    assert before != after
    assert nodes(operator) == {"gpu-001": "joining"}


def test_the_names_of_nodes_belong_to_the_pool(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1")
    refused = operator.is_refused("create-vm", "gpu-001", *ACME, *SIZE)
    assert "is a node of pool gpu" in refused["message"]
    operator.does("create-vm", "web", *ACME, *SIZE)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    assert "is taken" in operator.is_refused("rename-vm", "web", "gpu-001", *ACME)["message"]
    operator.does("create-vm", "other-001", *ACME, *SIZE)
    refused = operator.is_refused("create-node-pool", "other", *ACME, "--role", "k3s", "--max", "2", *SIZE)
    assert "named as VMs that are there: other-001" in refused["message"]


def test_a_type_that_nobody_knows_is_refused_before_nodes_wait_for_it(operator: Operator) -> None:
    refused = operator.is_refused("create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "2", "--gpu", "A40-8G")
    assert "no host has a vGPU type 'A40-8G'" in refused["message"]
    assert "A40-8Q" in refused["hint"]


def test_a_pool_is_deleted_with_its_nodes_and_only_once(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does("create-vm", "web", *ACME, *SIZE)
    operator.does(*ONCE)
    operator.does("scale-node-pool", "gpu", "2", *ACME)
    delete = ("delete-node-pool", "gpu", *ACME, "--yes", "--timeout", "0")
    assert operator.json(*delete) == {"deleted": ["acme/gpu"], "would_delete": [], "dry_run": False}
    operator.does(*ONCE)
    assert operator.json("list-node-pools") == []
    assert list(vms(operator)) == ["web"], "the node with a VM and the one that waited are gone, another VM is not"
    refused = operator.is_refused(*delete)
    assert refused["reference"] == "not-found"


def test_an_offboarded_tenant_gets_no_node_again(operator: Operator) -> None:
    operator.does("create-tenant", "leaves")
    pool = ("create-node-pool", "gpu", "--tenant", "leaves", "--role", "k3s", "--max", "3", "--min", "2", *SIZE)
    operator.does(*pool, "--gpu", "A40-24Q")
    operator.does(*ONCE)
    operator.does("offboard-tenant", "leaves", "--yes", "--timeout", "0")
    operator.does(*ONCE)
    assert operator.json("list-node-pools", "--tenant", "leaves") == []
    assert vms(operator) == {}


def test_a_node_keeps_the_name_by_which_its_cluster_knows_it(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does(*ONCE)
    operator.does("stop-vm", "gpu-001", *ACME, "--timeout", "0")
    refused = operator.is_refused("rename-vm", "gpu-001", "web", *ACME)
    assert "it is a node of pool gpu" in refused["message"]
    assert nodes(operator) == {"gpu-001": "stopped"}


_ALSO = pytest.mark.long(
    "tests/e2e/node/test_node_pools.py::test_a_controller_killed_while_it_deletes_a_node_leaves_nothing"
)


@pytest.mark.parametrize("effect", [pytest.param("1", marks=_ALSO), "3", pytest.param("5", marks=_ALSO)])
def test_a_controller_killed_while_it_deletes_a_node_leaves_nothing(operator: Operator, effect: str) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does(*ONCE)
    operator.does("set-node-pool", "gpu", *ACME, "--min", "0")
    operator.does("scale-node-pool", "gpu", "0", *ACME)
    kill_after(operator, effect, *ONCE)
    operator.does(*ONCE)
    assert nodes(operator) == {}
    assert vms(operator) == {}
    assert operator.json("repair") == []


def test_secrets_are_sealed_and_never_shown(operator: Operator, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("K10abc::node:secret\n")
    refused = operator.is_refused(*POOL, "--join-token", str(token))
    assert "may be read by every user" in refused["message"]
    token.chmod(0o600)
    made = operator.json(*POOL, "--join-token", str(token), "--join-server", "https://10.0.0.2:6443")
    assert made["pool"]["join"]["token"]["digest"].startswith("sha256:")
    assert "K10abc" not in json.dumps(made) + json.dumps(operator.json("list-events"))
    store = Path(operator.database.removeprefix("sqlite:///"))
    assert b"K10abc" not in store.read_bytes()
