# SPDX-License-Identifier: Apache-2.0
"""Node pools and nodes in the store, on SQLite and PostgreSQL."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import some_uuid
from vgpuctl.errors import ConcurrentChange, NotFound, StoreUnusable
from vgpuctl.model.node_pool import ClusterJoin, Node, NodePool, NodeRole, NodeState, Taint, TaintEffect
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, Vm, VmRequest, VmState
from vgpuctl.store.store import Session, Store, open_store
from vgpuctl.usecases.observed.node_pool_states import pool_rows

TOKEN, USER_DATA = "K10abc::node:secret", "#cloud-config\npassword: x\n"
POOL = NodePool(
    "gpu",
    "acme",
    NodeRole.K3S,
    VmRequest("gpu", "acme", memory_mib=4096, cloud_init=CloudInit(user_data=SecretText.of(USER_DATA))),
    maximum=4,
    minimum=1,
    cluster="k8s",
    labels=(("team", "vision"),),
    taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),),
    join=ClusterJoin("https://10.0.0.2:6443", token=SecretText.of(TOKEN), kubeconfig=SecretText.of("clusters: []")),
)


def _node(name: str, pool: str = "gpu") -> Node:
    return Node("acme", pool, name, some_uuid(), 100.0, ("17",))


@pytest.fixture
def filled(store: Store) -> Store:
    """The tenant acme with POOL."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.put_node_pool(POOL)
    return store


def test_a_pool_comes_back_as_it_was_and_its_secrets_only_with_the_key(filled: Store) -> None:
    with filled.reading() as session:
        (found,) = session.node_pools("acme")
        opened = session.with_pool_secrets(found)
        row = session._read("SELECT spec, secrets FROM node_pools")[0]
    assert found == POOL
    assert not any(secret.has_content() for secret in found.join.secrets.values())
    assert {name: one.reveal() for name, one in opened.join.secrets.items()} == {
        "token": TOKEN,
        "kubeconfig": "clusters: []",
    }
    assert opened.request.cloud_init.user_data is not None
    assert opened.request.cloud_init.user_data.reveal() == USER_DATA
    assert not any(secret in row.spec + row.secrets for secret in (TOKEN, USER_DATA))


def test_secrets_without_a_key_are_refused_and_nothing_is_written(url: str, clock: Clock, tmp_path: Path) -> None:
    with open_store(url, clock=clock, key_file=tmp_path / "missing") as opened:
        with opened.transaction() as session:
            session.add_tenant("acme")
        with pytest.raises(StoreUnusable, match="missing cannot be used"), opened.transaction() as session:
            session.put_node_pool(POOL)
        with opened.reading() as session:
            assert session.node_pools() == []


def test_the_secrets_of_another_pool_are_refused(filled: Store) -> None:
    other = replace(POOL, name="other", join=replace(POOL.join, token=SecretText.of("another")))
    with filled.transaction() as session:
        session.put_node_pool(other)
        session._write("UPDATE node_pools SET secrets = (SELECT secrets FROM node_pools WHERE name = 'gpu')")
    with filled.reading() as session, pytest.raises(StoreUnusable, match="are not its own"):
        session.with_pool_secrets(session.node_pool("acme", "other"))


def test_a_pool_that_is_put_again_keeps_its_count_and_gets_the_new_values(filled: Store, clock: Clock) -> None:
    with filled.transaction() as session:
        session.note_never_joined(POOL, 3)
        session.put_node_pool(replace(POOL, maximum=9))
    with filled.reading() as session:
        assert session.node_pool("acme", "gpu").maximum == 9
        assert session.never_joined(POOL) == (3, clock.now)
    with filled.transaction() as session:
        session.note_never_joined(POOL, 0)
        assert session.never_joined(POOL) == (0, None)


def test_a_pool_needs_its_tenant_and_an_unknown_one_is_refused(filled: Store) -> None:
    with filled.transaction() as session:
        with pytest.raises(NotFound, match="globex"):
            session.put_node_pool(replace(POOL, tenant="globex"))
        with pytest.raises(NotFound) as caught:
            session.node_pool("acme", "gpus")
    assert caught.value.hint == "there are gpu"


