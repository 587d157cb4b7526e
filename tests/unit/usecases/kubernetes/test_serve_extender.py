# SPDX-License-Identifier: Apache-2.0
"""The extender's verbs on an API server in memory; what it writes is consumed by a model of HAMi's plugin."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.usecases.kubernetes.gpu_cluster import NOW, GpuCluster
from vgpuctl.clusters.kubernetes import hami
from vgpuctl.errors import ClusterConflict, ClusterRefused, ClusterUnreachable
from vgpuctl.usecases.kubernetes.serve_extender import Extender

LOST = ClusterUnreachable("lost")


class Scheduler:
    """kube-scheduler's calls with nodeCacheCapable true."""

    def __init__(self, cluster: GpuCluster, **options: Any) -> None:
        self.cluster = cluster
        self.extender = Extender(cluster, lambda: NOW, lock_wait_s=0.1, **options)
        self.extender.refresh()

    def filter(self, pod: str, *names: str) -> Any:
        body = {"Pod": self.cluster.pods[pod], "Nodes": None, "NodeNames": list(names or self.cluster.nodes)}
        return json.loads(self.extender.filter(json.dumps(body).encode()))

    def fitting(self, pod: str) -> list[str]:
        found: list[str] = self.filter(pod)["NodeNames"]
        return found

    def scores(self, pod: str) -> dict[str, int]:
        body = {"pod": self.cluster.pods[pod], "nodenames": list(self.cluster.nodes)}
        return {one["Host"]: one["Score"] for one in json.loads(self.extender.prioritize(json.dumps(body).encode()))}

    def bind(self, pod: str, node: str, uid: str = "") -> str:
        body = {"PodName": pod, "PodNamespace": "ml", "PodUID": uid or f"uid-{pod}", "Node": node}
        error: str = json.loads(self.extender.bind(json.dumps(body).encode()))["Error"]
        return error

    def run(self, pod: str, node: str) -> list[tuple[str, int, int]]:
        """Bind a pod and let the plugin allocate its only container."""
        assert self.bind(pod, node) == ""
        given = self.cluster.allocate(node)
        self.cluster.pods[pod]["status"]["phase"] = "Running"
        return given

    def preempt(self, pod: str, **victims: list[str]) -> Any:
        by_node = {
            node: {"Pods": [{"UID": one} for one in uids], "NumPDBViolations": 1} for node, uids in victims.items()
        }
        body = {"Pod": self.cluster.pods[pod], "NodeNameToMetaVictims": by_node}
        found = json.loads(self.extender.preempt(json.dumps(body).encode()))["NodeNameToMetaVictims"]
        return {node: ([pod["UID"] for pod in one["Pods"]], one["NumPDBViolations"]) for node, one in found.items()}


@pytest.fixture
def cluster() -> GpuCluster:
    made = GpuCluster()
    for name in ("n1", "n2"):
        made.add_node(name, 2)
    return made


@pytest.fixture
def scheduler(cluster: GpuCluster) -> Iterator[Scheduler]:
    made = Scheduler(cluster)
    yield made
    made.extender.stop()


def test_a_pod_gets_the_part_that_it_asked_for(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=10_000, cores=30)
    assert scheduler.fitting("a") == ["n1", "n2"]
    assert max(scheduler.scores("a").values()) == 10
    assert scheduler.run("a", "n1") == [("n1-0", 10_000, 30)]
    assert hami.LOCK not in cluster.nodes["n1"]["metadata"]["annotations"]


def test_memory_is_a_percentage_or_all_of_it(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", containers=[{"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25}])
    cluster.add_pod("b")
    assert scheduler.run("a", "n1") == [("n1-0", 10_000, 0)]
    assert scheduler.run("b", "n1") == [("n1-1", 40_000, 0)]


def test_only_one_node_has_the_best_score(cluster: GpuCluster, scheduler: Scheduler) -> None:
    for at in range(8):
        cluster.add_pod(f"p{at}", mem=10_000, cores=25)
        scores = scheduler.scores(f"p{at}")
        [best] = [node for node, score in scores.items() if score == 10]
        assert all(0 <= score <= 10 for score in scores.values())
        scheduler.run(f"p{at}", best)
    # 8 quarters fill 2 of 4 GPUs, both of one node.
    assert len({pod["spec"]["nodeName"] for pod in cluster.pods.values()}) == 1


