# SPDX-License-Identifier: Apache-2.0
"""render-node: what a node and its cluster get, before and after the node is placed."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.node.pools import ONCE, nothing_is_left, secret_file
from tests.e2e.node.seeds import vendor_scripts
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.unit.node_config.pools import HASH, problems

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
TOKEN = "abcdef.0123456789abcdef"
POOL = ("create-node-pool", "gpu", *ACME, "--max", "4", "--gpu", "A40-24Q", *SIZE)


@pytest.fixture
def kubeadm(operator: Operator, tmp_path: Path) -> None:
    token = secret_file(tmp_path, "token", f"{TOKEN}\n")
    operator.does(
        *POOL, "--role", "kubeadm", "--join-server", "10.0.0.2:6443", "--join-token", token,
        "--ca-cert-hash", HASH, "--sharing", "time-slicing", "--replicas", "4",
        "--taint", "nvidia.com/gpu=present:NoSchedule",
    )  # fmt: skip


def rendered(operator: Operator, *more: str) -> Any:
    return operator.json("render-node", "acme/gpu", *more)


@pytest.mark.usefixtures("kubeadm")
def test_a_node_is_shown_before_it_is_placed_with_digests_in_the_place_of_secrets(operator: Operator) -> None:
    found = rendered(operator)
    assert (found["name"], found["is_placed"], found["host"], found["provider_id"]) == ("gpu-001", False, None, None)
    assert "vgpuctl.io/host" not in found["labels"]
    (file,) = found["files"]
    document = yaml.safe_load(file["content"])
    assert document["discovery"]["bootstrapToken"]["token"].startswith("sha256:")
    shown = operator.does("render-node", "acme/gpu").out
    assert "/etc/vgpuctl/kubeadm-join.yaml (in the guest, mode 0600, root:root)" in shown
    for text in (json.dumps(found), shown):
        assert TOKEN not in text


@pytest.mark.usefixtures("kubeadm")
def test_what_is_rendered_of_a_node_is_what_its_guest_got(operator: Operator) -> None:
    operator.does("scale-node-pool", "gpu", "1", *ACME)
    operator.does(*ONCE)
    (vm,) = [one["vm"] for one in operator.json("list-vms")]
    found = rendered(operator, "--node", "gpu-001")
    assert (found["is_placed"], found["host"]) == (True, vm["host"])
    assert found["labels"]["vgpuctl.io/host"] == vm["host"]
    assert found["provider_id"] == f"vgpuctl://default/acme/{vm['uuid']}"
    (script,) = vendor_scripts(operator.inventory, vm["host"], vm["uuid"])
    (content,) = re.findall(r"^put /etc/vgpuctl/kubeadm-join.yaml 0600 root:root (\S+)$", script, re.MULTILINE)
    in_guest = yaml.safe_load(base64.b64decode(content))
    assert problems("kubeadm-join", in_guest) == []
    shown = yaml.safe_load(found["files"][0]["content"])
    token = in_guest["discovery"]["bootstrapToken"].pop("token")
    assert (token, shown["discovery"]["bootstrapToken"].pop("token")[:7]) == (TOKEN, "sha256:")
    assert shown == in_guest
    arguments = {one["name"]: one["value"] for one in in_guest["nodeRegistration"]["kubeletExtraArgs"]}
    assert dict(one.split("=", 1) for one in arguments["node-labels"].split(",")) == found["labels"]


@pytest.mark.usefixtures("kubeadm")
def test_the_files_of_the_cluster_have_the_forms_that_their_programs_read(operator: Operator, tmp_path: Path) -> None:
    operator.does("create-node-pool", "soft", *ACME, "--role", "k3s", "--max", "2", "--gpu", "A40-8Q", *SIZE,
                  "--sharing", "hami")  # fmt: skip
    operator.does("render-node", "acme/gpu", "--to", str(tmp_path / "out"))
    folder = tmp_path / "out"
    paths = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    assert paths == [
        "device-plugin-configmap.yaml",
        "device-plugin-values.yaml",
        "gpu-operator-values.yaml",
        "guest/etc/vgpuctl/kubeadm-join.yaml",
        "hami-values.yaml",
        "node.yaml",
    ]
    files = yaml.safe_load((folder / "device-plugin-configmap.yaml").read_text())["data"]
    assert list(files) == ["gpu"], "HAMi serves the other pool"
    config = yaml.safe_load(files["gpu"])
    assert problems("device-plugin", config) == []
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]
    assert problems("operator-values", yaml.safe_load((folder / "gpu-operator-values.yaml").read_text())) == []
    assert "deviceSplitCount: 10" in (folder / "hami-values.yaml").read_text()
    node = yaml.safe_load((folder / "node.yaml").read_text())
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


def test_a_slurm_pool_shows_the_lines_of_slurm(operator: Operator) -> None:
    operator.does(*POOL, "--role", "slurm")
    found = rendered(operator)
    assert "NodeName=gpu-[001-004]" in found["cluster_files"]["slurm.conf"]
    assert "no --join-server" in found["join_problem"]
    assert found["provider_id"] is None


def test_what_is_not_there_is_refused_by_name(operator: Operator) -> None:
    operator.does(*POOL, "--role", "k3s")
    assert "has no node 'gpu-009'" in operator.is_refused("render-node", "acme/gpu", "--node", "gpu-009")["message"]
    assert "no node pool 'other'" in operator.is_refused("render-node", "acme/other")["message"]
    assert "is no node pool" in operator.is_refused("render-node", "acme")["message"]
