# SPDX-License-Identifier: Apache-2.0
"""export dra over simulated hosts: slices of the form of Kubernetes, of what is free."""

import pytest
import yaml

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.unit.node_config.pools import problems

__all__ = ["operator"]
FLEET = (2, "a40")


@pytest.fixture(autouse=True)
def no_vm_is_left(operator: Operator) -> object:
    yield
    operator.delete_all_vms()


def test_the_fleet_is_a_pool_for_each_host_of_what_is_free(operator: Operator) -> None:
    before = operator.json("export", "dra")
    assert {one["spec"]["pool"]["name"] for one in before} == {"sim-001", "sim-002"}
    for one in before:
        assert problems("resource-slice", one) == []
    text = operator.does("export", "dra", "sim-001").out
    only = [one for one in before if one["spec"]["pool"]["name"] == "sim-001"]
    assert list(yaml.safe_load_all(text)) == only
    assert operator.json("export", "dra", "sim-*1") == operator.json("export", "dra", "-l", "sim-001") == only
    operator.does("create-vm", "one", *ACME, *SIZE, "--gpu", "A40-24Q", "--host", "sim-001")
    after = operator.json("export", "dra", "sim-001")
    (vm,) = operator.json("list-vms")
    used = vm["leases"][0]["share"]["gpu"]
    here = [
        one["attributes"]
        for each in after
        for one in each["spec"].get("devices", ())
        if one["attributes"]["resource.kubernetes.io/pciBusID"]["string"] == used
    ]
    assert [one["gpu.nvidia.com/profile"]["string"] for one in here] == ["A40-24Q"], "one more of the type in use"
    assert after[0]["spec"]["pool"]["generation"] > only[0]["spec"]["pool"]["generation"]


def test_an_unknown_host_is_refused_by_name(operator: Operator) -> None:
    assert "sim-009" in operator.is_refused("export", "dra", "sim-009")["message"]
