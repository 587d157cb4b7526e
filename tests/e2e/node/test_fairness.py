# SPDX-License-Identifier: Apache-2.0
"""Quota, guarantees, priority, preemption and reservations count for nodes of pools as for any VM."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.node.pools import ONCE, api, nodes, nothing_is_left, secret_file, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.kubernetes_api import KubernetesApi

__all__ = ["api", "nothing_is_left", "operator"]
FLEET = (2, "a40")
POOL = ("create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "4", "--gpu", "A40-24Q", *SIZE)
UMBRELLA = ("--tenant", "umbrella")
NOW = ("--grace", "0", "--shutdown-timeout", "0")
WHOLE = ("--gpu", "A40-48Q", *SIZE)


@pytest.fixture(autouse=True)
def usual_quotas(operator: Operator, nothing_is_left: None) -> Iterator[None]:
    operator.does("create-tenant", "umbrella")
    yield
    usual = ("framebuffer=none", "--guaranteed", "framebuffer=none", "--reclaim", "never", "--preempt", "ask")
    for tenant in ("acme", "umbrella"):
        operator.does("set-quota", tenant, *usual, "--grace", "30")


def _reasons(operator: Operator) -> list[tuple[str, str | None]]:
    (pool,) = operator.json("list-node-pools", "gpu", *ACME)
    return [(one["state"], one["refusal"]) for one in pool["nodes"]]


def test_nodes_count_against_the_quota_of_their_tenant(operator: Operator) -> None:
    operator.does("set-quota", "acme", "framebuffer=48GiB")
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-24Q", *SIZE)
    operator.does(*POOL, "--min", "3")
    operator.does(*ONCE)
    assert _reasons(operator) == [("joining", None), ("waiting", "quota-exceeded"), ("waiting", "quota-exceeded")]
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    operator.does(*ONCE)
    assert _reasons(operator) == [("joining", None), ("joining", None), ("waiting", "quota-exceeded")]


def test_a_preemptible_node_makes_room_and_comes_back(operator: Operator) -> None:
    operator.does(*POOL, "--min", "4", "--priority", "low", "--preemptible", "requeue")
    operator.does(*ONCE)
    urgent = ("create-vm", "urgent", *UMBRELLA, "--priority", "high", *WHOLE)
    assert operator.is_refused(*urgent)["reference"] == "preemption-needed"
    (done,) = operator.json(*urgent, "--preempt", *NOW)
    preempted = {one["vm"].removeprefix("acme/") for one in done["victims"]}
    assert len(preempted) == 2
    operator.does(*ONCE)
    states = nodes(operator)
    assert {name for name, state in states.items() if state == "stopped"} == preempted
    assert len(states) == 4, "a preempted node is wanted still, and no other takes its place"
    operator.does("delete-vm", "urgent", *UMBRELLA, "--yes", "--timeout", "0")
    operator.does(*ONCE)
    assert set(nodes(operator).values()) == {"joining"}


def test_a_preempted_node_that_nobody_starts_again_is_let_go_and_the_minimum_waits(operator: Operator) -> None:
    operator.does(*POOL, "--min", "2", "--spread", "none", "--priority", "low", "--preemptible", "stop")
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    operator.does(*ONCE)
    before = {name: vm["uuid"] for name, vm in vms(operator).items()}
    operator.does("create-vm", "urgent", *UMBRELLA, "--priority", "high", *WHOLE, "--preempt", *NOW)
    assert set(nodes(operator).values()) == {"stopped"}
    operator.does(*ONCE)
    operator.does(*ONCE)
    assert set(nodes(operator).values()) == {"waiting"}
    operator.does("uncordon-host", "sim-002")
    operator.does(*ONCE)
    assert set(nodes(operator).values()) == {"joining"}
    assert not set(before.values()) & {vm["uuid"] for vm in vms(operator).values()}
    let_go = operator.json("list-events", "--kind", "node-let-go")[-1]
    assert "preempted by umbrella/urgent" in let_go["detail"]


def test_a_node_preempts_only_where_its_pool_may(operator: Operator) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", name, *UMBRELLA, "--priority", "low", "--preemptible", "stop", *WHOLE)
    operator.does(*POOL, "--min", "1", "--priority", "high")
    operator.does(*ONCE)
    assert _reasons(operator) == [("waiting", "preemption-needed")]
    operator.does("set-node-pool", "gpu", *ACME, "--min", "0")
    operator.does("delete-node-pool", "gpu", *ACME, "--yes", "--timeout", "0")
    operator.does(*POOL, "--min", "1", "--priority", "high", "--may-preempt")
    operator.does("set-quota", "umbrella", "--grace", "0")
    operator.does(*ONCE)
    assert _reasons(operator) == [("joining", None)]
    assert sorted(one["state"] for name, one in vms(operator).items() if name in ("one", "two")) == [
        "running", "stopped",
    ]  # fmt: skip


def test_nodes_on_borrowed_quota_are_given_back_to_the_tenant_that_has_a_guarantee(operator: Operator) -> None:
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=48GiB", "--reclaim", "requeue")
    operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=48GiB", "--preempt", "auto")
    operator.does(*POOL, "--min", "4")
    operator.does(*ONCE)
    assert set(nodes(operator).values()) == {"joining"}
    own = ("create-vm", "own", *UMBRELLA, "--priority", "low", "--gpu", "A40-24Q", *SIZE)
    (done,) = operator.json(*own, *NOW)
    assert [one["on_borrowed_quota"] for one in done["victims"]] == [True]
    assert sorted(nodes(operator).values()) == ["joining", "joining", "joining", "stopped"]


def test_nodes_stay_out_of_what_is_reserved_for_another(operator: Operator) -> None:
    begin, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + later)) for later in (3600, 7200))
    for host in ("sim-001", "sim-002"):
        where = ("--gpu", "A40-48Q", "--limit", host, "--from", begin, "--until", end)
        operator.does("reserve", f"training-{host}", *UMBRELLA, *where)
    operator.does(*POOL, "--min", "2")
    operator.does(*ONCE)
    assert _reasons(operator) == [("waiting", "no-capacity")] * 2
    operator.does("cancel-reservation", "--yes", "training-sim-001", *UMBRELLA)
    operator.does(*ONCE)
    assert {vm["host"] for vm in vms(operator).values()} == {"sim-001"}
    operator.does("cancel-reservation", "--yes", "training-sim-002", *UMBRELLA)


def test_a_node_whose_host_died_is_made_elsewhere(
    operator: Operator, fleet: lab.LabFolder, api: KubernetesApi, tmp_path: Path
) -> None:
    operator.does(*POOL, "--min", "2", "--kubeconfig", secret_file(tmp_path, "kubeconfig", api.kubeconfig))
    operator.does(*ONCE)
    for name, vm in vms(operator).items():
        api.add_node(name, f"vgpuctl://default/acme/{vm['uuid']}")
    operator.does(*ONCE)
    lost = [name for name, vm in vms(operator).items() if vm["host"] == "sim-001"]
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    try:
        operator.does("evacuate-host", "sim-001", "--fenced", "--reason", "no power", "--yes")
        assert api.requests == [f"PATCH /api/v1/nodes/{lost[0]}"], "its cluster is told at once"
        cordoned = api.nodes[lost[0]]["metadata"]["annotations"]["vgpuctl.io/cordon-reason"]
        assert cordoned == "its host is dead"
        operator.run(*ONCE)
        operator.run(*ONCE)
        there = vms(operator)
        assert len(lost) == 1
        assert {one["host"] for one in there.values()} == {"sim-002"}
        assert sorted(nodes(operator).values()) == ["joining", "ready"]
        assert len(there) == 2
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    with libvirt_of(operator.inventory, "sim-001") as libvirt:
        libvirt.destroy(f"acme.{lost[0]}")
    for kind in ("domain", "vgpu", "volume"):
        operator.does("gc", "--limit", "sim-001", "--kind", kind, "--yes")
    operator.does("uncordon-host", "sim-001")
