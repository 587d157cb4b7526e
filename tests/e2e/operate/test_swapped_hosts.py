# SPDX-License-Identifier: Apache-2.0
"""Two hosts that swapped addresses, behind the inventory or in it: nobody takes the one for the other."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.operate.test_watched_hosts import controller, controllers, soon
from tests.e2e.operator import Operator
from tests.e2e.quick_watch import FASTER
from tests.e2e.tcp_line import TcpLine
from tests.lab.simulated_fixtures import machine
from vgpuctl.usecases.operate.watch_hosts import LOOK_S
from vgpuctl_lab.simulated.layout import simulated_folder

FIRST, SECOND = "sim-001", "sim-002"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def lines(fleet: lab.LabFolder) -> Iterator[dict[str, TcpLine]]:
    """The addresses of the two hosts."""
    hosts = entries(yaml.safe_load(simulated_folder(fleet).inventory.read_text()))
    lines = {name: TcpLine(hosts[name]["ansible_port"]) for name in (FIRST, SECOND)}
    yield lines
    for line in lines.values():
        line.close()


@pytest.fixture(scope="module")
def operator(
    fleet: lab.LabFolder, lines: dict[str, TcpLine], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """A VM on each of two hosts, in an inventory of the operator's own."""
    home: Path = tmp_path_factory.mktemp("swapped")
    inventory, known_hosts = home / "hosts.yml", home / "known_hosts"
    there = simulated_folder(fleet)
    text, keys = there.inventory.read_text(), there.known_hosts.read_text()
    for line in lines.values():
        text = text.replace(f"ansible_port: {line.target}", f"ansible_port: {line.port}")
        keys = keys.replace(f"]:{line.target} ", f"]:{line.port} ")
    inventory.write_text(text.replace(str(there.known_hosts), str(known_hosts)))
    known_hosts.write_text(keys)
    made = Operator(home, inventory, f"sqlite:///{home}/store.db")
    made.does("create-tenant", "acme")
    made.does("inspect-host", FIRST)
    made.does("inspect-host", SECOND)
    made.does("create-vm", "one", *ACME, "--gpu", "A40-8Q", "--host", FIRST, *SIZE)
    made.does("create-vm", "two", *ACME, "--gpu", "A40-8Q", "--host", SECOND, *SIZE)
    yield made
    for name in ("one", "two"):
        made.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")


def entries(content: Any) -> dict[str, dict[str, Any]]:
    """Every host of an inventory with its variables, wherever it stands."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in content.items() if isinstance(content, dict) else ():
        if key == "hosts":
            found |= value
        else:
            found |= entries(value)
    return found


@contextmanager
def swapped_in_the_inventory(operator: Operator, _lines: dict[str, TcpLine]) -> Iterator[None]:
    """The two hosts have each other's address. SSH finds the right key at each, since keys belong to addresses."""
    right = operator.inventory.read_text()
    content = yaml.safe_load(right)
    hosts = entries(content)
    first, second = hosts[FIRST], hosts[SECOND]
    first["ansible_port"], second["ansible_port"] = second["ansible_port"], first["ansible_port"]
    operator.inventory.write_text(yaml.safe_dump(content))
    try:
        yield
    finally:
        operator.inventory.write_text(right)


@contextmanager
def swapped_behind_the_inventory(_operator: Operator, lines: dict[str, TcpLine]) -> Iterator[None]:
    """Each address leads to the other host, so its key is not the one that is known for the address."""
    first, second = lines[FIRST], lines[SECOND]
    first.target, second.target = second.target, first.target
    try:
        yield
    finally:
        first.target, second.target = second.target, first.target


def machines(fleet: lab.LabFolder) -> list[object]:
    return [machine(fleet, name).state().lasting() for name in (FIRST, SECOND)]


def told(operator: Operator) -> dict[str, str]:
    """The store's words on each host, its GPU and its VM; no host is contacted."""
    gpus = {one["host"]: one["gpu"]["uuid"] for one in operator.json("list-gpus")}
    vms = {one["vm"]["host"]: one["observed"] for one in operator.json("list-vms")}
    return {name: f"{gpus[name]} {vms[name]}" for name in (FIRST, SECOND)}


