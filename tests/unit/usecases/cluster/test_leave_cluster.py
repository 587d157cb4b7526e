# SPDX-License-Identifier: Apache-2.0
"""A cluster is told before the VM of its node goes, and never keeps that VM longer than it may."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vgpuctl.errors import ClusterRefused, ClusterUnreachable, StoreUnusable
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.node_pool import Node, NodePool, NodeRole
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.store import open_store
from vgpuctl.usecases.cluster.leave_cluster import (
    LeavingNode,
    find_leaving,
    leave_cluster,
    leaving_together,
)

REQUEST = VmRequest(name="gpu-001", tenant="acme")
POOL = NodePool("gpu", "acme", NodeRole.K3S, replace(REQUEST, name="gpu"), maximum=4, drain_s=0.2)
VM = Vm("uuid-1", REQUEST, "gpu1", VmState.RUNNING)
OTHER = replace(VM, uuid="uuid-2", request=replace(REQUEST, name="gpu-002"))
NODE = Node("acme", "gpu", "gpu-001", "uuid-1", wanted_at=1.0, joined_at=2.0)


class Cluster:
    """A link that answers what a test sets. calls: what it was asked, in order. reasons: of cordons."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reasons: list[str] = []
        self.answers: dict[str, list[BaseException]] = {}
        self.left: list[str] = []
        self.cordoned: set[str] = set()

    def _asked(self, what: str) -> None:
        self.calls.append(what)
        if self.answers.get(what):
            raise self.answers[what].pop(0)

    def cordon(self, node: str, reason: str) -> bool:
        self._asked("cordon")
        self.reasons.append(reason)
        is_new = node not in self.cordoned
        self.cordoned.add(node)
        return is_new

    def drain(self, _node: str) -> Sequence[str]:
        self._asked("drain")
        return self.left


