# SPDX-License-Identifier: Apache-2.0
"""adopt-host: what others made on a host stays theirs until it is adopted, and nothing is restarted for that."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN, kill_after
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.machine import rules
from vgpuctl_lab.simulated.machine.drivers import Drivers

A40, T4, RTX, FLEX = (f"0000:{bus}:00.0" for bus in ("41", "43", "45", "47"))
MDEV = "00000000-0000-4000-8000-00000000000a"
_MDEV_DEVICE = (
    f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{MDEV}'/></source></hostdev>"
)
# The card that it uses is at node 0.
AT_NODE_1 = (
    "<cputune><vcpupin vcpu='0' cpuset='40'/><vcpupin vcpu='1' cpuset='41'/></cputune>"
    "<numatune><memory mode='strict' nodeset='1'/></numatune>"
)
ADOPT = ("adopt-host", "sim-001", "--tenant", "acme", "--vm", "desk=globex/desktop-1")


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host that others have set up: `render` and `desk` run with vGPUs, `old` and `whole` are off."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("adopt")
    fleet = layout_fleet(home, 1, "a40+t4+rtx-3090+flex-170")
    try:
        populate(fleet)
        for tenant in ("acme", "globex"):
            fleet.operator.does("create-tenant", tenant)
        yield fleet
    finally:
        lab.simulated.down(folder=fleet.folder)


def populate(fleet: LayoutFleet) -> None:
    """Do what an operator without vgpuctl would do."""
    machine = fleet.machine("sim-001")
    a40, t4, _rtx, flex = machine.shape.cards
    with machine.change() as state:
        for card, count in ((a40, a40.total_vfs), (flex, 4)):
            Drivers(machine, state).set_vfs(card, count)
        eight = next(one for one in a40.types if one.full_name.endswith("A40-8Q"))
        two = next(one for one in t4.types if one.full_name.endswith("T4-2Q"))
        vfs = state.vfs_of(a40)
        for function in vfs[:3]:
            rules.add(state, a40, function, eight)
        rules.add(state, t4, T4, two, MDEV)
        plain = state.vfs_of(flex)[1]
    with libvirt_of(fleet.operator.inventory, "sim-001") as there:
        for name, devices, runs in (
            ("render", [pci(vfs[0], "no")], True),
            ("desk", [_MDEV_DEVICE], True),
            ("flex", [pci(plain, "yes")], True),
            ("old", [pci(vfs[1], "no")], False),
            ("whole", [pci(RTX, "yes"), pci(RTX[:-1] + "1", "yes")], False),
            ("copy", [pci(vfs[1], "no")], False),
            ("plain", [], True),
        ):
            there.define(
                f"<domain type='kvm'><name>{name}</name><memory unit='MiB'>512</memory><vcpu>3</vcpu>"
                f"{AT_NODE_1 if name == 'render' else ''}"
                f"<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{''.join(devices)}</devices></domain>"
            )
            if runs:
                there.start(name)


def pci(address: str, managed: str) -> str:
    domain, bus, slot = address.split(":")
    slot, function = slot.split(".")
    where = f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"
    return f"<hostdev mode='subsystem' type='pci' managed='{managed}'><source><address {where}/></source></hostdev>"


def definitions(fleet: LayoutFleet) -> dict[str, tuple[str, str | None]]:
    """Each domain's state and XML."""
    with libvirt_of(fleet.operator.inventory, "sim-001") as there:
        return {one.name: (str(one.state), there.xml(one.name)) for one in there.domains()}


