# SPDX-License-Identifier: Apache-2.0
"""The reboot contract on simulated hosts: the layout is back before VMs start, and another card is left alone."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine import shape as shapes

FIRST, SECOND = "0000:41:00.0", "0000:43:00.0"


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host with types on VFs of one A40 and mdevs on VFs of another."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("reboots")
    fleet = layout_fleet(home, 1, "a40+a40/mdev-vf")
    second = {"match": {"address": SECOND}, "kind": "vgpu", "shares": {"A40-4Q": 1}}
    fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu"}, second]})
    fleet.operator.does("create-tenant", "acme")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def checked(layouts: LayoutFleet, *options: str) -> tuple[int, dict[str, Any]]:
    done = layouts.operator.run("check-hosts", *options, "--json")
    return done.code, json.loads(done.out)[0]


def test_layout_and_shares_are_back_before_a_vm_starts(layouts: LayoutFleet) -> None:
    operator, machine = layouts.operator, layouts.machine("sim-001")
    operator.does("apply-hosts")
    operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--autostart")
    before = {(one.function, one.type_id, one.uuid) for one in machine.state().vgpus}
    assert len(before) == 2 and len(machine.state().domains) == 1
    operator.run("check-hosts", "--snapshot")
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    after = machine.state()
    assert {(one.function, one.type_id, one.uuid) for one in after.vgpus} == before
    assert len(after.domains) == 0, "libvirt started a VM whose shares nobody has verified"
    operator.does("start-vm", "web-1", "--tenant", "acme")
    code, host = checked(layouts, "--after-reboot")
    assert (code, host["since_reboot"], host["findings"]) == (0, [], [])
    second = operator.json("apply-hosts")["hosts"][0]
    assert (second["changed"], second["writes"]) == (0, 0)
    operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes")
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    assert len(machine.state().vgpus) == 1, "the share of a deleted VM came back"


def test_the_flag_of_an_earlier_version_is_named_and_cleared(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    operator.does("apply-hosts")
    operator.does("create-vm", "old-1", "--tenant", "acme", "--gpu", "A40-8Q", "--autostart")

    def flag() -> None:
        with libvirt_of(operator.inventory, "sim-001") as there:
            there.connection.lookupByName("acme.old-1").setAutostart(1)

    def is_flagged() -> bool:
        with libvirt_of(operator.inventory, "sim-001") as there:
            return bool(there.connection.lookupByName("acme.old-1").autostart())

    def named() -> list[str]:
        return [one["read"] for one in checked(layouts)[1]["findings"] if one["check"] == "libvirt-autostart"]

    assert not is_flagged()
    flag()
    assert ["libvirt starts acme.old-1 with the host" in one for one in named()] == [True]
    (repaired,) = operator.json("repair")
    assert (repaired["found"], repaired["outcome"]) == ("libvirt itself starts it with its host", "finished")
    assert not is_flagged()
    flag()
    operator.does("stop-vm", "old-1", "--tenant", "acme", "--timeout", "0")
    operator.does("start-vm", "old-1", "--tenant", "acme")
    assert not is_flagged()
    operator.does("delete-vm", "old-1", "--tenant", "acme", "--yes")


@pytest.mark.long(
    "tests/agent/test_boot_facts.py::test_a_unit_whose_python_is_gone_is_noticed",
    "tests/unit/planner/doctor/test_checks.py::test_a_boot_unit_whose_python_is_gone_is_named",
    "tests/e2e/layout/test_after_reboot.py::test_a_restore_that_is_gone_or_damaged_is_a_difference",
)
def test_a_python_that_an_upgrade_took_away_is_named_and_replaced(layouts: LayoutFleet) -> None:
    layouts.operator.does("apply-hosts")
    unit = layouts.machine("sim-001").root / "etc/vgpuctl/vgpuctl-restore.service"
    right = unit.read_text()
    unit.write_text(right.replace("/python3 ", "/python3.9 "))
    code, host = checked(layouts)
    said = [one["read"] for one in host["findings"] if one["check"] == "boot-contract"]
    assert code == 1 and "/python3.9, which is not on the host any more" in said[0]
    layouts.operator.does("apply-hosts")
    assert unit.read_text() == right
    assert checked(layouts)[0] == 0


_NAMES, _DAMAGES = ("manifest.json", "shares.json", "vgpuctl-restore.service", "agent.pyz"), (None, b"", b"{\n")
_SOON = [("shares.json", b"")]
_LATER = pytest.mark.long(
    "tests/e2e/layout/test_after_reboot.py::test_a_restore_that_is_gone_or_damaged_is_a_difference"
)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(*one, marks=() if one in _SOON else _LATER, id=f"{one[0]}, {one[1]!r}")
        for one in product(_NAMES, _DAMAGES)
    ],
)
def test_a_restore_that_is_gone_or_damaged_is_a_difference(
    layouts: LayoutFleet, name: str, damage: bytes | None
) -> None:
    operator, file = layouts.operator, layouts.machine("sim-001").root / "etc/vgpuctl" / name
    operator.does("apply-hosts")
    assert compared(layouts) == ("as declared", "as declared", "as declared", 0)
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert compared(layouts) == ("1 difference", "1 difference", "1 difference", 1)
    (planned,) = operator.json("plan-hosts")
    (checked_host,) = [checked(layouts)[1]]
    assert planned["plan"]["installs"] == checked_host["installs"]
    assert (checked_host["has_drifted"], checked_host["plan"]["is_in_layout"]) == (True, False)
    operator.does("apply-hosts")
    assert compared(layouts) == ("as declared", "as declared", "as declared", 0)


def compared(layouts: LayoutFleet) -> tuple[str, str, str, int]:
    """The layout of one host by list-hosts, from its last reading and by check-hosts, and the planned files."""
    operator = layouts.operator
    first = operator.run("check-hosts").out.splitlines()[0].removeprefix("sim-001: ").removesuffix(", healthy")
    now, before = (operator.json("list-hosts", *more)[0]["layout"] for more in ((), ("--cached",)))
    return now, before, first, len(operator.json("plan-hosts")[0]["plan"]["installs"])


def test_another_card_in_the_slot_is_left_alone_and_everybody_is_told(layouts: LayoutFleet) -> None:
    layouts.operator.does("apply-hosts")
    machine = layouts.machine("sim-001")
    path = machine.folder / "machine.json"
    fields = json.loads(path.read_text())
    card = fields["cards"][0]
    card["subsystem"], card["uuid"] = "10de:ffff", "GPU-00000000-0000-4000-8000-000000000000"
    path.write_text(json.dumps(fields))
    assert shapes.read(path).cards[0].subsystem == "10de:ffff"
    restart(layouts)
    assert layouts.vfs("sim-001") == {SECOND: 32}
    journal = (machine.root / "var/log/journal.txt").read_text()
    assert f"<3>{FIRST} is left alone: it is 10de:2235 (subsystem 10de:ffff)" in journal
    code, host = checked(layouts)
    said = [one["read"] for one in host["findings"] if one["check"] == "boot-contract"]
    assert code == 1 and f"{FIRST} is left alone" in said[0]


def restart(layouts: LayoutFleet) -> None:
    """Switch the lab off and on, so that the lab daemon reads the machine's new shape."""
    from vgpuctl_lab.simulated.layout import simulated_folder

    processes = simulated_folder(layouts.folder).read_processes()
    assert processes is not None
    processes[0].end(grace_s=20)
    lab.simulated.up(1, mix="a40+a40/mdev-vf", with_vfs=False, folder=layouts.folder)