def test_whole_cores_need_an_unused_gpu(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("small", mem=100, cores=1)
    cluster.add_pod("whole", mem=100, cores=100)
    cluster.add_pod("coreless", mem=100)
    scheduler.run("small", "n1")
    assert scheduler.run("whole", "n1") == [("n1-1", 100, 100)]
    assert scheduler.run("coreless", "n1") == [("n1-0", 100, 0)]
    cluster.add_pod("second", mem=100, cores=100)
    reasons = scheduler.filter("second")["FailedNodes"]
    assert set(reasons) == {"n1"}
    assert "not enough gpucores" in reasons["n1"]


def test_slots_memory_and_cores_each_limit(cluster: GpuCluster) -> None:
    cluster.nodes.clear()
    cluster.add_node("n1", 1, count=2)
    scheduler = Scheduler(cluster)
    for name, mem, cores, reason in (
        ("a", 30_000, 10, ""),
        ("mem", 10_001, 10, "gpumem"),
        ("cores", 100, 91, "gpucores"),
        ("b", 10_000, 90, ""),
        ("slot", 1, 0, "no slot left"),
    ):
        cluster.add_pod(name, mem=mem, cores=cores)
        if reason:
            assert reason in scheduler.filter(name)["FailedNodes"]["n1"]
        else:
            scheduler.run(name, "n1")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"annotations": {hami.HANDSHAKE: "Deleted_2026-03-01 11:00:00"}}, "does not answer"),
        ({"device": {"health": False}}, "unhealthy"),
        ({"annotations": {hami.CORDON: "bad-0, bad-1"}}, "cordoned"),
        ({"device": {"mode": "mig"}}, "MIG mode"),
        ({"annotations": {hami.REGISTER: "\x1b[31m"}}, "cannot be read"),
        ({"kind": "NVIDIA-Tesla T4"}, "not asked for"),
    ],
)
def test_a_node_that_cannot_serve_says_why(cluster: GpuCluster, more: dict[str, Any], reason: str) -> None:
    cluster.add_node("bad", 2, **more)
    cluster.add_pod("a", mem=100, annotations={"nvidia.com/use-gputype": "a40"})
    answer = Scheduler(cluster).filter("a", "n1", "bad", "absent")
    assert answer["NodeNames"] == ["n1"]
    assert reason in answer["FailedAndUnresolvableNodes"]["bad"]
    assert "\x1b" not in answer["FailedAndUnresolvableNodes"]["bad"]
    assert answer["FailedAndUnresolvableNodes"]["absent"] == "vgpuctl does not know this node yet"


