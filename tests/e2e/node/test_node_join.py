# SPDX-License-Identifier: Apache-2.0
"""The join files of a node are in its seed and nowhere else, and no node is made that could not join."""

import base64
import json
import re
from pathlib import Path

import pytest

from tests.e2e.node.pools import ONCE, nothing_is_left, secret_file
from tests.e2e.node.seeds import vendor_scripts
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
POOL = ("create-node-pool", "gpu", *ACME, "--max", "4", "--gpu", "A40-24Q", *SIZE)
SERVER = ("--join-server", "https://10.0.0.2:6443")
TOKEN = "K10abc::node:secret"


@pytest.fixture
def token(tmp_path: Path) -> str:
    return secret_file(tmp_path, "token", f"{TOKEN}\n")


def written(script: str) -> dict[str, str]:
    """The files that a join script writes, by path."""
    found = re.findall(r"^put (\S+) \S+ \S+ (\S+)$", script, re.MULTILINE)
    return {path: base64.b64decode(content.strip("'")).decode() for path, content in found}


def test_a_node_gets_its_join_files_in_its_seed_and_nothing_else_has_the_secret(operator: Operator, token: str) -> None:
    made = operator.json(
        *POOL, "--role", "k3s", "--min", "1", *SERVER, "--join-token", token,
        "--taint", "nvidia.com/gpu=present:NoSchedule", "--label", "team=vision",
    )  # fmt: skip
    told = [json.dumps(made), operator.does("list-queue", "--json").out]
    done = operator.does(*ONCE)
    (vm,) = [one["vm"] for one in operator.json("list-vms")]
    (script,) = vendor_scripts(operator.inventory, vm["host"], vm["uuid"])
    files = written(script)
    assert files["/etc/rancher/k3s/vgpuctl-token"] == f"{TOKEN}\n"
    agent = files["/etc/rancher/k3s/config.yaml.d/50-vgpuctl.yaml"]
    for line in (
        "server: https://10.0.0.2:6443",
        "node-name: gpu-001",
        f"- provider-id=vgpuctl://default/acme/{vm['uuid']}",
        "- nvidia.com/gpu=present:NoSchedule",
        "- team=vision",
        f"- vgpuctl.io/host={vm['host']}",
        "- vgpuctl.io/profile=A40-24Q",
        "- vgpuctl.io/gpu-memory-mib=24576",
        "- nvidia.com/device-plugin.config=gpu",
    ):
        assert line in agent
    assert vm["request"]["cloud_init"]["hostname"] == "gpu-001"
    told += [done.out, done.err, json.dumps(vm), operator.does("list-events", "--json").out]
    told += [operator.does("show-vm", "gpu-001", *ACME, "--json").out, operator.does("list-node-pools", "--json").out]
    store = Path(operator.database.removeprefix("sqlite:///"))
    for text in told:
        assert TOKEN not in text
    for form in (TOKEN.encode(), base64.b64encode(f"{TOKEN}\n".encode())):
        assert form not in store.read_bytes()


def test_a_node_with_a_driver_is_set_up_for_it_before_it_joins(operator: Operator, token: str) -> None:
    operator.does(
        *POOL, "--role", "k3s", "--min", "1", *SERVER, "--join-token", token, "--guest-driver", "image",
    )  # fmt: skip
    operator.does(*ONCE)
    (vm,) = [one["vm"] for one in operator.json("list-vms")]
    setup, join = vendor_scripts(operator.inventory, vm["host"], vm["uuid"])
    assert "sets this guest up for its GPU" in setup
    assert "lets this guest join its cluster" in join
    assert "guest-ready" in join


def test_no_node_is_made_with_an_expired_token_until_there_is_a_new_one(operator: Operator, token: str) -> None:
    made = operator.does(
        *POOL, "--role", "k3s", "--min", "1", *SERVER, "--join-token", token, "--token-expires", "2026-01-02T03:04",
    )  # fmt: skip
    assert "warning: the join token of node pool acme/gpu has expired at 2026-01-02" in made.err
    operator.does(*ONCE)
    assert [one["state"] for one in operator.json("list-vms")] == ["queued"]
    (pool,) = operator.json("list-node-pools", "gpu", *ACME)
    (node,) = pool["nodes"]
    assert node["state"] == "waiting"
    assert "the join token of node pool acme/gpu has expired at 2026-01-02" in node["reason"]
    operator.does("set-node-pool", "gpu", *ACME, "--join-token", token, "--token-expires", "2099-01-01T00:00")
    operator.does(*ONCE)
    (vm,) = [one["vm"] for one in operator.json("list-vms")]
    assert vendor_scripts(operator.inventory, vm["host"], vm["uuid"])


def test_a_pool_that_lacks_what_its_role_needs_makes_no_node(operator: Operator, token: str) -> None:
    operator.does(*POOL, "--role", "kubeadm", "--min", "1", "--join-server", "10.0.0.2:6443", "--join-token", token)
    operator.does(*ONCE)
    assert [one["state"] for one in operator.json("list-vms")] == ["queued"]
    (pool,) = operator.json("list-node-pools", "gpu", *ACME)
    assert "cannot join their cluster: it has no ca_cert_hash" in pool["nodes"][0]["reason"]


def test_labels_and_systems_that_no_node_can_have_are_refused(operator: Operator) -> None:
    refused = operator.is_refused(*POOL, "--role", "k3s", "--label", "node-role.kubernetes.io/gpu=yes")
    assert "a kubelet does not start with a label of node-role.kubernetes.io" in refused["message"]
    refused = operator.is_refused(
        *POOL, "--role", "k3s", "--sharing", "mps", "--replicas", "4", "--mig-strategy", "single"
    )
    assert "mps does not go with MIG" in refused["message"]


def test_a_munge_key_reaches_the_guest_as_bytes(operator: Operator, tmp_path: Path) -> None:
    key = tmp_path / "munge.key"
    key.write_bytes(bytes(range(256)) * 4)
    key.chmod(0o600)
    operator.does(*POOL, "--role", "slurm", "--min", "1", "--join-server", "slurm.example", "--munge-key", str(key))
    operator.does(*ONCE)
    (vm,) = [one["vm"] for one in operator.json("list-vms")]
    (script,) = vendor_scripts(operator.inventory, vm["host"], vm["uuid"])
    (content,) = re.findall(r"^put /etc/munge/munge.key 0400 munge:munge (\S+)$", script, re.MULTILINE)
    assert base64.b64decode(content) == key.read_bytes()
