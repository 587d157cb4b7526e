# SPDX-License-Identifier: Apache-2.0
"""Nodes and their Kubernetes cluster: joined, ready, never joined, drained before they go, forgotten."""

from pathlib import Path

from tests.e2e.node.pools import api, kinds, nodes, nothing_is_left, pool, round_of, secret_file, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.kubernetes_api import KubernetesApi

__all__ = ["api", "nothing_is_left", "operator", "pool"]
FLEET = (1, "a40")


def test_a_node_joins_is_ready_and_is_drained_before_it_goes(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    operator.does(*pool, "--min", "1", "--drain-timeout", "10m")
    round_of(operator)
    api.add_node("gpu-001", "vgpuctl://default/acme/another")
    round_of(operator)
    assert nodes(operator) == {"gpu-001": "joining"}, "a node with another provider id is another node"
    api.add_node("gpu-001", f"vgpuctl://default/acme/{vms(operator)['gpu-001']['uuid']}", is_ready=False)
    round_of(operator)
    assert nodes(operator) == {"gpu-001": "not-ready"}
    api.nodes["gpu-001"]["status"]["conditions"][0]["status"] = "True"
    round_of(operator)
    assert nodes(operator) == {"gpu-001": "ready"}

    api.add_pod("train", "gpu-001")
    api.kept.add("train")
    operator.does("set-node-pool", "gpu", *ACME, "--min", "0")
    operator.does("scale-node-pool", "gpu", "0", *ACME)
    told = round_of(operator)
    assert {"name": "acme/gpu-001", "outcome": "drains: ml/train"} in told
    assert nodes(operator) == {"gpu-001": "leaving"}
    assert list(vms(operator)) == ["gpu-001"], "its VM runs while its pods leave"
    api.kept.clear()
    round_of(operator)
    round_of(operator)
    assert (nodes(operator), vms(operator), api.nodes, api.pods) == ({}, {}, {}, {})
    changes = [one for one in api.requests if "eviction" not in one]
    assert changes == ["PATCH /api/v1/nodes/gpu-001", "DELETE /api/v1/nodes/gpu-001"], "cordoned first, then forgotten"
    assert kinds(operator, "acme/gpu-001")[-7:] == [
        "node-wanted",
        "node-joined",
        "node-ready",
        "node-let-go",
        "node-cordoned",
        "node-drained",
        "node-gone",
    ]


def test_pods_that_never_leave_keep_a_node_until_its_time_to_drain_is_over(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    operator.does(*pool, "--drain-timeout", "10m")
    operator.does("scale-node-pool", "gpu", "1", *ACME)
    round_of(operator)
    api.add_node("gpu-001", f"vgpuctl://default/acme/{vms(operator)['gpu-001']['uuid']}")
    round_of(operator)
    api.add_pod("stuck", "gpu-001")
    api.kept.add("stuck")
    operator.does("scale-node-pool", "gpu", "0", *ACME)
    round_of(operator, 500)
    assert nodes(operator) == {"gpu-001": "leaving"}
    api.broken = [(500, b"boom")]
    round_of(operator, 700)
    assert vms(operator) == {}
    (drained,) = [one for one in operator.json("list-events", "acme/gpu-001") if one["kind"] == "node-drained"][-1:]
    assert "ml/stuck" in drained["detail"]


def test_a_node_that_never_joins_is_deleted_and_counted_and_the_minimum_waits(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    operator.does(*pool, "--min", "1", "--join-timeout", "5m")
    round_of(operator)
    first = vms(operator)["gpu-001"]["uuid"]
    round_of(operator)
    round_of(operator, 200)
    assert nodes(operator) == {"gpu-001": "joining"}
    round_of(operator, 400)
    round_of(operator, 401)
    assert vms(operator) == {}, "it is deleted, and the minimum waits a minute or two before it tries again"
    (there,) = operator.json("list-node-pools", "gpu", *ACME)
    assert there["never_joined"] == 1
    assert "node-never-joined" in kinds(operator, "acme/gpu-001")
    round_of(operator, 600)
    round_of(operator, 601)
    assert vms(operator)["gpu-001"]["uuid"] != first


def test_a_kubeconfig_that_is_not_trusted_is_refused_before_there_is_a_pool(
    operator: Operator, api: KubernetesApi, tmp_path: Path
) -> None:
    text = api.kubeconfig.replace('"token": "a-tenants-token"', '"exec": {"command": "id"}')
    file = secret_file(tmp_path, "kubeconfig", text)
    refused = operator.is_refused(
        "create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "2", *SIZE, "--kubeconfig", file
    )
    assert "'exec'" in refused["message"]
    assert operator.json("list-node-pools") == []
