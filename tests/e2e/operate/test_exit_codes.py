# SPDX-License-Identifier: Apache-2.0
"""Each exit code that docs/errors.md documents is what a command ends with."""

import contextlib
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.e2e.kills import KILLED_RUN
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.kubernetes_api import kubeconfig_of

__all__ = ["operator"]
FLEET = (1, "a40")
WEB = ("create-vm", "web", *ACME, *SIZE)
CLOSED = "http://127.0.0.1:9"
"""Nobody listens on the port `discard`."""
SPOIL = "UPDATE tenants SET reclaim = 'x'"
PAGE = Path(__file__).parents[3] / "docs/errors.md"


@pytest.fixture
def desk(operator: Operator, tmp_path: Path) -> Operator:
    """The operator with an inventory of two hosts: one is not in its layout, and `gone` does not answer."""
    hosts = yaml.safe_load(operator.inventory.read_text())
    (group,) = hosts.values()
    shares = {"match": "all", "kind": "vgpu", "shares": {"A40-8Q": 1}}
    group["hosts"]["sim-001"]["vgpu"] = {"version": 1, "gpus": [shares]}
    group["hosts"]["gone"] = {"ansible_port": 9}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump(hosts))
    (tmp_path / "kubeconfig").write_text(kubeconfig_of(CLOSED))
    (tmp_path / "kubeconfig").chmod(0o600)
    variables = {"VGPUCTL_OVN_NORTHBOUND": f"unix:{tmp_path}/nb.sock", "VGPUCTL_LAB_FOLDER": str(tmp_path / "lab")}
    return replace(operator, inventory=inventory, variables=variables)


CASES: dict[int, tuple[str, ...]] = {
    0: ("list-tenants",),
    1: ("check-hosts", "--limit", "sim-001"),
    2: ("list-gpus", "--no-such-option"),
    3: ("list-hosts", "--limit", "nowhere"),
    4: ("inspect-host", "gone"),
    5: ("create-vm", "big", *ACME, "--memory", "9TiB", "--network", "none", "--limit", "sim-001"),
    6: ("show-vm", "acme/nobody"),
    7: ("console", "acme/web"),
    8: ("lab", "reboot", "nowhere"),
    9: ("create-vm", "more", *ACME, "--network", "none", "--limit", "sim-001"),
    10: ("list-gpus", "--refresh"),
    11: ("create-network", "acme/front", "--cidr", "10.0.0.0/24", "--backend", "ovn"),
    12: ("serve", "extender", "--kubeconfig", "{home}/kubeconfig", "--listen", "127.0.0.1:0"),
    13: ("wait", "acme/web", "--for", "stopped", "--timeout", "0"),
}
"""What ends with each code but 70 and 130."""


@pytest.mark.parametrize("code", CASES)
def test_a_command_ends_with_the_code(desk: Operator, code: int, tmp_path: Path) -> None:
    if code in (7, 13):
        desk.does(*WEB, "--limit", "sim-001")
    if code == 9:
        desk.does("set-quota", "acme", "vms=0")
    try:
        done = desk.run(*(word.format(home=tmp_path) for word in CASES[code]))
    finally:
        if code == 9:
            desk.does("set-quota", "acme", "vms=none")
        desk.delete_all_vms()
    assert done.code == code, done


def test_an_interrupted_command_ends_with_130(desk: Operator) -> None:
    done = desk.run("int:1", *WEB, "--limit", "sim-001", program=KILLED_RUN)
    assert done.code == 130, done
    assert desk.json("list-vms") == []


def test_a_store_that_no_vgpuctl_wrote_ends_with_70(desk: Operator, tmp_path: Path) -> None:
    spoiled = replace(desk, database=f"sqlite:///{tmp_path}/spoiled.db")
    spoiled.does("create-tenant", "acme")
    with contextlib.closing(sqlite3.connect(tmp_path / "spoiled.db")) as store, store:
        store.execute(SPOIL)
    done = spoiled.run("list-tenants")
    assert done.code == 70 and "this is a fault of vgpuctl itself" in done.err, done


def test_the_page_documents_no_other_code() -> None:
    documented = {int(code) for code in re.findall(r"(?m)^\| `[a-z-]+` \| ([0-9]+) \|", PAGE.read_text())}
    assert documented | {0, 1} == CASES.keys() | {70, 130}
