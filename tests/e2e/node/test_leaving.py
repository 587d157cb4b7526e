# SPDX-License-Identifier: Apache-2.0
"""What the cluster of a node hears when its VM is stopped, deleted or started: first the cordon, then the evictions."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.node.pools import api, nodes, nothing_is_left, pool, round_of, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from tests.kubernetes_api import KubernetesApi

__all__ = ["api", "nothing_is_left", "operator", "pool"]
FLEET = (1, "a40")
CORDON = "PATCH /api/v1/nodes/gpu-001"
NODE = "acme.gpu-001"


def a_member(operator: Operator, api: KubernetesApi, pool: tuple[str, ...], *more: str) -> None:
    """Make the node gpu-001 of a pool, a ready member of its cluster."""
    operator.does(*pool, *more)
    operator.does("scale-node-pool", "gpu", "1", *ACME)
    round_of(operator)
    api.add_node("gpu-001", f"vgpuctl://default/acme/{vms(operator)['gpu-001']['uuid']}")
    round_of(operator)
    assert nodes(operator) == {"gpu-001": "ready"}
    api.requests.clear()


def wait_until(is_so: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def told(operator: Operator) -> list[Any]:
    """The events of cordons and drains since the node has joined, in order."""
    every = operator.json("list-events", NODE)
    joined = max(number for number, one in enumerate(every) if one["kind"] == "node-joined")
    words = ("cordon", "drain", "told")
    return [one for one in every[joined:] if one["kind"].startswith("node-") and any(w in one["kind"] for w in words)]


def kinds(operator: Operator) -> list[str]:
    return [one["kind"] for one in told(operator)]


def is_cordoned(api: KubernetesApi) -> bool:
    return bool(api.nodes["gpu-001"]["spec"].get("unschedulable"))


@pytest.mark.parametrize("command", [("stop-vm",), ("delete-vm", "--yes")])
def test_a_vm_stays_until_its_pods_have_left(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...], command: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--drain-timeout", "10m")
    api.add_pod("train", "gpu-001")
    api.kept.add("train")
    running = operator.start(command[0], "gpu-001", *ACME, *command[1:], "--timeout", "0")
    wait_until(lambda: len(api.requests) >= 2)
    assert api.requests[:2] == [CORDON, "POST /api/v1/namespaces/ml/pods/train/eviction"]
    round_of(operator)
    assert is_cordoned(api), "the controller leaves the node to the command"
    assert vms(operator)["gpu-001"]["state"] == "running", "a budget keeps the pod, and the pod keeps the VM"
    api.kept.clear()
    _out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "its node drains, for at most 10m" in err
    assert api.pods == {}
    assert [(one["kind"], one["detail"]) for one in told(operator)] == [
        ("node-cordoned", f"its VM is {'stopped' if command[0] == 'stop-vm' else 'deleted'}"),
        ("node-drained", ""),
    ]


def test_a_stopped_node_that_starts_again_is_uncordoned_and_anothers_cordon_stays(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool)
    operator.does("stop-vm", "gpu-001", *ACME, "--timeout", "0")
    assert is_cordoned(api)
    round_of(operator)
    assert is_cordoned(api), "its VM is off"
    operator.does("start-vm", "gpu-001", *ACME)
    assert is_cordoned(api)
    round_of(operator)
    assert not is_cordoned(api)
    round_of(operator)
    assert api.requests == [CORDON, CORDON], "cordoned once, uncordoned once"
    assert kinds(operator) == ["node-cordoned", "node-drained", "node-uncordoned"]

    api.add_node("gpu-001", f"vgpuctl://default/acme/{vms(operator)['gpu-001']['uuid']}", unschedulable=True)
    operator.does("restart-vm", "gpu-001", *ACME, "--timeout", "0")
    round_of(operator)
    assert is_cordoned(api), "somebody else wants it so"
    assert api.requests == [CORDON, CORDON]


def test_a_run_that_is_killed_while_the_node_drains_has_stopped_nothing(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--drain-timeout", "10m")
    api.add_pod("train", "gpu-001")
    api.kept.add("train")
    for command in (("delete-vm", "--yes"), ("stop-vm",)):
        api.requests.clear()
        running = operator.start(command[0], "gpu-001", *ACME, *command[1:], "--timeout", "0")
        wait_until(lambda: len(api.requests) >= 2)
        running.kill()
        running.communicate(timeout=60)
        round_of(operator)
        round_of(operator)
        assert vms(operator)["gpu-001"]["state"] == "running"
        assert not is_cordoned(api), "the node works on"
    api.kept.clear()
    operator.does("stop-vm", "gpu-001", *ACME, "--timeout", "0")
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    assert (is_cordoned(api), api.pods) == (True, {})


def test_a_cluster_that_refuses_keeps_no_vm_longer_than_its_time_to_drain(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--drain-timeout", "2s")
    api.add_pod("train", "gpu-001")
    api.broken = [(500, b"boom")] * 50
    operator.does("stop-vm", "gpu-001", *ACME, "--timeout", "0")
    detail = told(operator)[-1]["detail"]
    assert detail.startswith("after 2s, with ") and "500" in detail
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    assert api.requests == []


@pytest.mark.parametrize("command", [("stop-vm", "--no-drain", "--timeout", "0"), ("force-off",)])
def test_a_vm_that_does_not_wait_is_cordoned_and_its_pods_are_left(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...], command: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--drain-timeout", "10m")
    api.add_pod("train", "gpu-001")
    operator.does(command[0], "gpu-001", *ACME, *command[1:])
    assert api.requests == [CORDON]
    assert kinds(operator) == ["node-cordoned"]
    operator.does("start-vm", "gpu-001", *ACME)
    operator.does("reset-vm", "gpu-001", *ACME)
    assert api.requests == [CORDON], "one cordon is enough"
    round_of(operator)
    api.broken = [(500, b"boom")] * 50
    operator.does(command[0], "gpu-001", *ACME, *command[1:])
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    assert kinds(operator) == ["node-cordoned", "node-uncordoned", "node-not-told"]
    assert told(operator)[-1]["detail"].startswith("not told that its VM is stopped: the API server refused")
