# SPDX-License-Identifier: Apache-2.0
"""A command that fails by its own inventory, known_hosts or key changes nothing that is known of the hosts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator

HOST = "sim-001"
WRONG: dict[str, dict[str, str | int]] = {
    "another port": {"ansible_port": 9},
    "an address of nobody": {"ansible_host": "127.0.0.77", "ansible_port": 9},
    "a name that cannot be resolved": {"ansible_host": "no-such-host.invalid"},
    "another user": {"ansible_user": "nobody-here"},
    "no key": {"ansible_ssh_private_key_file": "/nonexistent/key"},
    "a port that is none": {"ansible_port": "abc"},
    "no such python": {"ansible_python_interpreter": "/opt/no/python3"},
    "a ProxyCommand that ends": {"ansible_ssh_common_args": "-o ProxyCommand=/bin/false"},
    "a jump host that is none": {"ansible_ssh_common_args": "-J 127.0.0.77:9"},
    "no ssh_config": {"ansible_ssh_common_args": "-F /nonexistent/config"},
    "an empty known_hosts": {"ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"},
}


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("list-hosts")
    return fleet_operator


@pytest.mark.parametrize("mistake", WRONG)
def test_an_own_failure_is_the_command_s(mistake: str, operator: Operator, tmp_path: Path) -> None:
    mistyped = Path(shutil.copy(operator.inventory, tmp_path))
    variables = tmp_path / "host_vars"
    variables.mkdir()
    (variables / f"{HOST}.json").write_text(json.dumps(WRONG[mistake]))
    before = operator.json("list-hosts", "--cached", "--limit", HOST)[0]["observed"]
    events = operator.json("list-events")
    done = replace(operator, inventory=mistyped).run("list-hosts", "--limit", HOST)
    assert done.code != 0, "the command tells its own failure"
    assert operator.json("list-hosts", "--cached", "--limit", HOST)[0]["observed"] == before
    assert operator.json("list-events") == events


def test_a_host_that_only_a_mistyped_inventory_names_is_not_kept(operator: Operator, tmp_path: Path) -> None:
    mistyped = tmp_path / "hosts.yml"
    mistyped.write_text("all: {hosts: {sim-0001: {ansible_host: 127.0.0.77, ansible_port: 9}}}\n")
    assert replace(operator, inventory=mistyped).run("list-hosts").code != 0
    refused = operator.is_refused("forget-host", "sim-0001", "--reason", "mistyped", "--fenced", "--yes")
    assert refused["reference"] == "inventory"
    assert (
        refused["message"] == "neither the inventory nor the store knows host 'sim-0001', so there is nothing to forget"
    )


def test_a_host_that_left_the_inventory_is_forgotten_by_hand_or_after_a_week(
    operator: Operator, tmp_path: Path
) -> None:
    alone = tmp_path / "hosts.yml"
    alone.write_text("all: {hosts: {other: {ansible_host: 127.0.0.77}}}\n")
    left = replace(operator, inventory=alone)
    operator.does("cordon-host", HOST, "--reason", "it leaves")
    listed = left.is_refused("forget-host", HOST, "--reason", "it left", "--yes")
    assert (listed["reference"], "list it in the inventory again" in listed["hint"]) == ("inventory", True)
    operator.does("uncordon-host", HOST)
    left.does("forget-host", HOST, "--reason", "it left", "--yes")
    assert operator.json("list-hosts", "--cached", "--limit", HOST)[0]["observed"] is None
    assert left.json("list-events", "--kind", "host-forgotten")[0]["detail"] == "it left"
