# SPDX-License-Identifier: Apache-2.0
"""The link to a Kubernetes cluster, over HTTP with a stand-in for its API server (tests/kubernetes_api.py)."""

from collections.abc import Iterator

import pytest

from tests.kubernetes_api import KubernetesApi, kubernetes_api
from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
from vgpuctl.clusters.kubernetes.link import KubernetesLink
from vgpuctl.clusters.kubernetes.node_objects import CORDON_REASON
from vgpuctl.clusters.kubernetes.server_address import parse_cluster_networks
from vgpuctl.errors import ClusterRefused, ClusterUnreachable
from vgpuctl.model.secret_text import SecretText

LOOPBACK = parse_cluster_networks(["127.0.0.0/8"])
OURS = "vgpuctl://default/acme/uuid-1"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as made:
        yield made


@pytest.fixture
def link(api: KubernetesApi) -> KubernetesLink:
    return KubernetesLink(
        read_kubeconfig(SecretText.of(api.kubeconfig), LOOPBACK), tenant="acme", name="main", timeout_s=20
    )


def test_members_are_the_tenants_own_nodes_of_all_pages(api: KubernetesApi, link: KubernetesLink) -> None:
    for number in range(600):
        api.add_node(f"gpu-{number:03}", f"vgpuctl://default/acme/uuid-{number}", is_ready=number != 7)
    api.add_node("control", "k3s://control")
    api.add_node("other", "vgpuctl://default/globex/uuid-1")
    members = {one.name: one for one in link.members()}
    assert len(members) == 600
    assert members["gpu-007"].is_ready is False
    assert members["gpu-008"].is_ready is True
    assert members["gpu-008"].provider_id == "vgpuctl://default/acme/uuid-8"
    assert members["gpu-008"].allocatable["nvidia.com/gpu"] == "1"


def test_a_cordon_of_ours_is_taken_back_and_another_stays(api: KubernetesApi, link: KubernetesLink) -> None:
    api.add_node("gpu-001", OURS)
    api.add_node("gpu-002", OURS, unschedulable=True)
    for node in ("gpu-001", "gpu-002"):
        link.cordon(node, "host sim-001\nis drained")
    assert api.requests == ["PATCH /api/v1/nodes/gpu-001"]
    assert api.nodes["gpu-001"]["spec"]["unschedulable"] is True
    assert api.nodes["gpu-001"]["metadata"]["annotations"] == {CORDON_REASON: "host sim-001\\nis drained"}
    for node in ("gpu-001", "gpu-002"):
        link.uncordon(node)
    assert "unschedulable" not in api.nodes["gpu-001"]["spec"]
    assert api.nodes["gpu-001"]["metadata"]["annotations"] == {}
    assert api.nodes["gpu-002"]["spec"]["unschedulable"] is True


def test_a_drain_evicts_what_may_leave_and_names_what_stays(api: KubernetesApi, link: KubernetesLink) -> None:
    api.add_node("gpu-001", OURS)
    api.add_pod("train", "gpu-001")
    api.add_pod("serve", "gpu-001")
    api.add_pod("elsewhere", "gpu-002")
    api.add_pod("plugin", "gpu-001", owner="DaemonSet")
    api.add_pod("done", "gpu-001", phase="Succeeded")
    api.kept.add("serve")
    assert sorted(link.drain("gpu-001")) == ["ml/serve", "ml/train"]
    assert link.drain("gpu-001") == ["ml/serve"], "its budget does not allow it yet"
    api.kept.clear()
    link.drain("gpu-001")
    assert link.drain("gpu-001") == []
    assert sorted(name for _space, name in api.pods) == ["done", "elsewhere", "plugin"]


