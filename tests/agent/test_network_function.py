# SPDX-License-Identifier: Apache-2.0
"""A network function on a simulated host: made, made again, changed, refused, damaged, restored at boot, removed."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.simulated import Machine
from tests.agent.test_changes_ovn import CHASSIS
from vgpuctl.agent import functions_run
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.function_digests import digest_of
from vgpuctl.agent.wire.network_function import (
    FOLDER,
    RUN_FOLDER,
    FunctionCommand,
    FunctionFile,
    FunctionPort,
    FunctionProgram,
    FunctionRoute,
    FunctionsReading,
    NetworkFunction,
    SetNetworkFunction,
    interface_of,
)
from vgpuctl.agent.wire.steps import SetOvnChassis, SetOvnDaemon

NAME = "vgn_0123456789ab"
UNIT = f"vgpuctl-function-{NAME}-haproxy.service"
SECRET = "-----BEGIN PRIVATE KEY-----x"
PORT = FunctionPort(
    interface_of(NAME),
    NAME,
    "52:00:00:00:00:01",
    ("10.0.0.253/24", "fd00:1::fffe/64"),
    1442,
    (FunctionRoute("default", "10.0.0.1"), FunctionRoute("default", "fd00:1::1")),
)
FUNCTION = NetworkFunction(
    "load-balancer",
    (PORT,),
    (FunctionFile("haproxy.cfg", "frontend x\n"), FunctionFile("tls.pem", SECRET, is_secret=True)),
    (FunctionCommand(("sysctl", "-w", "{name}")),),
    (
        FunctionProgram(
            "haproxy",
            ("haproxy", "-W", "-C", "{files}", "-f", "haproxy.cfg"),
            ("haproxy", "-c", "-C", "{files}", "-f", "haproxy.cfg"),
            "SIGUSR2",
        ),
    ),
    needs=("haproxy",),
)
MADE = SetNetworkFunction(NAME, FUNCTION)
GONE = SetNetworkFunction(NAME, None)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "agent.pyz").write_bytes(b"an agent")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "agent.pyz")])
    made = Machine(tmp_path / "gpu1", "t4")
    made.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True), SetOvnChassis(CHASSIS))
    return made


def _read(machine: Machine) -> FunctionsReading:
    reply = answer(machine.host, Request("functions"))
    assert reply.problem is None and reply.functions is not None, reply.problem
    return reply.functions


def _below(machine: Machine, folder: str) -> list[Path]:
    found = (machine.files.root / folder.lstrip("/")).rglob("*")
    return sorted(one for one in found if not one.is_dir() and not one.is_symlink())


def test_a_function_is_made_once_and_read_back(machine: Machine) -> None:
    assert _read(machine) == FunctionsReading((), ("haproxy",))
    told = machine.take(MADE, dry_run=True)
    assert told.changes[0].changed and _read(machine).functions == (), "a dry run writes nothing"
    assert [machine.done(MADE), machine.done(MADE)] == [True, False]
    (found,) = _read(machine).functions
    assert (found.name, found.kind, found.digest, found.problems) == (NAME, "load-balancer", digest_of(FUNCTION), ())
    state = machine.files.state()
    assert state.ovn.ports[PORT.interface] == {"iface-id": NAME, "vgpuctl-function": NAME}
    link = state.namespaces[f"vgpuctl-{NAME}"][PORT.interface]
    assert (link["mac"], link["mtu"], link["up"]) == (PORT.mac, 1442, True)
    assert {tuple(one[:2]) for one in link["routes"]} == {("default", "10.0.0.1"), ("default", "fd00:1::1")}
    assert state.services[UNIT]
    unit = (machine.files.root / "etc/systemd/system" / UNIT).read_text()
    assert f"NetworkNamespacePath=/run/netns/vgpuctl-{NAME}" in unit and "Restart=on-failure" in unit
    (secret,) = [one for one in _below(machine, FOLDER) if one.name == "tls.pem"]
    assert secret.stat().st_mode & 0o777 == 0o600
    assert SECRET not in (machine.files.root / FOLDER.lstrip("/") / NAME / "function.json").read_text()


def test_new_files_are_read_by_a_reload_and_the_old_ones_go(machine: Machine) -> None:
    machine.done(MADE)
    renewed = replace(FUNCTION, files=(FUNCTION.files[0], replace(FUNCTION.files[1], content="new key")))
    step = SetNetworkFunction(NAME, renewed)
    assert [machine.done(step), machine.done(step)] == [True, False]
    assert [one.read_text() for one in _below(machine, FOLDER) if one.name == "tls.pem"] == ["new key"]
    assert (machine.files.root / FOLDER.lstrip("/") / NAME / "files").readlink().name.startswith("files-")


def test_a_configuration_that_the_program_refuses_never_replaces_the_one_in_use(machine: Machine) -> None:
    machine.done(MADE)
    before = {one: one.read_bytes() for one in _below(machine, FOLDER)}
    bad = replace(FUNCTION, files=(FunctionFile("haproxy.cfg", f"nonsense {SECRET}"), FUNCTION.files[1]))
    problem = machine.refused(SetNetworkFunction(NAME, bad))
    assert problem.code == "function-config-refused" and SECRET not in problem.message
    assert {one: one.read_bytes() for one in _below(machine, FOLDER)} == before
    assert not machine.done(MADE), "what was there is as it was"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ports": (replace(PORT, interface="eno1"),)}, "bad-function"),
        ({"ports": (PORT, PORT)}, "bad-function"),
        ({"files": (FunctionFile("../../etc/passwd", "x"),)}, "bad-function"),
        ({"files": (FunctionFile("a/b", "x"),)}, "bad-function"),
        ({"programs": (FunctionProgram("x-y", ("haproxy",)),)}, "bad-function"),
        ({"commands": (FunctionCommand(()),)}, "bad-function"),
        ({"needs": ("bgpd", "haproxy")}, "program-missing"),
        ({"files": (FunctionFile("haproxy.cfg", "frontend", owner="nobody-here"),)}, "no-such-user"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(machine: Machine, change: dict[str, Any], code: str) -> None:
    problem = machine.refused(SetNetworkFunction(NAME, replace(FUNCTION, **change)))
    assert problem.code == code
    machine.done(GONE)
    assert _read(machine).functions == () and _below(machine, FOLDER) == []


@pytest.mark.parametrize("name", ["../x", "a-b", "A", "", "x" * 40, "a b"])
def test_a_name_that_leads_elsewhere_is_refused(machine: Machine, name: str) -> None:
    for function in (FUNCTION, None):
        assert machine.refused(SetNetworkFunction(name, function)).code == "bad-function"


def test_a_host_whose_switch_does_not_run_is_told(machine: Machine) -> None:
    machine.done(SetOvnDaemon("switch", False))
    assert machine.refused(MADE).code == "switch-not-running"


@pytest.mark.parametrize(
    "damage",
    ["service", "namespace", "port", "address", "route", "up", "file", "file-gone", "link", "unit", "manifest"],
)
def test_what_somebody_changed_is_named_and_brought_back(machine: Machine, damage: str) -> None:
    machine.done(MADE)
    folder = machine.files.root / FOLDER.lstrip("/") / NAME
    with machine.files.change() as state:
        links = state.namespaces[f"vgpuctl-{NAME}"]
        link = links[PORT.interface]
        if damage == "service":
            state.services[UNIT] = False
        elif damage == "namespace":
            del state.namespaces[f"vgpuctl-{NAME}"]
        elif damage == "port":
            del state.ovn.ports[PORT.interface]
        elif damage == "address":
            link["addresses"] = ["10.0.0.9/24"]
        elif damage == "route":
            link["routes"] = [["default", "10.0.0.9", "static"]]
        elif damage == "up":
            link["up"] = False
    if damage in ("file", "file-gone"):
        (secret,) = list(folder.glob("files-*/tls.pem"))
        secret.write_text("other") if damage == "file" else secret.unlink()
    elif damage == "link":
        (folder / "files").unlink()
    elif damage == "unit":
        (machine.files.root / "etc/systemd/system" / UNIT).write_text("[Unit]\n")
    elif damage == "manifest":
        (folder / "function.json").write_text("{")
    if damage not in ("unit", "manifest"):
        (found,) = _read(machine).functions
        assert found.problems, damage
    assert [machine.done(MADE), machine.done(MADE)] == [True, False]
    (found,) = _read(machine).functions
    assert found.problems == ()


def test_a_function_goes_with_all_that_it_has(machine: Machine) -> None:
    untouched = machine.files.state().lasting()
    machine.done(MADE)
    assert [machine.done(GONE), machine.done(GONE)] == [True, False]
    assert _read(machine).functions == ()
    for folder in (FOLDER, RUN_FOLDER, "/etc/systemd/system"):
        assert _below(machine, folder) == [], folder
    assert machine.files.state().lasting() == untouched


@pytest.mark.parametrize("left", ["files", "namespace", "port", "unit", "run folder"])
def test_what_a_killed_run_left_is_found_and_goes(machine: Machine, left: str) -> None:
    root = machine.files.root
    if left == "files":
        (root / FOLDER.lstrip("/") / NAME / "files-1").mkdir(parents=True)
        (root / FOLDER.lstrip("/") / NAME / "files-1" / "tls.pem").write_text(SECRET)
    elif left == "run folder":
        (root / RUN_FOLDER.lstrip("/") / NAME).mkdir(parents=True)
    elif left == "unit":
        (root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        (root / "etc/systemd/system" / UNIT).write_text("[Unit]\n")
    else:
        with machine.files.change() as state:
            if left == "namespace":
                state.namespaces[f"vgpuctl-{NAME}"] = {}
            else:
                state.ovn.ports["vgf1"] = {"vgpuctl-function": NAME}
                state.ovn.bridges["br-int"].append("vgf1")
    (found,) = _read(machine).functions
    assert (found.name, found.digest, len(found.left)) == (NAME, "", 1)
    assert machine.done(GONE) and _read(machine).functions == ()


def test_things_of_others_are_left_alone(machine: Machine) -> None:
    with machine.files.change() as state:
        state.namespaces["other"] = {}
        state.ovn.ports["tap0"] = {"iface-id": "x"}
    machine.done(MADE, GONE)
    state = machine.files.state()
    assert "other" in state.namespaces and "tap0" in state.ovn.ports and _read(machine).functions == ()


def test_a_boot_brings_the_namespace_and_the_port_back(machine: Machine) -> None:
    machine.done(MADE)
    machine.reboot()
    machine.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
    assert machine.files.state().namespaces == {}
    assert functions_run.main(machine.host) == 0
    with machine.files.change() as state:
        state.services[UNIT] = True
    (found,) = _read(machine).functions
    assert found.problems == ()
    assert not machine.done(MADE), "after a boot nothing is restarted"
