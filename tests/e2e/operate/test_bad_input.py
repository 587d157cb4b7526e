# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a tired operator: a clear error with its exit code, never a traceback, and nothing left behind."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(autouse=True)
def nothing_is_left_behind(operator: Operator, fleet_witness: FleetWitness) -> Any:
    before = fleet_witness.state()
    yield
    assert fleet_witness.state() == before
    assert operator.json("list-vms") == []


CASES = {
    "no GPU of that kind": (["web-1", *ACME, "--gpu", "H100-80C", *SMALL], "no-capacity", "H100"),
    "wrong type name": (["web-1", *ACME, "--gpu", "A40-8QQ", *SMALL], "usage", "A40-8Q"),
    "wrong type name in lower case": (["web-1", *ACME, "--gpu", "a40-8qq", *SMALL], "usage", "A40-8Q"),
    "type of another model": (["web-1", *ACME, "--gpu", "A40-8Q:H100", *SMALL], "usage", "H100"),
    "no such board": (["web-1", *ACME, "--gpu", "passthrough:A100", *SMALL], "no-capacity", "A100"),
    "too many for a card": (["web-1", *ACME, "--gpu", "3*A40-48Q", *SMALL], "no-capacity", "A40"),
    "name with <": (["<web>", *ACME, "--gpu", "A40-8Q"], "usage", "letters"),
    "name with quotes": (['we"b', *ACME, "--gpu", "A40-8Q"], "usage", "letters"),
    "name with newline": (["web\n1", *ACME, "--gpu", "A40-8Q"], "usage", "letters"),
    "name of 300 characters": (["w" * 300, *ACME, "--gpu", "A40-8Q"], "usage", "300"),
    "tenant unknown": (["web-1", "--tenant", "acne", "--gpu", "A40-8Q", *SMALL], "not-found", "acme"),
    "memory 0": (["web-1", *ACME, "--gpu", "A40-8Q", "--memory", "0"], "usage", "MiB"),
    "memory 8": (["web-1", *ACME, "--gpu", "A40-8Q", "--memory", "8"], "usage", "8GiB"),
    "memory -1": (["web-1", *ACME, "--gpu", "A40-8Q", "--memory=-1"], "usage", "size"),
    "memory 1TB": (
        ["web-1", *ACME, "--gpu", "A40-8Q", "--memory", "1TB", "--network", "none"],
        "no-capacity",
        "memory",
    ),
    "vcpus 0": (["web-1", *ACME, "--gpu", "A40-8Q", "--vcpus", "0"], "usage", "vcpus"),
    "base image missing": (
        ["web-1", *ACME, "--gpu", "A40-8Q", "--base-image", "debian.qcow2", *SMALL],
        "image-unregistered",
        "debian.qcow2",
    ),
    "base image path missing": (
        ["web-1", *ACME, "--gpu", "A40-8Q", "--base-image", "/srv/none.qcow2", *SMALL],
        "image-unregistered",
        "/srv/none.qcow2",
    ),
    "pool missing": (
        ["web-1", *ACME, "--gpu", "A40-8Q", "--disk", "1GiB", "--storage-pool", "fast", *SMALL],
        "volume-rejected",
        "fast",
    ),
    "network missing": (
        ["web-1", *ACME, "--gpu", "A40-8Q", "--memory", "96MiB", "--network", "dmz"],
        "network-missing",
        "dmz",
    ),
    "host unknown": (["web-1", *ACME, "--gpu", "A40-8Q", "--host", "gpu9", *SMALL], "no-capacity", "gpu9"),
    "limit fits nothing": (["web-1", *ACME, "--gpu", "A40-8Q", "--limit", "rack9", *SMALL], "inventory", "rack9"),
    "no tenant": (["web-1", "--gpu", "A40-8Q"], "usage", "--tenant"),
    "file and flags": (["web-1", "-f", "vm.yml"], "usage", "-f"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_error_says_what_is_wrong(case: str, operator: Operator) -> None:
    arguments, reference, said = CASES[case]
    refused = operator.is_refused("create-vm", *arguments)
    assert refused["reference"] == reference, refused
    text = "\n".join([refused["message"], *refused["context"], refused["hint"] or ""])
    assert said in text, text


def test_an_inventory_that_is_a_folder_of_nothing_is_named(operator: Operator, tmp_path: Path) -> None:
    refused = replace(operator, inventory=tmp_path).is_refused("list-gpus")
    assert (refused["reference"], refused["exit_code"]) == ("inventory", 3)
    assert str(tmp_path) in refused["message"]


def test_no_inventory_at_all_says_how_to_give_one(operator: Operator) -> None:
    refused = replace(operator, inventory=Path()).is_refused("list-gpus", "-i", "/nowhere/hosts.yml")
    assert "/nowhere/hosts.yml" in refused["message"]


def test_a_store_that_cannot_be_written_is_named_and_still_listed(operator: Operator, tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    source = Path(operator.database.removeprefix("sqlite:///"))
    shutil.copy(source, sealed / "store.db")
    subprocess.run(["mount", "--bind", str(sealed), str(sealed)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(sealed)], check=True)
        reader = replace(operator, database=f"sqlite:///{sealed}/store.db")
        refused = reader.is_refused("create-vm", "web-1", *ACME, "--gpu", "A40-8Q", *SMALL)
        assert (refused["reference"], refused["exit_code"]) == ("store-unusable", 6)
        assert str(sealed) in refused["message"]
        (listed,) = reader.json("list-tenants")
        assert (listed["tenant"], listed["vms"], listed["host_pools"], listed["quotas"]) == ("acme", 0, [], [])
    finally:
        subprocess.run(["umount", str(sealed)], check=True)


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(operator: Operator, tmp_path: Path) -> None:
    text = operator.inventory.read_text()
    known = tmp_path / "known_hosts"
    known.touch()
    inventory = tmp_path / "hosts.yml"
    words = [
        f"UserKnownHostsFile={known}" if word.startswith("UserKnownHostsFile=") else word for word in text.split(" ")
    ]
    inventory.write_text(" ".join(words))
    assert inventory.read_text() != text
    refused = replace(operator, inventory=inventory).is_refused("inspect-host", "sim-001")
    assert refused["reference"] == "host-key-unknown"
    assert "ssh-keyscan" in str(refused["hint"])


def test_a_mistyped_command_names_near_ones(operator: Operator) -> None:
    done = operator.run("create-vn")
    assert done.code == 2
    assert "create-vm" in done.err