def test_only_the_node_of_the_vm_that_is_gone_is_forgotten(api: KubernetesApi, link: KubernetesLink) -> None:
    api.add_node("gpu-001", OURS)
    link.forget("gpu-001", "vgpuctl://default/acme/uuid-2")
    assert "gpu-001" in api.nodes
    link.forget("gpu-001", OURS)
    link.forget("gpu-001", OURS)
    assert api.requests == ["DELETE /api/v1/nodes/gpu-001"]
    api.add_node("gpu-003", "vgpuctl://default/globex/uuid-3")
    for _ in range(2):
        link.cordon("gpu-003", "why")
        link.forget("gpu-003", "vgpuctl://default/globex/uuid-3")
    assert "gpu-003" in api.nodes, "another tenant's node is not ours"
    assert link.drain("unknown") == []


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"boom"), (200, b"<html>"), (200, b"[]"), (200, b'{"items": 7}'), (403, b"{}"), (302, b""),
     (500, b'{"message": "\x1b[2J' + b"x" * 100_000 + b'"}')],
)  # fmt: skip
def test_answers_that_make_no_sense_are_refused(
    api: KubernetesApi, link: KubernetesLink, status: int, body: bytes
) -> None:
    api.broken = [(status, body)]
    with pytest.raises((ClusterRefused, ClusterUnreachable)) as caught:
        link.members()
    assert "list nodes" in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("odd", [7, {}, {"metadata": {"name": "x"}, "spec": 7}, {"metadata": {"name": "../x"}}])
def test_one_node_that_cannot_be_read_hides_no_other(
    api: KubernetesApi, link: KubernetesLink, odd: object, caplog: pytest.LogCaptureFixture
) -> None:
    api.nodes["odd"] = odd
    api.add_node("gpu-001", OURS)
    assert [one.name for one in link.members()] == ["gpu-001"]
    assert [one.message for one in caplog.records] == ["unreadable-objects"]


@pytest.mark.parametrize("pod", [{}, {"metadata": {}}, {"metadata": {"name": "../../nodes/x", "namespace": "ml"}}])
def test_a_pod_that_cannot_be_read_is_still_there(
    api: KubernetesApi, link: KubernetesLink, pod: dict[str, object]
) -> None:
    api.add_node("gpu-001", OURS)
    api.pods["ml", "odd"] = {**pod, "spec": {"nodeName": "gpu-001", "containers": []}}
    api.add_pod("train", "gpu-001")
    assert link.drain("gpu-001") == ["ml/train", "1 unreadable pod"]
    assert link.drain("gpu-001") == ["1 unreadable pod"]
    assert api.requests == ["POST /api/v1/namespaces/ml/pods/train/eviction"]


def test_a_node_and_a_pod_that_were_made_again_stay(api: KubernetesApi, link: KubernetesLink) -> None:
    """Each is made again between the answer that was read and the request that would hit it."""
    made_again = []

    def make_again(method: str, path: str) -> None:
        if method in ("DELETE", "POST"):
            made_again.append(path)
            api.add_node("gpu-001", OURS)
            api.add_pod("train", "gpu-001")

    api.add_node("gpu-001", OURS)
    api.add_pod("train", "gpu-001")
    api.before = make_again
    link.drain("gpu-001")
    link.forget("gpu-001", OURS)
    assert made_again == ["/api/v1/namespaces/ml/pods/train/eviction", "/api/v1/nodes/gpu-001"]
    assert ("ml", "train") in api.pods
    assert "gpu-001" in api.nodes


def test_a_node_that_answers_with_another_name_is_not_touched(api: KubernetesApi, link: KubernetesLink) -> None:
    api.add_node("gpu-001", OURS)
    api.nodes["gpu-001"]["metadata"]["name"] = "gpu-001\x1b/../other"
    for ask in (lambda: link.cordon("gpu-001", "why"), lambda: link.forget("gpu-001", OURS)):
        with pytest.raises(ClusterRefused, match="a node whose name no node can have"):
            ask()
    api.nodes["gpu-001"]["metadata"]["name"] = "gpu-002"
    link.cordon("gpu-001", "why")
    link.forget("gpu-001", OURS)
    assert api.requests == []


def test_an_operators_cordon_after_ours_stays(api: KubernetesApi, link: KubernetesLink) -> None:
    api.add_node("gpu-001", OURS)
    link.cordon("gpu-001", "why")
    del api.nodes["gpu-001"]["spec"]["unschedulable"]
    link.uncordon("gpu-001")
    assert len(api.requests) == 1, "there is nothing to take back"


def test_a_server_that_is_gone_is_unreachable() -> None:
    with kubernetes_api() as api:
        config = read_kubeconfig(SecretText.of(api.kubeconfig), LOOPBACK)
    with pytest.raises(ClusterUnreachable, match="cluster main of tenant acme"):
        KubernetesLink(config, tenant="acme", name="main", timeout_s=20).members()