_BY_KEY = pytest.mark.long(
    "tests/e2e/operate/test_swapped_hosts.py::test_commands_and_controller_refuse_and_nothing_is_mixed_up",
    "tests/integration/ssh/test_host_keys.py::test_a_changed_key_shows_both_fingerprints_and_the_line",
)


@pytest.mark.parametrize(
    ("swapped", "reference", "state"),
    [
        pytest.param(swapped_behind_the_inventory, "host-key-changed", "host-key-changed", marks=_BY_KEY),
        # The inventory is wrong, and nothing is known of the hosts that was not known before.
        (swapped_in_the_inventory, "wrong-host", "up"),
    ],
)
def test_commands_and_controller_refuse_and_nothing_is_mixed_up(
    swapped: Any,
    reference: str,
    state: str,
    operator: Operator,
    lines: dict[str, TcpLine],
    fleet: lab.LabFolder,
) -> None:
    operator.does("list-gpus", "--refresh", "--limit", f"{FIRST},{SECOND}")
    operator.does("list-vms", "--refresh")
    before, known = machines(fleet), told(operator)
    assert known[FIRST].endswith(" running") and known[SECOND].endswith(" running")
    with swapped(operator, lines):
        hosts = {one["host"]: one for one in listed(operator)}
        assert {hosts[name]["observed"]["state"] for name in (FIRST, SECOND)} == {state}
        assert reference in operator.run("list-hosts", "--limit", FIRST).out
        for command in (
            ("inspect-host", FIRST),
            ("stop-vm", "one", *ACME, "--timeout", "0"),
            ("create-vm", "three", *ACME, "--gpu", "A40-8Q", "--host", FIRST, *SIZE),
            ("start-vm", "two", *ACME),
        ):
            assert operator.is_refused(*command)["reference"] == reference, command
        checked = operator.run("check-vm", "one", *ACME)
        assert checked.code == 14 and "could not be looked at in any of its" in checked.out, checked
        assert "shows no such vGPU" not in checked.out, "the driver of that host was not asked"
        operator.run("list-vms", "--refresh")
        operator.run("repair")
        operator.run("gc", "--yes", "--limit", f"{FIRST},{SECOND}")
        with controller(operator):
            soon(lambda: any(one.hosts for one in controllers(operator)))
            time.sleep(2 * LOOK_S / FASTER)
        assert silent(operator) == ([] if state == "up" else [FIRST, SECOND])
        assert told(operator) == known, "the last true answers stay"
        assert machines(fleet) == before, "nothing was written to the wrong host"
    operator.does("list-gpus", "--refresh", "--limit", f"{FIRST},{SECOND}")
    operator.does("list-vms", "--refresh")
    assert told(operator) == known and silent(operator) == []
    assert [one["vm"]["state"] for one in operator.json("list-vms")] == ["running", "running"]


def listed(operator: Operator) -> list[dict[str, Any]]:
    found = operator.run("list-hosts", "--limit", f"{FIRST},{SECOND}", "--json").out
    hosts: list[dict[str, Any]] = json.loads(found)
    return hosts


def silent(operator: Operator) -> list[str]:
    """Those of the two hosts that do not answer as far as the store knows."""
    found = [one for one in operator.json("list-gpus") if one["observation"]["unknown_since"] is not None]
    return sorted({one["host"] for one in found} & {FIRST, SECOND})


def test_two_names_of_one_machine_are_told_at_the_first_look(operator: Operator, tmp_path: Path) -> None:
    """Both are read side by side, and nothing is known of either."""
    content = yaml.safe_load(operator.inventory.read_text())
    hosts = entries(content)
    hosts[SECOND]["ansible_port"] = hosts[FIRST]["ansible_port"]
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump(content))
    other = replace(operator, inventory=inventory, database=f"sqlite:///{tmp_path}/store.db")
    for _look in range(2):
        shown = json.loads(other.run("list-hosts", "--limit", f"{FIRST},{SECOND}", "--json").out)
        assert sum("the machine that answers is" in (one["problem"] or "") for one in shown) == 1, shown
    shown = json.loads(other.run("list-gpus", "--limit", f"{FIRST},{SECOND}", "--json").out)
    assert len({one["host"] for one in shown}) == 1
