# SPDX-License-Identifier: Apache-2.0
"""The labels of nodes: always valid, the same for a template and its nodes, and true about the node's place."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet_factory import emulated_a40, host_facts
from tests.unit.node_config.pools import pool_of
from vgpuctl.agent.wire.facts import FabricFacts, Gpu, GpuTopology, NvLinks, SchedulerFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.labels import parse_label_key, parse_label_value
from vgpuctl.model.lease import Share
from vgpuctl.model.node_pool import GpuSharing, NodeRole, NodeSharing
from vgpuctl.node_config.labels import (
    GPU_LABEL,
    NodePlace,
    label_value,
    node_labels,
    refuse_kubelets_refusals,
    template_labels,
)

A40 = "0000:41:00.0"
SECOND = "0000:51:00.0"


def share(gpu: str = A40, profile: str = "A40-24Q", *, numa_node: int | None = 0) -> Share:
    return Share(gpu, Sharing.VF_PROFILE, profile, "0000:41:00.4", "565", framebuffer_mib=24576, numa_node=numa_node)


def card(address: str = A40, topology: GpuTopology | None = None, policy: str | None = None) -> Gpu:
    facts = emulated_a40(address).facts()
    scheduler = None if policy is None else SchedulerFacts(policy)
    return replace(facts, topology=topology, scheduler=scheduler)


@given(st.text(max_size=200))
def test_any_text_makes_a_valid_value(text: str) -> None:
    assert parse_label_value(label_value(text)) == label_value(text)


@given(host=st.text(min_size=1, max_size=100), rack=st.text(max_size=100), profile=st.text(min_size=1, max_size=80))
def test_the_labels_of_a_node_are_valid_whatever_its_host_and_profile_are_called(
    host: str, rack: str, profile: str
) -> None:
    place = NodePlace(host, frozenset({("rack", rack)}), None, (share(profile=profile),))
    for key, value in node_labels(pool_of(), place).items():
        assert parse_label_key(key)
        assert parse_label_value(value) == value


def test_long_texts_stay_different() -> None:
    assert label_value("a" * 80 + "1") != label_value("a" * 80 + "2")
    assert len(label_value("a" * 80)) == 63


def test_a_template_has_what_each_node_of_the_pool_has() -> None:
    pool = pool_of(labels=(("team", "vision"),))
    template = template_labels(pool)
    node = node_labels(pool, NodePlace("gpu1", shares=(share(),)))
    assert template.items() <= node.items(), "else the autoscaler makes nodes on which its pods do not fit"
    assert template["node.kubernetes.io/instance-type"] == "A40-24Q"
    assert template["topology.kubernetes.io/zone"] == "default"
    assert template[GPU_LABEL] == "A40-24Q"
    assert template["team"] == "vision"
    assert "vgpuctl.io/host" not in template


def test_a_pool_without_a_gpu_has_no_gpu_label() -> None:
    labels = node_labels(pool_of(gpu=""), NodePlace("gpu1"))
    assert labels["node.kubernetes.io/instance-type"] == "cpu-2"
    assert not [key for key in labels if "gpu" in key.partition("/")[2]]


def test_a_request_by_conditions_names_its_profile_once_it_is_placed() -> None:
    pool = pool_of(gpu="memory>=16GiB,series=Q")
    assert "vgpuctl.io/profile" not in template_labels(pool)
    assert template_labels(pool)["node.kubernetes.io/instance-type"] == "memory-16GiB-series-Q"
    assert node_labels(pool, NodePlace("gpu1", shares=(share(),)))["vgpuctl.io/profile"] == "A40-24Q"


def test_the_place_of_a_node_is_its_host_rack_and_numa_node() -> None:
    place = NodePlace("gpu1", frozenset({("rack", "r1"), ("vgpuctl.io/rack", "r2")}), shares=(share(numa_node=1),))
    labels = node_labels(pool_of(), place)
    assert labels["vgpuctl.io/host"] == "gpu1"
    assert labels["vgpuctl.io/rack"] == "r2", "the longer key is meant for vgpuctl"
    assert labels["vgpuctl.io/numa-node"] == "1"
    both = NodePlace("gpu1", shares=(share(numa_node=0), share(numa_node=1)))
    assert "vgpuctl.io/numa-node" not in node_labels(pool_of(), both), "it is on two nodes"


def test_a_promise_of_several_gpus_is_the_least() -> None:
    place = NodePlace("gpu1", shares=(share(), replace(share(), framebuffer_mib=1024)))
    labels = node_labels(pool_of(), place)
    assert (labels["vgpuctl.io/gpu-count"], labels["vgpuctl.io/gpu-memory-mib"]) == ("2", "1024")


@pytest.mark.parametrize(("policy", "percent"), [("fixed-share", "50"), ("best-effort", None), (None, None)])
def test_a_part_of_the_time_is_promised_by_the_scheduler_fixed_share_alone(
    policy: str | None, percent: str | None
) -> None:
    gpu = card(policy=policy)
    two = next(one for one in gpu.types if one.name == "A40-24Q")
    assert two.max_instances == 2
    place = NodePlace("gpu1", facts=host_facts([gpu]), shares=(replace(share(), type_id=two.type_id),))
    assert node_labels(pool_of(), place).get("vgpuctl.io/gpu-percent") == percent


def test_a_whole_card_promises_all_of_it() -> None:
    whole = Share(A40, Sharing.PASSTHROUGH, "passthrough", A40)
    labels = node_labels(pool_of(gpu="passthrough"), NodePlace("gpu1", facts=host_facts([card()]), shares=(whole,)))
    assert labels["vgpuctl.io/gpu-percent"] == "100"
    assert int(labels["vgpuctl.io/gpu-memory-mib"]) > 40_000


def test_gpus_that_nvlinks_connect_are_a_domain_of_their_host() -> None:
    linked = GpuTopology(nvlinks=(NvLinks((0,), True, SECOND, "gpu"),))
    back = GpuTopology(nvlinks=(NvLinks((0,), True, A40, "gpu"),))
    facts = host_facts([card(A40, linked), card(SECOND, back)])
    both = NodePlace("gpu1", facts=facts, shares=(share(A40), share(SECOND)))
    assert node_labels(pool_of(), both)["vgpuctl.io/nvlink-domain"] == "gpu1-0000-41-00.0"
    alone = NodePlace("gpu1", facts=host_facts([card(A40, GpuTopology(nvlinks=()))]), shares=(share(),))
    assert "vgpuctl.io/nvlink-domain" not in node_labels(pool_of(), alone)


def test_a_fabric_is_named_by_its_cluster_and_clique() -> None:
    topology = GpuTopology(fabric=FabricFacts("completed", "2b3c", 7))
    place = NodePlace("gpu1", facts=host_facts([card(A40, topology)]), shares=(share(),))
    assert node_labels(pool_of(), place)["vgpuctl.io/nvlink-domain"] == "2b3c.7"


@pytest.mark.parametrize(
    ("key", "is_refused"),
    [
        ("node-role.kubernetes.io/gpu", True),
        ("kubernetes.io/team", True),
        ("x.k8s.io/y", True),
        ("team", False),
        ("node.kubernetes.io/x", False),
        ("topology.kubernetes.io/region", False),
        ("acme.example/x", False),
    ],
)
def test_a_label_with_which_no_kubelet_starts_is_refused_and_no_other(key: str, is_refused: bool) -> None:
    try:
        refuse_kubelets_refusals([(key, "x")])
    except UsageError as error:
        assert is_refused and "a kubelet does not start" in error.message
    else:
        assert not is_refused


def test_labels_say_which_device_plugin_serves_a_node() -> None:
    assert template_labels(pool_of())["nvidia.com/device-plugin.config"] == "gpu"
    mps = template_labels(pool_of(sharing=NodeSharing(GpuSharing.MPS, 4)))
    assert mps["nvidia.com/mps.capable"] == "true"
    hami = template_labels(pool_of(sharing=NodeSharing(GpuSharing.HAMI)))
    assert (hami["gpu"], hami["nvidia.com/gpu.deploy.device-plugin"]) == ("on", "false")
    assert "nvidia.com/device-plugin.config" not in hami
    assert "nvidia.com/device-plugin.config" not in template_labels(pool_of(NodeRole.SLURM))


def test_labels_tell_the_gpu_operator_what_the_guest_has() -> None:
    pool = pool_of()
    driver = GuestDriver(DriverSource.IMAGE, toolkit=True)
    labels = template_labels(replace(pool, request=replace(pool.request, guest_driver=driver)))
    assert labels["nvidia.com/gpu.deploy.driver"] == "false"
    assert labels["nvidia.com/gpu.deploy.container-toolkit"] == "false"
    assert "nvidia.com/gpu.deploy.driver" not in template_labels(pool)