def test_whole_nodes_are_answered_by_whole_nodes(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    items = [{**node, "spec": {"x": 1}} for node in cluster.nodes.values()]
    body = {"pod": cluster.pods["a"], "nodes": {"metadata": {}, "items": items}, "nodenames": None}
    answer = json.loads(scheduler.extender.filter(json.dumps(body).encode()))
    assert answer["NodeNames"] is None
    assert answer["Nodes"] == {"metadata": {}, "items": items}


HOSTILE = [
    b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 1_000_000, b'{"Pod":' * 200_000,
    b'{"Pod":{"metadata":{"name":"a"},"spec":{}}}',
    b'{"Pod":{"metadata":{"name":"../x","namespace":"ml","uid":"u"},"spec":{}},"NodeNames":[]}',
    b'{"Pod":{"metadata":{"name":"a","namespace":"ml","uid":"u"},"spec":{}},"NodeNames":[7]}',
    b'{"Pod":{"metadata":{"name":"a","namespace":"ml","uid":"u"},"spec":{}},"NodeNames":["\\u001b[2J"]}',
    b'{"Pod":{"metadata":{"name":"a","namespace":"ml","uid":"u"},"spec":{}},"Nodes":{"items":[{}]}}',
    b'{"Pod":1,"pod":2}',
    b'{"Pod":{"metadata":{"name":"a","namespace":"ml","uid":"u"},"spec":{"containers":[{"resources":{"limits":'
    b'{"nvidia.com/gpu":"1e99999999"}}}]}},"NodeNames":["n1"]}',
    b'{"Pod":{"metadata":{"name":"a","namespace":"ml","uid":"u"},"spec":{"containers":[{"resources":{"limits":'
    b'{"nvidia.com/gpumem":"5"}}}]}},"NodeNames":["n1"]}',
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_body_is_refused_with_a_reason(scheduler: Scheduler, body: bytes) -> None:
    answer = json.loads(scheduler.extender.filter(body))
    assert answer["Error"] and not answer["NodeNames"]
    assert json.loads(scheduler.extender.prioritize(body)) == []
    assert json.loads(scheduler.extender.bind(body))["Error"]
    assert json.loads(scheduler.extender.preempt(body)) == {"NodeNameToMetaVictims": {}}


def test_binding_twice_is_success_and_another_node_is_not(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    assert scheduler.bind("a", "n1") == ""
    writes = [one for one in cluster.calls if one.startswith(("patch", "bind"))]
    assert scheduler.bind("a", "n1") == ""
    assert [one for one in cluster.calls if one.startswith(("patch", "bind"))] == writes
    assert "bound to n1 already" in scheduler.bind("a", "n2")
    assert "another one now" in scheduler.bind("a", "n1", uid="old")
    assert "is gone" in scheduler.bind("b", "n1")


def test_two_pods_never_get_one_device(cluster: GpuCluster, scheduler: Scheduler) -> None:
    for name in ("a", "b", "c"):
        cluster.add_pod(name, mem=30_000)
        assert "n1" in scheduler.fitting(name)
    first, second = scheduler.run("a", "n1"), scheduler.run("b", "n1")
    assert {first[0][0], second[0][0]} == {"n1-0", "n1-1"}
    assert "does not fit on n1 any more" in scheduler.bind("c", "n1")


def test_a_node_is_locked_until_the_plugin_took_the_pod(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    cluster.add_pod("b", mem=100)
    assert scheduler.bind("a", "n1") == ""
    assert "locked for another pod" in scheduler.bind("b", "n1")
    assert cluster.pods["b"]["metadata"]["annotations"] == {}
    cluster.allocate("n1")
    assert scheduler.bind("b", "n1") == ""


def test_a_lock_of_a_pod_that_is_gone_or_too_old_is_taken_over(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    cluster.add_pod("holder", mem=100)
    for text, error in (
        ("2026-03-01T11:59:00Z,ml,holder", "locked"),
        ("2026-03-01T11:59:00Z,../../x,y", "locked"),
        ("nonsense", "locked"),
        ("2026-03-01T11:54:59Z,ml,holder", ""),
    ):
        cluster.nodes["n1"]["metadata"]["annotations"][hami.LOCK] = text
        assert error in scheduler.bind("a", "n1")
    cluster.nodes["n2"]["metadata"]["annotations"][hami.LOCK] = "2026-03-01T11:59:59Z,ml,gone"
    cluster.add_pod("b", mem=100)
    assert scheduler.bind("b", "n2") == ""


@pytest.mark.parametrize("call", ["get_pod", "get_node", "patch_node", "patch_pod", "bind_pod"])
def test_a_failure_undoes_what_was_done(cluster: GpuCluster, scheduler: Scheduler, call: str) -> None:
    cluster.add_pod("a", mem=30_000)
    cluster.faults[call] = [ClusterRefused("no right")]
    assert "no right" in scheduler.bind("a", "n1")
    assert cluster.pods["a"]["metadata"]["annotations"] == {}
    assert hami.LOCK not in cluster.nodes["n1"]["metadata"]["annotations"]
    assert scheduler.extender.counts()["reserved"] == 0
    assert scheduler.run("a", "n1") == [("n1-0", 30_000, 0)]


def test_a_conflict_at_the_lock_is_tried_again(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    cluster.faults["patch_node"] = [ClusterConflict("changed")]
    assert scheduler.bind("a", "n1") == ""


def test_a_lost_answer_of_the_binding_counts_as_bound(cluster: GpuCluster, scheduler: Scheduler) -> None:
    pod = cluster.add_pod("a", mem=100)

    def bound_but_lost() -> None:
        pod["spec"]["nodeName"] = "n1"
        raise LOST

    cluster.faults["bind_pod"] = [bound_but_lost]
    assert scheduler.bind("a", "n1") == ""
    assert cluster.allocate("n1") == [("n1-0", 100, 0)]


def test_nothing_is_undone_while_nobody_knows_whether_it_is_bound(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=40_000)

    def lost() -> None:
        cluster.faults["get_pod"] = [LOST]
        raise LOST

    cluster.faults["bind_pod"] = [lost]
    assert "was lost" in scheduler.bind("a", "n1")
    assert cluster.pods["a"]["metadata"]["annotations"][hami.NODE] == "n1"
    # A restart counts the half-bound pod, and its next bind goes on.
    restarted = Scheduler(cluster)
    cluster.add_pod("b", gpu=2, mem=100, cores=100)
    assert restarted.fitting("b") == ["n2"]
    assert restarted.bind("a", "n1") == ""
    assert cluster.allocate("n1") == [("n1-0", 40_000, 0)]


def test_a_restart_knows_everything(cluster: GpuCluster, scheduler: Scheduler) -> None:
    for name in ("a", "b", "c"):
        cluster.add_pod(name, mem=30_000)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        scheduler.run(name, node)
    cluster.add_pod("d", mem=20_000)
    assert Scheduler(cluster).fitting("d") == scheduler.fitting("d") == ["n2"]
    cluster.pods["a"]["status"]["phase"] = "Succeeded"
    assert Scheduler(cluster).fitting("d") == ["n1", "n2"]
    scheduler.extender.refresh()
    assert scheduler.fitting("d") == ["n1", "n2"]
    del cluster.pods["c"]
    cluster.add_pod("e", gpu=2, mem=100, cores=100)
    scheduler.extender.refresh()
    assert scheduler.fitting("e") == ["n2"]


def test_an_api_server_that_is_lost_changes_nothing_known(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100)
    cluster.faults["list_pods"] = [LOST]
    with pytest.raises(ClusterUnreachable):
        scheduler.extender.refresh()
    assert scheduler.fitting("a") == ["n1", "n2"]


def test_several_gpus_are_of_one_numa_node(cluster: GpuCluster) -> None:
    cluster.add_node("big", 4, numa=2)
    scheduler = Scheduler(cluster)
    cluster.add_pod("one", mem=10_000, cores=10)
    cluster.add_pod("two", gpu=2, mem=10_000, cores=100)
    cluster.add_pod("bound", gpu=3, mem=10_000, annotations={"nvidia.com/numa-bind": "true"})
    assert scheduler.run("one", "big") == [("big-0", 10_000, 10)]
    assert scheduler.run("two", "big") == [("big-2", 10_000, 100), ("big-3", 10_000, 100)]
    assert "big" not in scheduler.fitting("bound")


def test_each_container_has_its_devices_at_its_position(cluster: GpuCluster, scheduler: Scheduler) -> None:
    wants = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 30_000}
    cluster.add_pod("a", init=[wants], containers=[{}, wants, wants])
    assert scheduler.bind("a", "n1") == ""
    text = cluster.pods["a"]["metadata"]["annotations"][hami.ALLOCATED]
    assert text == "n1-0,NVIDIA,30000,0:;;n1-0,NVIDIA,30000,0:;n1-1,NVIDIA,30000,0:;"
    assert [cluster.allocate("n1")[0][0] for _ in range(3)] == ["n1-0", "n1-0", "n1-1"]


def test_a_pod_may_name_its_devices(cluster: GpuCluster, scheduler: Scheduler) -> None:
    cluster.add_pod("a", mem=100, annotations={"nvidia.com/use-gpuuuid": "n2-1"})
    cluster.add_pod("b", mem=100, annotations={"nvidia.com/nouse-gpuuuid": "n1-0,n2-0"})
    assert scheduler.fitting("a") == ["n2"]
    assert scheduler.run("a", "n2") == [("n2-1", 100, 0)]
    assert scheduler.run("b", "n1") == [("n1-1", 100, 0)]


def _gang(cluster: GpuCluster, size: int, **more: Any) -> list[str]:
    names = [f"g{at}" for at in range(size)]
    for name in names:
        notes = {"scheduling.k8s.io/group-name": "job", "vgpuctl.io/gang-size": str(size)}
        cluster.add_pod(name, annotations=notes, **more)
    return names


def test_a_gang_that_does_not_fit_whole_fits_nowhere(cluster: GpuCluster, scheduler: Scheduler) -> None:
    names = _gang(cluster, 5, mem=30_000)
    answer = scheduler.filter(names[0])
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"]["n1"] == "gang job needs 5 places at the same time, 4 are free"


def test_members_are_bound_together(cluster: GpuCluster) -> None:
    cluster.nodes.clear()
    for name, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r1")):
        cluster.add_node(name, 1, labels={"vgpuctl.io/rack": rack})
    scheduler = Scheduler(cluster, gang_wait_s=60)
    first, second = _gang(cluster, 2, mem=30_000)
    errors: list[str] = []
    waiting = threading.Thread(target=lambda: errors.append(scheduler.bind(first, "n1")))
    waiting.start()
    while not scheduler.extender.counts()["reserved"]:
        assert waiting.is_alive()
    assert "nodeName" not in cluster.pods[first]["spec"]
    scores = scheduler.scores(second)
    assert scores["n3"] == 10 and scores["n2"] == 0
    assert scheduler.bind(second, "n3") == ""
    waiting.join(60)
    assert errors == [""]
    assert [cluster.pods[one]["spec"]["nodeName"] for one in (first, second)] == ["n1", "n3"]


def test_a_member_alone_is_not_bound(cluster: GpuCluster) -> None:
    scheduler = Scheduler(cluster, gang_wait_s=0.05)
    names = _gang(cluster, 2, mem=30_000)
    assert "1 of 2 members" in scheduler.bind(names[0], "n1")
    assert scheduler.extender.counts()["reserved"] == 0
    assert cluster.pods[names[0]]["metadata"]["annotations"].keys().isdisjoint(hami.WRITTEN_AT_BIND)


def test_victims_are_the_fewest_and_least_important(cluster: GpuCluster) -> None:
    cluster.nodes.clear()
    cluster.add_node("n1", 1)
    scheduler = Scheduler(cluster)
    for name, priority, mem in (("low", 1, 5_000), ("lower", 0, 5_000), ("large", 2, 20_000), ("high", 9, 10_000)):
        cluster.add_pod(name, priority=priority, mem=mem)
        scheduler.run(name, "n1")
    scheduler.extender.refresh()
    cluster.add_pod("urgent", priority=5, mem=5_000)
    assert scheduler.preempt("urgent", n1=[]) == {"n1": (["uid-lower"], 1)}
    cluster.add_pod("larger", priority=5, mem=15_000)
    assert scheduler.preempt("larger", n1=[], absent=[]) == {"n1": (["uid-large"], 1)}
    assert scheduler.preempt("larger", n1=["uid-high"]) == {"n1": (["uid-high", "uid-lower"], 1)}
    cluster.add_pod("weak", priority=0, mem=5_000)
    assert scheduler.preempt("weak", n1=[]) == {}


def test_a_pod_with_a_disruption_budget_is_spared_where_possible(cluster: GpuCluster) -> None:
    cluster.nodes.clear()
    cluster.add_node("n1", 1)
    budget = {"metadata": {"namespace": "ml"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {}}
    cluster.budgets.append(budget)
    scheduler = Scheduler(cluster)
    for name, priority, labels in (("kept", 0, {"app": "x"}), ("goes", 1, {"app": "y"})):
        cluster.add_pod(name, priority=priority, mem=20_000, labels=labels)
        scheduler.run(name, "n1")
    scheduler.extender.refresh()
    cluster.add_pod("urgent", priority=5, mem=20_000)
    assert scheduler.preempt("urgent", n1=[]) == {"n1": (["uid-goes"], 1)}
    cluster.add_pod("whole", priority=5)
    assert scheduler.preempt("whole", n1=[]) == {"n1": (["uid-goes", "uid-kept"], 2)}


def test_hamis_own_scheduler_is_noticed(cluster: GpuCluster, scheduler: Scheduler) -> None:
    scheduler.extender.require_only_scheduler()
    cluster.add_pod("sched", labels={"app.kubernetes.io/component": "hami-scheduler"})
    with pytest.raises(ClusterRefused, match="HAMi's own scheduler"):
        scheduler.extender.require_only_scheduler()


def test_a_thousand_pending_pods_are_all_placed(cluster: GpuCluster) -> None:
    cluster.nodes.clear()
    for at in range(25):
        cluster.add_node(f"n{at:02d}", 4)
    scheduler = Scheduler(cluster)
    for at in range(1000):
        cluster.add_pod(f"p{at}", mem=4_000, cores=10)
        scores = scheduler.scores(f"p{at}")
        scheduler.run(f"p{at}", max(scores, key=lambda name: scores[name]))
    cluster.add_pod("more", mem=100)
    assert scheduler.fitting("more") == []
    assert Scheduler(cluster).fitting("more") == []