@pytest.fixture
def fresh(layouts: LayoutFleet, tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    """Gives the same operator with a store of its own that knows the tenants and nothing else."""
    empty = tmp_path / "empty"
    empty.mkdir()
    first = dataclasses.replace(layouts.operator, database=f"sqlite:///{empty}/store.db")
    for tenant in ("acme", "globex"):
        first.does("create-tenant", tenant)

    def copy(name: str) -> Operator:
        shutil.copytree(empty, tmp_path / name)
        return dataclasses.replace(first, database=f"sqlite:///{tmp_path / name}/store.db")

    yield copy


def test_what_is_foreign_is_never_touched(layouts: LayoutFleet) -> None:
    before = layouts.states(), definitions(layouts)
    assert layouts.operator.json("repair") == []
    layouts.declare(sim_001={"gpus": [{"match": {"address": one}, "kind": "off"} for one in (A40, T4, FLEX)]})
    applied = layouts.operator.run("apply-hosts", "--disrupt", "--reset", "--no-boot")
    assert applied.code == 4 and "it is not vgpuctl's to stop" in applied.out + applied.err
    assert (layouts.states(), definitions(layouts)) == before
    layouts.declare()


def test_a_host_is_adopted_as_it_is(layouts: LayoutFleet, tmp_path: Path) -> None:
    operator, before = layouts.operator, (layouts.states(), definitions(layouts))
    whole = ("create-vm", "big", "--tenant", "acme", "--gpu", "passthrough:rtx-3090", "--memory", "96MiB", "--dry-run")
    operator.does("set-quota", "acme", "vms=4")
    operator.does(*whole)
    operator.does("set-quota", "acme", "each:cpu-limit=50%")
    above = {one["subject"]: one["reason"] for one in operator.json(*ADOPT, "--dry-run")["left"]}
    assert "above a ceiling of tenant acme" in above["render"] and "cpu-limit of its vCPUs: no limit" in above["render"]
    operator.does("set-quota", "acme", "each:cpu-limit=none")
    dry = operator.json(*ADOPT, "--dry-run")
    assert dry["changed"] and operator.json("list-vms") == []
    file = tmp_path / "sim-001.yml"
    adopted = operator.json(*ADOPT, "--layout-file", str(file))
    assert (layouts.states(), definitions(layouts)) == before
    assert (
        summary(adopted)
        == summary(dry)
        == {
            ("acme", "render"): ("running", ["A40-8Q"]),
            ("globex", "desktop-1"): ("running", ["T4-2Q"]),
            ("acme", "flex"): ("running", ["vf"]),
            ("acme", "copy"): ("stopped", ["A40-8Q"]),
            ("acme", "whole"): ("stopped", ["passthrough"]),
        }
    )
    left = {one["subject"]: one["reason"] for one in adopted["left"]}
    assert left == {"old": f"{A40[:-1]}5 is copy's", "plain": "it has no GPU"}
    assert len(adopted["shares"]) == 1
    shown = {(one["vm"]["request"]["tenant"], one["vm"]["request"]["name"]): one for one in operator.json("list-vms")}
    cells = shown["acme", "render"]["vm"]["numa"]["cells"]
    assert cells == [[1, 2, 512, [40, 41]], [1, 1, 0, []]]
    assert shown.keys() == summary(adopted).keys()
    request = shown["globex", "desktop-1"]["vm"]["request"]
    assert (request["vcpus"], request["memory_mib"], request["domain"]) == (3, 512, "desk")
    usage = operator.json("show-usage")["usage"]
    assert {(one["tenant"], one["profile"], one["attached"]) for one in usage} >= {
        ("acme", "A40-8Q", 2),
        ("globex", "T4-2Q", 1),
    }
    assert operator.is_refused(*whole[:-1])["reference"] == "quota-exceeded"
    operator.does("set-quota", "acme", "vms=none")
    assert operator.is_refused(*whole)["reference"] == "no-capacity"
    again = operator.json(*ADOPT, "--layout-file", str(file))
    assert not again["changed"] and summary(again) == summary(adopted)
    assert operator.json("repair") == []
    layouts.declare(sim_001=adopted["vgpu"])
    (planned,) = operator.json("plan-hosts", "--no-boot")
    assert planned["plan"]["is_in_layout"] and planned["plan"]["steps"] == []
    layouts.declare(sim_001={"gpus": [{"match": {"address": A40}, "kind": "off"}]})
    applied = operator.run("apply-hosts", "--disrupt", "--no-boot")
    assert applied.code == 4 and "render was adopted and names its shares itself" in applied.out, applied.out
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=0")
    operator.does("set-quota", "globex", "--guaranteed", "framebuffer=64GiB")
    reclaims = (word if word != "acme" else "globex" for word in whole)
    assert operator.is_refused(*reclaims)["reference"] == "no-capacity", "an adopted VM gives no way"
    layouts.declare()
    assert (layouts.states(), definitions(layouts)) == before


def summary(adopted: dict[str, Any]) -> dict[tuple[str, str], tuple[str, list[str]]]:
    """State and profiles of each VM."""
    return {
        (one["vm"]["request"]["tenant"], one["vm"]["request"]["name"]): (
            one["vm"]["state"],
            [lease["share"]["profile"] for lease in one["leases"]],
        )
        for one in adopted["vms"]
    }


@pytest.mark.long(
    "tests/e2e/host/test_adopt_host.py::test_a_host_is_adopted_as_it_is",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_killed_adoption_is_finished_by_the_same_command(
    layouts: LayoutFleet, fresh: Callable[[str], Operator]
) -> None:
    before = layouts.states(), definitions(layouts)
    whole = fresh("whole")
    done = whole.run("0", *ADOPT, "--json", program=KILLED_RUN)
    wanted = summary(json.loads(done.out))
    effects = done.err.splitlines()[-1].split()
    assert effects == ["transaction"] * 5, "begun, known from now on, adopted and said so, one share noted, ended"
    for point in range(1, len(effects)):
        operator = fresh(str(point))
        kill_after(operator, point, *ADOPT)
        again = operator.json(*ADOPT)
        assert (summary(again), len(again["shares"])) == (wanted, 1)
    assert (layouts.states(), definitions(layouts)) == before


def test_what_cannot_be_adopted_is_refused(fresh: Callable[[str], Operator]) -> None:
    operator = fresh("refused")
    for arguments, exit_code, said in (
        (("--vm", "nobody=acme"), 2, "sim-001 has no domain 'nobody'"),
        (("--vm", "plain=acme"), 6, "1 domain of sim-001 cannot be adopted"),
        (("--tenant", "umbrella"), 6, "umbrella"),
        (("--vm", "render"), 2, "names no owner"),
    ):
        refused = operator.is_refused("adopt-host", "sim-001", *arguments)
        assert refused["exit_code"] == exit_code and said in refused["message"]
    assert operator.json("list-vms") == []


def test_a_file_says_whose_the_domains_are(fresh: Callable[[str], Operator], tmp_path: Path) -> None:
    operator, owners = fresh("owners"), tmp_path / "owners.yml"
    owners.write_text("render: globex/picture\nwhole: acme\n")
    adopted = operator.json("adopt-host", "sim-001", "--owners", str(owners))
    assert summary(adopted).keys() == {("globex", "picture"), ("acme", "whole")}
    assert {one["reason"] for one in adopted["left"] if one["subject"] == "flex"} == {"nobody said whose it is"}
    owners.write_text("render: globex/picture\n")
    left = operator.json("adopt-host", "sim-001", "--owners", str(owners), "--dry-run")["left"]
    assert {one["subject"] for one in left} == {"desk", "flex", "copy", "old", "plain"}
    owners.write_text("render: globex/picture\nwhole: [acme]\n")
    refused = operator.is_refused("adopt-host", "sim-001", "--owners", str(owners))
    assert refused["exit_code"] == 3 and refused["message"].startswith(f"{owners}:2: file.whole is ")


def test_an_adopted_vm_keeps_its_own_definition_for_life(layouts: LayoutFleet) -> None:
    operator, before = layouts.operator, definitions(layouts)
    operator.does(*ADOPT)
    refused = operator.is_refused("stop-vm", "render", "--tenant", "acme", "--hold", "release")
    assert refused["reference"] == "state" and "is adopted and names them" in refused["message"]
    assert operator.json("stop-vm", "render", "--tenant", "acme", "--timeout", "0")["changed"]
    assert operator.json("start-vm", "render", "--tenant", "acme")["changed"]
    assert _configured(definitions(layouts)["render"][1]) == _configured(before["render"][1])
    operator.does("delete-vm", "desktop-1", "--tenant", "globex", "--yes", "--timeout", "0")
    assert "desk" not in definitions(layouts)
    assert MDEV not in {vgpu.uuid for vgpu in layouts.machine("sim-001").state().vgpus}
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    noted = "noted as stopped: start it with `vgpuctl start-vm`"
    assert {one["outcome"] for one in operator.json("repair")} == {noted, "made again"}
    assert operator.json("start-vm", "render", "--tenant", "acme")["changed"]
    assert definitions(layouts)["render"][0] == "running"
    assert operator.json("repair") == []


def _configured(xml: str | None) -> str:
    """A domain's XML without the number that libvirt gives each start."""
    return re.sub(r" id='\d+'", "", xml or "")


def test_what_is_closed_is_said_of_adopted_vms_and_a_fenced_host_is_not_adopted(
    fresh: Callable[[str], Operator],
) -> None:
    own = fresh("closed")
    own.does("quarantine-gpu", "sim-001", A40, "--reason", "smells of smoke")
    own.does("cordon-host", "sim-001", "--reason", "rack work")
    adopt = ADOPT[:4]
    said = [line for line in own.does(*adopt, "--dry-run").err.splitlines() if "does not start again" in line]
    named = {line.removeprefix("dry run: ").split(":")[0] for line in said}
    assert {"acme/render"} <= named <= {"acme/render", "acme/old", "acme/copy"}, "a cordon closes nothing to residents"
    assert all(line.endswith(": in quarantine: smells of smoke") for line in said)
    with open_store(own.database) as store, store.transaction() as session:
        session.restrict("sim-001", WHOLE_HOST, RestrictionKind.FENCE, "no power")
    refused = own.is_refused(*adopt)
    assert (refused["reference"], "it was declared dead: no power" in refused["message"]) == ("state", True), refused
    assert "vgpuctl uncordon-host sim-001" in refused["hint"]
    assert own.json("list-vms") == []
