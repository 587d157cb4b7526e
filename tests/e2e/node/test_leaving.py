# SPDX-License-Identifier: Apache-2.0
"""A node is cordoned and drained in its cluster before its VM is stopped, and uncordoned when the VM runs again."""

import signal
import subprocess
from typing import Any

import pytest

from tests.e2e.node.pools import api, nodes, nothing_is_left, pool, round_of, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.kubernetes_api import KubernetesApi
from tests.slurm_fixture import wait_until

__all__ = ["api", "nothing_is_left", "operator", "pool"]
FLEET = (1, "a40")
CORDON = "PATCH /api/v1/nodes/gpu-001"
NODE = "acme/gpu-001"
ORDER = ("vm-preemption-notice", "node-cordoned", "node-drained", "vm-preempted", "vm-stopped")


def a_member(operator: Operator, api: KubernetesApi, pool: tuple[str, ...], *more: str) -> None:
    """Make the node gpu-001 of a pool, a ready member of its cluster."""
    operator.does(*pool, *more)
    operator.does("scale-node-pool", "gpu", "1", *ACME)
    round_of(operator)
    api.add_node("gpu-001", f"vgpuctl://default/acme/{vms(operator)['gpu-001']['uuid']}")
    round_of(operator)
    assert nodes(operator) == {"gpu-001": "ready"}
    api.requests.clear()


def while_a_pod_stays(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...], command: tuple[str, ...]
) -> "subprocess.Popen[str]":
    """Start a command for a node whose pod may not be evicted. It waits when this returns."""
    a_member(operator, api, pool, "--drain-timeout", "10m")
    api.add_pod("train", "gpu-001")
    api.kept.add("train")
    running = operator.start(command[0], "gpu-001", *ACME, *command[1:], "--timeout", "0")
    wait_until(lambda: len(api.requests) >= 2, "the cluster was not told")
    return running


def since_joined(operator: Operator) -> list[Any]:
    """The events of the node and its VM since it has joined, in order."""
    every = operator.json("list-events", NODE)
    joined = max(number for number, one in enumerate(every) if one["kind"] == "node-joined")
    return list(every[joined:])


def told(operator: Operator) -> list[Any]:
    """Those of cordons and drains."""
    kinds = ("node-cordoned", "node-drained", "node-not-told", "node-uncordoned")
    return [one for one in since_joined(operator) if one["kind"] in kinds]


def kinds(operator: Operator) -> list[str]:
    return [one["kind"] for one in told(operator)]


def is_cordoned(api: KubernetesApi) -> bool:
    return bool(api.nodes["gpu-001"]["spec"].get("unschedulable"))


def reason(api: KubernetesApi) -> str:
    return str(api.nodes["gpu-001"]["metadata"]["annotations"]["vgpuctl.io/cordon-reason"])


_DELETED = pytest.mark.long(
    "tests/e2e/node/test_leaving.py::test_a_vm_stays_until_its_pods_have_left",
    "tests/e2e/node/test_leaving.py::test_a_run_that_ends_while_the_node_drains_has_stopped_nothing",
)
_RESTARTED = pytest.mark.long(
    "tests/e2e/node/test_leaving.py::test_a_run_that_ends_while_the_node_drains_has_stopped_nothing"
)


@pytest.mark.parametrize("command", [("stop-vm",), pytest.param(("delete-vm", "--yes"), marks=_DELETED)])
def test_a_vm_stays_until_its_pods_have_left(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...], command: tuple[str, ...]
) -> None:
    running = while_a_pod_stays(operator, api, pool, command)
    assert api.requests[:2] == [CORDON, "POST /api/v1/namespaces/ml/pods/train/eviction"]
    round_of(operator)
    assert is_cordoned(api), "the controller leaves the node to the command"
    assert vms(operator)["gpu-001"]["state"] == "running", "a budget keeps the pod, and the pod keeps the VM"
    api.kept.clear()
    _out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "acme/gpu-001: its node drains, for at most 10m\nacme/gpu-001: waits for ml/train\n" in err
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


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (("delete-vm", "--yes"), signal.SIGKILL),
        pytest.param(("restart-vm",), signal.SIGINT, marks=_RESTARTED),
    ],
)
def test_a_run_that_ends_while_the_node_drains_has_stopped_nothing(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...], command: tuple[str, ...], end: signal.Signals
) -> None:
    running = while_a_pod_stays(operator, api, pool, command)
    running.send_signal(end)
    running.communicate(timeout=60)
    assert running.returncode not in (0, None)
    there = vms(operator)["gpu-001"]
    assert (there["state"], there["problem"]) == ("running", None)
    round_of(operator)
    assert not is_cordoned(api), "the node works on"
    api.kept.clear()
    operator.does("stop-vm", "gpu-001", *ACME, "--timeout", "0")
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


