# SPDX-License-Identifier: Apache-2.0
"""Files for device plugins have the form that the plugins read, and values that they refuse are refused before."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.unit.node_config.pools import pool_of, problems
from vgpuctl.errors import UsageError
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.node_pool import GpuSharing, MigStrategy, NodePool, NodeRole, NodeSharing
from vgpuctl.node_config.device_plugin import (
    config_map,
    gpu_resource,
    hami_values,
    operator_values,
    plugin_config,
)

SHARINGS = [
    NodeSharing(),
    NodeSharing(mig_strategy=MigStrategy.SINGLE),
    NodeSharing(mig_strategy=MigStrategy.MIXED),
    NodeSharing(GpuSharing.TIME_SLICING, 4),
    NodeSharing(GpuSharing.TIME_SLICING, 2, MigStrategy.SINGLE),
    NodeSharing(GpuSharing.MPS, 4),
]
HAMI = NodeSharing(GpuSharing.HAMI)


def named(name: str, sharing: NodeSharing) -> NodePool:
    return replace(pool_of(), name=name, sharing=sharing)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_each_sharing_has_a_file_of_the_plugins_form(sharing: NodeSharing) -> None:
    assert problems("device-plugin", plugin_config(sharing)) == []


def test_the_file_says_how_gpus_are_shared() -> None:
    sliced = plugin_config(NodeSharing(GpuSharing.TIME_SLICING, 4))["sharing"]
    assert list(sliced) == ["timeSlicing"]
    assert sliced["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]
    assert list(plugin_config(NodeSharing(GpuSharing.MPS, 3))["sharing"]) == ["mps"]
    assert "sharing" not in plugin_config(NodeSharing())


SHARED: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"version": "v2"},
        {"version": "v1", "sharing": {"timeSlicing": SHARED, "mps": SHARED}},
        {"version": "v1", "sharing": {"mps": SHARED}, "flags": {"migStrategy": "single"}},
        {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}}},
        {"version": "v1", "flags": {"migStrategy": "both"}},
        {"version": "v1", "sharing": {"timeslicing": SHARED}},
    ],
)
def test_the_schema_refuses_what_the_plugin_does(wrong: dict[str, Any]) -> None:
    assert problems("device-plugin", wrong)


@pytest.mark.parametrize(
    "sharing",
    [
        NodeSharing(GpuSharing.TIME_SLICING),
        NodeSharing(GpuSharing.TIME_SLICING, 1),
        NodeSharing(GpuSharing.MPS, 4, MigStrategy.SINGLE),
        NodeSharing(GpuSharing.HAMI, None, MigStrategy.MIXED),
        NodeSharing(GpuSharing.NONE, 4),
        NodeSharing(GpuSharing.TIME_SLICING, 4, MigStrategy.MIXED),
    ],
)
def test_a_sharing_that_the_plugin_refuses_has_no_file(sharing: NodeSharing) -> None:
    with pytest.raises(UsageError):
        plugin_config(sharing)


def test_the_config_map_has_a_file_for_each_pool_that_the_plugin_serves() -> None:
    pools = [
        named("whole", NodeSharing()),
        named("sliced", NodeSharing(GpuSharing.TIME_SLICING, 4)),
        named("soft", HAMI),
        replace(pool_of(gpu=""), name="cpu"),
        replace(pool_of(NodeRole.SLURM), name="slurm"),
    ]
    made = config_map(pools)
    assert (made["kind"], list(made["data"])) == ("ConfigMap", ["whole", "sliced"])
    for text in made["data"].values():
        assert problems("device-plugin", yaml.safe_load(text)) == []


def test_the_resource_is_counted_with_those_that_share_it() -> None:
    assert gpu_resource(pool_of(gpu="2*A40-24Q")) == ("nvidia.com/gpu", 2)
    assert gpu_resource(named("sliced", NodeSharing(GpuSharing.TIME_SLICING, 4)))[1] == 4
    assert gpu_resource(named("soft", HAMI))[1] == 10


def test_the_operator_installs_what_no_guest_brings() -> None:
    bare = pool_of()
    brings = replace(
        bare,
        request=replace(bare.request, guest_driver=GuestDriver(DriverSource.IMAGE, toolkit=True)),
    )
    for pools, driver in (([bare], True), ([brings], False), ([bare, brings], True)):
        made = operator_values(pools)
        assert problems("operator-values", made) == []
        assert (made["driver"]["enabled"], made["toolkit"]["enabled"]) == (driver, driver)
        assert made["sandboxWorkloads"] == made["vgpuManager"] == {"enabled": False}


def test_hami_takes_the_place_of_nvidias_plugin() -> None:
    soft, whole = named("soft", HAMI), named("whole", NodeSharing())
    assert operator_values([soft])["devicePlugin"]["enabled"] is False
    assert operator_values([soft, whole])["devicePlugin"]["enabled"] is True, "labels of its nodes keep it off there"
    assert hami_values([whole], {}) is None
    made = hami_values([soft, whole], {"soft": ["soft-001"], "whole": ["whole-001"]})
    assert made is not None
    plugin = made["devicePlugin"]
    assert (plugin["deviceSplitCount"], plugin["deviceMemoryScaling"]) == (10, 1)
    nodes = json.loads(plugin["nodeConfiguration"]["config"])
    assert problems("hami-nodes", nodes) == []
    assert [one["name"] for one in nodes["nodeconfig"]] == ["soft-001"]


def test_the_schema_of_hamis_nodes_refuses_other_modes() -> None:
    assert problems("hami-nodes", {"nodeconfig": [{"name": "a", "operatingmode": "time-slicing"}]})
