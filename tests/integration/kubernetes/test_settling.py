# SPDX-License-Identifier: Apache-2.0
"""A round of the controller over the pools of several clusters, with a stand-in for their API servers."""

import base64
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.autoscaler.pools import GROUP, make_vm, nodes, sized_pool
from tests.kubernetes_api import kubeconfig_of, kubernetes_api, serving_api
from tests.stored_fleet import open_stored
from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
from vgpuctl.clusters.kubernetes.link import KubernetesLink
from vgpuctl.clusters.kubernetes.server_address import parse_cluster_networks
from vgpuctl.errors import ClusterUnreachable
from vgpuctl.model.node_pool import ClusterJoin
from vgpuctl.model.secret_text import SecretText
from vgpuctl.usecases.cluster.timed_link import TimedLink
from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups
from vgpuctl.usecases.node.node_pools import create_node_pool
from vgpuctl.usecases.node.settle_nodes import settle_nodes
from vgpuctl.usecases.running.services import Services

TENANTS = ("acme", "globex", "initech")
JOINED = ["joined its cluster"] * 2
LOOPBACK = ("127.0.0.0/8",)


@contextlib.contextmanager
def _running_nodes(folder: Path, address: str) -> Iterator[Services]:
    """One pool for each tenant, with one node whose VM runs, and its cluster at an address."""
    key = folder / "key"
    key.write_bytes(base64.urlsafe_b64encode(bytes(range(32))))
    key.chmod(0o600)
    with open_stored(folder, ("h1",), key_file=key, cluster_networks=LOOPBACK) as services:
        for tenant in TENANTS:
            with services.store.transaction() as session:
                session.add_tenant(tenant)
            join = ClusterJoin(kubeconfig=SecretText.of(kubeconfig_of(address)))
            pool = replace(sized_pool("gpu", tenant=tenant, minimum=1), join=join)
            create_node_pool(services, pool)
            make_vm(services, nodes(services, tenant=tenant)[0])
        yield services


def test_pools_are_settled_side_by_side(tmp_path: Path) -> None:
    """No answer comes before every cluster was asked, so one after another none would come in time."""
    all_asked = threading.Barrier(len(TENANTS), timeout=8)

    def answer(_method: str, _path: str, _query: dict[str, str], _body: Any) -> tuple[int, Any]:
        all_asked.wait()
        return 200, {"items": []}

    with serving_api(answer) as address, _running_nodes(tmp_path, address) as services:
        assert settle_nodes(services, shutdown_timeout_s=0) == []
        assert not all_asked.broken


def test_a_cluster_that_fails_keeps_no_other_pool_waiting(tmp_path: Path) -> None:
    with kubernetes_api() as api, _running_nodes(tmp_path, api.address) as services:
        for tenant in TENANTS:
            (node,) = nodes(services, tenant=tenant)
            api.add_node("gpu-001", f"vgpuctl://default/{tenant}/{node.vm_uuid}")
            api.nodes[tenant] = api.nodes.pop("gpu-001")  # one stand-in for the clusters of all
        api.broken = [(500, b"boom")]
        outcomes = [one.outcome for one in settle_nodes(services, shutdown_timeout_s=0)]
        assert sorted(one.partition(":")[0] for one in outcomes) == ["its cluster is not known now", *JOINED]
        assert [one.outcome for one in settle_nodes(services, shutdown_timeout_s=0)] == JOINED[:1]


def test_the_template_is_made_of_the_least_that_ready_nodes_had(tmp_path: Path) -> None:
    with kubernetes_api() as api, _running_nodes(tmp_path, api.address) as services:
        (node,) = nodes(services)
        groups = NodeGroups(services, "acme", "main")
        estimate = groups.template(GROUP).allocatable
        api.add_node("gpu-001", f"vgpuctl://default/acme/{node.vm_uuid}")
        for said, is_ready, memory in [
            ("1500Mi", "False", estimate["memory"]),
            ("lots", "True", estimate["memory"]),
            ("1500Mi", "True", str(1500 * 2**20)),
            ("1600Mi", "True", str(1600 * 2**20)),
            ("1Mi", "False", str(1600 * 2**20)),
        ]:
            status = {"allocatable": {"cpu": "900m", "memory": said, "nvidia.com/gpu": "0"}}
            api.nodes["gpu-001"]["status"] = status | {"conditions": [{"type": "Ready", "status": is_ready}]}
            settle_nodes(services, shutdown_timeout_s=0)
            assert groups.template(GROUP).allocatable["memory"] == memory
        assert groups.template(GROUP).allocatable["cpu"] == "900m"
        assert groups.template(GROUP).allocatable["nvidia.com/gpu"] == estimate["nvidia.com/gpu"]


def test_labels_follow_a_vm_to_another_host(tmp_path: Path) -> None:
    stays = {"vgpuctl.io/pool": "gpu", "team": "vision"}
    with kubernetes_api() as api, _running_nodes(tmp_path, api.address) as services:
        (node,) = nodes(services)
        api.add_node("gpu-001", f"vgpuctl://default/acme/{node.vm_uuid}")
        about = api.nodes["gpu-001"]["metadata"]
        for labels, after in [
            (
                {"vgpuctl.io/host": "h0", "vgpuctl.io/rack": "r0", "vgpuctl.io/numa-node": "1"},
                {"vgpuctl.io/host": "h1"},
            ),
            ({"vgpuctl.io/host": "h1", "vgpuctl.io/rack": "mine"},) * 2,
            ({}, {}),
        ]:
            about["labels"] = stays | labels
            done = [one.outcome for one in settle_nodes(services, shutdown_timeout_s=0)]
            assert ("labelled for host h1" in done) == (labels != after)
            assert about["labels"] == stays | after
        assert api.requests == ["PATCH /api/v1/nodes/gpu-001"]


def test_a_stop_ends_the_round(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with kubernetes_api() as api, _running_nodes(tmp_path, api.address) as services:
        settle_nodes(services, shutdown_timeout_s=0, stop=stop)
        assert [node.running_at for tenant in TENANTS for node in nodes(services, tenant=tenant)] == [None] * 3


def test_a_round_asks_a_cluster_for_a_limited_time() -> None:
    with kubernetes_api() as api:
        text = SecretText.of(api.kubeconfig)
        link = KubernetesLink(read_kubeconfig(text, parse_cluster_networks(LOOPBACK)), tenant="acme", name="main")
        api.add_node("gpu-001", "vgpuctl://default/acme/uuid-1")
        timed = TimedLink(link, 60)
        assert [one.name for one in timed.members()] == ["gpu-001"]
        timed.cordon("gpu-001", "why")
        assert timed.drain("gpu-001") == []
        timed.uncordon("gpu-001")
        timed.refuse("gpu-001", "why")
        timed.forget("gpu-001", "vgpuctl://default/acme/uuid-1")
        assert api.nodes == {}
        late = TimedLink(link, 0)
        with pytest.raises(ClusterUnreachable, match="its cluster did not answer within 0s"):
            late.members()
        link.close()