def test_a_vm_that_does_not_wait_is_cordoned_and_its_pods_are_left(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--drain-timeout", "10m")
    api.add_pod("train", "gpu-001")
    operator.does("stop-vm", "gpu-001", *ACME, "--no-drain", "--timeout", "0")
    operator.does("start-vm", "gpu-001", *ACME)
    operator.does("restart-vm", "gpu-001", *ACME, "--reset")
    restarted = ("--restart", "--no-drain", "--shutdown-timeout", "0")
    operator.does("resize-vm", "gpu-001", *ACME, "--vcpus", "2", *restarted)
    assert api.requests == [CORDON], "one cordon is enough"
    round_of(operator)
    api.broken = [(500, b"boom")] * 50
    operator.does("stop-vm", "gpu-001", *ACME, "--force")
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    assert kinds(operator) == ["node-cordoned", "node-uncordoned", "node-not-told"]
    assert told(operator)[-1]["detail"].startswith("not told that its VM is stopped: the API server refused")


def test_a_preempted_node_drains_in_its_grace_period(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool, "--priority", "low", "--preemptible", "stop")
    api.add_pod("train", "gpu-001")
    api.add_pod("stuck", "gpu-001")
    api.kept.add("stuck")
    urgent = ("create-vm", "urgent", *ACME, *SIZE, "--priority", "high", "--gpu", "A40-48Q")
    operator.does(*urgent, "--preempt", "--grace", "4", "--shutdown-timeout", "0")
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    assert api.requests[:3] == [
        CORDON,
        "POST /api/v1/namespaces/ml/pods/train/eviction",
        "POST /api/v1/namespaces/ml/pods/stuck/eviction",
    ]
    assert [(one["kind"], one["detail"]) for one in told(operator)] == [
        ("node-cordoned", "it is preempted by acme/urgent"),
        ("node-drained", "after 4s, with ml/stuck"),
    ]
    assert reason(api) == "it is preempted", "a tenant's cluster does not hear of others"
    assert [one["kind"] for one in since_joined(operator) if one["kind"] in ORDER] == list(ORDER)


def test_the_nodes_of_a_drained_host_leave_their_cluster_before_they_stop(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool)
    api.add_pod("train", "gpu-001")
    operator.does("drain-host", "sim-001", "--stop", "--reason", "new PSU", "--yes", "--shutdown-timeout", "0")
    assert api.requests == [CORDON, "POST /api/v1/namespaces/ml/pods/train/eviction"]
    assert told(operator)[0]["detail"] == "its host sim-001 is drained: new PSU"
    assert reason(api) == "its host is drained"
    assert vms(operator)["gpu-001"]["state"] == "stopped"
    operator.does("uncordon-host", "sim-001", "--start", "--force")
    round_of(operator)
    assert not is_cordoned(api)
    api.requests.clear()
    api.add_pod("train", "gpu-001")
    operator.does(
        "drain-host", "sim-001", "--stop", "--no-drain", "--reason", "smoke", "--yes", "--shutdown-timeout", "0"
    )
    assert api.requests == [CORDON]
    operator.does("uncordon-host", "sim-001", "--start", "--force")


def test_a_node_on_a_gpu_in_quarantine_is_cordoned_and_works_on(
    operator: Operator, api: KubernetesApi, pool: tuple[str, ...]
) -> None:
    a_member(operator, api, pool)
    api.add_pod("train", "gpu-001")
    (vm,) = operator.json("list-vms")
    sick = ("sim-001", vm["leases"][0]["share"]["gpu"], "--reason", "it hums")
    api.broken = [(500, b"boom")] * 2
    operator.does("quarantine-gpu", *sick)
    assert not is_cordoned(api)
    round_of(operator)
    assert is_cordoned(api), "the controller tells it what the command could not"
    assert reason(api) == "its GPU is in quarantine"
    round_of(operator)
    assert api.requests == [CORDON], "and evicts nothing"
    operator.does("unquarantine-gpu", *sick)
    round_of(operator)
    assert not is_cordoned(api)
    told = operator.does("quarantine-gpu", *sick).err
    assert f"acme/gpu-001 is on {sick[0]} {sick[1]} and goes on; `vgpuctl move-vm acme/gpu-001` moves it" in told
    assert is_cordoned(api), "at once where the cluster answers"
    operator.does("unquarantine-gpu", *sick)
    assert kinds(operator)[:3] == ["node-not-told", "node-cordoned", "node-uncordoned"]
    assert vms(operator)["gpu-001"]["state"] == "running"