def test_nodes_come_back_with_what_was_noted_of_them(filled: Store) -> None:
    first, second = _node("gpu-001"), _node("gpu-002")
    seen = replace(first, running_at=110.0, joined_at=120.0, is_ready=True, seen_at=130.0)
    leaving = replace(second, leaving_at=140.0, leave_reason="scaled to 1", is_drained=True, wanted_again=True, jobs=())
    with filled.transaction() as session:
        for one in (second, first):
            session.add_node(one)
        session.note_node_seen(seen)
        session.note_node_leaving(leaving)
    with filled.reading() as session:
        assert session.nodes() == session.nodes("acme", "gpu") == [seen, leaving]
        assert session.nodes("acme", "other") == []
        assert session.node("acme", "gpu-002") == leaving
        assert session.node_of_vm(first.vm_uuid) == seen
        assert session.node("acme", "web") is session.node_of_vm(some_uuid()) is None
        assert session.node_uuids("acme", ["gpu-001", "gpu-002", "web"]) == {"gpu-001": first.vm_uuid}


def test_a_name_is_wanted_once_and_a_node_that_was_replaced_is_left_alone(filled: Store) -> None:
    first, again = _node("gpu-001"), _node("gpu-001")
    with filled.transaction() as session:
        session.add_node(first)
    with pytest.raises(ConcurrentChange), filled.transaction() as session:
        session.add_node(again)
    with filled.transaction() as session:
        assert session.delete_node(first)
        session.add_node(again)
        assert not session.delete_node(first)
        session.note_node_seen(replace(first, running_at=1.0))
        assert session.nodes() == [again]


def test_a_pool_with_nodes_cannot_be_deleted(filled: Store) -> None:
    node = _node("gpu-001")
    with filled.transaction() as session:
        session.add_node(node)
    with pytest.raises(ConcurrentChange), filled.transaction() as session:
        session.delete_node_pool(POOL)
    with filled.transaction() as session:
        assert [one.name for one in session.node_pools()] == ["gpu"]
        session.delete_node(node)
        session.delete_node_pool(POOL)
        assert session.node_pools() == []


def _run(session: Session, node: Node) -> None:
    session.add_node(node)
    session.add_vm(Vm(node.vm_uuid, POOL.request_of(node.name), "gpu1", VmState.RUNNING))


def test_the_metrics_of_a_pool_count_its_nodes_and_their_waits(filled: Store, clock: Clock) -> None:
    now = clock.now
    with filled.transaction() as session:
        _run(session, replace(_node("gpu-001"), wanted_at=now - 500))
        _run(session, replace(_node("gpu-002"), wanted_at=now - 900))
        session.add_node(replace(_node("gpu-003"), wanted_at=now - 60))
        ready, joining, _ = session.nodes()
        session.note_node_seen(replace(ready, joined_at=now - 400, is_ready=True, seen_at=now - 30))
        session.note_node_seen(replace(joining, running_at=now - 200))
        session.note_never_joined(POOL, 2)
        rows = list(pool_rows(session))
    values = {name: row.value for name, row in rows if name != "node_pool_nodes"}
    assert {row.labels[:3] for _, row in rows} == {("acme", "k8s", "gpu")}
    assert {row.labels[3]: row.value for name, row in rows if name == "node_pool_nodes"} == {
        **dict.fromkeys(map(str, NodeState), 0),
        "waiting": 1,
        "joining": 1,
        "ready": 1,
    }
    assert values == {
        "node_pool_minimum": 1,
        "node_pool_maximum": 4,
        "node_pool_available_nodes": 1,
        "node_pool_never_joined": 2,
        "node_pool_oldest_wait_seconds": 200,
        "node_pool_cluster_silence_seconds": 30,
    }


def test_nodes_of_a_cluster_that_is_not_asked_are_available_once_they_run(filled: Store, clock: Clock) -> None:
    with filled.transaction() as session:
        session.put_node_pool(replace(POOL, join=ClusterJoin("https://10.0.0.2:6443")))
        _run(session, replace(_node("gpu-001"), wanted_at=clock.now - 500))
        values = {name: row.value for name, row in pool_rows(session) if name != "node_pool_nodes"}
    assert (values["node_pool_available_nodes"], values["node_pool_oldest_wait_seconds"]) == (1, 0)
    assert "node_pool_cluster_silence_seconds" not in values