class Site:
    """A store with the node gpu-001, its cluster and its host, whose guest is in a state that a test sets."""

    def __init__(self, store: Any) -> None:
        self.cluster = Cluster()
        self.state: DomainState | None = DomainState.RUNNING
        self.said: list[str] = []
        self.asked_pools = 0
        hypervisor = SimpleNamespace(state=lambda _name, uuid: self.state)
        host = SimpleNamespace(hypervisor=hypervisor)
        self.services: Any = SimpleNamespace(
            store=store, say=self.said.append, host=lambda _name: host, cluster_link=self._link
        )

    def _link(self, _pool: NodePool) -> Any:
        self.asked_pools += 1
        return self.cluster

    def events(self) -> list[tuple[str, str]]:
        with self.services.store.reading() as session:
            return [(str(one.kind), one.detail) for one in session.events(limit=100) if one.kind.startswith("node-")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_tenant("acme")
            session.put_node_pool(POOL)
            for node in (NODE, replace(NODE, name="gpu-002", vm_uuid="uuid-2")):
                session.add_node(node)
                session.note_node_seen(node)
        yield Site(store)


def test_a_node_is_cordoned_then_drained(site: Site) -> None:
    leave_cluster(site.services, VM, "its VM is stopped")
    assert site.cluster.calls == ["cordon", "drain"]
    assert site.events() == [("node-cordoned", "its VM is stopped"), ("node-drained", "")]


def test_a_vm_that_is_no_node_costs_no_question_to_a_cluster(site: Site) -> None:
    leave_cluster(site.services, replace(VM, uuid="another"), "its VM is stopped")
    assert (site.asked_pools, site.cluster.calls, site.events()) == (0, [], [])


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_node_that_is_drained_or_whose_vm_is_off_is_not_asked_again(site: Site, *, is_drained: bool) -> None:
    if is_drained:
        with site.services.store.transaction() as session:
            session.note_node_leaving(replace(NODE, leaving_at=3.0, leave_reason="gone", is_drained=True))
    assert find_leaving(site.services, VM if is_drained else replace(VM, state=VmState.STOPPED), "why") is None
    assert site.asked_pools == 0


@pytest.mark.parametrize("state", [DomainState.SHUT_OFF, DomainState.PAUSED, None])
def test_a_guest_that_does_not_run_is_not_waited_for(site: Site, state: DomainState | None) -> None:
    site.state = state
    site.cluster.left = ["ml/train"]
    leave_cluster(site.services, VM, "its VM is stopped", 600)
    assert site.cluster.calls == ["cordon"]


def test_work_that_stays_keeps_a_vm_for_the_time_to_drain_and_is_named(site: Site) -> None:
    site.cluster.left = ["ml/train"]
    with site.services.store.transaction() as session:
        session.put_node_pool(replace(POOL, drain_s=1.0))
    began = time.monotonic()
    leave_cluster(site.services, VM, "its VM is stopped")
    assert time.monotonic() - began >= 1.0
    assert site.cluster.calls.count("drain") >= 2
    (_cordoned, (kind, detail)) = site.events()
    assert kind == "node-drained" and detail.endswith("with ml/train")


def test_a_node_that_was_changed_by_another_is_read_again(site: Site) -> None:
    site.cluster.answers["cordon"] = [ClusterRefused("node gpu-001 was just changed by another")]
    leave_cluster(site.services, VM, "its VM is reset", 0)
    assert site.cluster.calls == ["cordon", "cordon"]
    assert site.events() == [("node-cordoned", "its VM is reset")]


@pytest.mark.parametrize("error", [ClusterUnreachable("no answer"), ClusterRefused("no right")])
def test_a_cluster_that_does_not_take_it_ends_nothing(site: Site, error: ClusterUnreachable | ClusterRefused) -> None:
    site.cluster.answers["cordon"] = [error, error]
    leave_cluster(site.services, VM, "its VM is reset", 0)
    assert site.events() == [("node-not-told", f"not told that its VM is reset: {error.message}")]
    assert site.said == [f"acme/gpu-001: its cluster was not told that its VM is reset: {error.message}"]


def test_a_way_to_the_cluster_that_cannot_be_used_ends_nothing(site: Site) -> None:
    def refuse(_pool: NodePool) -> Any:
        raise StoreUnusable("no key")

    site.services.cluster_link = refuse
    leave_cluster(site.services, VM, "its VM is stopped")
    assert site.events() == [("node-not-told", "not told that its VM is stopped: no key")]


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(site: Site) -> None:
    end = threading.Event()
    site.cluster.cordon = lambda *_: end.wait()  # type: ignore[method-assign]
    leaving = find_leaving(site.services, VM, "its VM is stopped")
    assert isinstance(leaving, LeavingNode)
    (left,) = leaving.within(0.2).ask()
    end.set()
    assert left.startswith("its cluster did not answer within")


def test_nodes_that_go_one_after_another_are_cordoned_before_the_first_is_drained(site: Site) -> None:
    with leaving_together(site.services, [VM, OTHER], "its host is drained"):
        with site.services.store.reading() as session:
            assert {one.subject for one in session.open_operations()} == {"leave:uuid-1", "leave:uuid-2"}
        leave_cluster(site.services, VM, "its VM is stopped")
        leave_cluster(site.services, OTHER, "its VM is stopped")
    assert site.cluster.calls == ["cordon", "cordon", "cordon", "drain", "cordon", "drain"]
    cordoned, drained = ("node-cordoned", "its host is drained"), ("node-drained", "")
    assert site.events() == [cordoned, cordoned, drained, drained]
    with site.services.store.reading() as session:
        assert session.open_operations() == []


def test_a_cluster_that_is_silent_is_asked_for_the_first_of_many_nodes_alone(site: Site) -> None:
    site.cluster.answers["cordon"] = [ClusterUnreachable("no answer")] * 9
    with leaving_together(site.services, [VM, OTHER, replace(VM, uuid="another")], "its host is drained"):
        assert site.cluster.calls == ["cordon"]


def test_a_cluster_hears_less_than_the_operator(site: Site) -> None:
    leave_cluster(site.services, VM, "its host is dead", 0, detail="its host gpu1 is dead: no power")
    assert site.cluster.reasons == ["its host is dead"]
    assert site.events() == [("node-cordoned", "its host gpu1 is dead: no power")]
