# SPDX-License-Identifier: Apache-2.0
"""Every command is run once: a changing one leaves its event, a reading one and a dry run leave none."""

import datetime
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.command_events import READING, SCENARIO, Step
from tests.e2e.operator import Operator, forgetful
from tests.lab.simulated_fixtures import need_simulated
from tests.ovn_fixture import LocalOvn, central
from tests.postgres_fixture import LocalPostgres
from vgpuctl.cli.main import command

__all__ = ["central"]


@dataclass(frozen=True)
class Scene:
    """The operators of the scenario by the name of their store."""

    home: Path
    operators: dict[str, Operator]
    lab_folder: lab.LabFolder

    def arguments(self, text: str) -> list[str]:
        """The arguments of a command line, with what it leaves open."""
        tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
        return shlex.split(text.format(home=self.home, soon=tomorrow))

    def does(self, text: str) -> None:
        """Run a command on the main store that must succeed."""
        self.operators["main"].does(*self.arguments(text))

    def cut_off(self, host: str) -> None:
        """Let a host look dead."""
        lab.faults.begin(host, "sshd", folder=self.lab_folder)

    def connect_again(self, host: str) -> None:
        """End that."""
        lab.faults.clear(host, folder=self.lab_folder)

    def power_off(self, host: str, domain: str) -> None:
        """End a domain as somebody else would."""
        with libvirt_of(self.operators["main"].inventory, host) as there:
            (found,) = [one for one in there.domains() if one.name == domain]
            there.destroy(domain, uuid=found.uuid)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    need_simulated()
    fleet = layout_fleet(tmp_path_factory.mktemp("walk"), 2, "a40")
    layout = {"gpus": [{"match": "all", "kind": "vgpu"}]}
    fleet.declare(sim_001=layout, sim_002=layout)
    yield fleet
    lab.simulated.down(folder=fleet.folder)


@pytest.fixture(scope="module")
def scene(layouts: LayoutFleet, central: LocalOvn, postgres: LocalPostgres) -> Iterator[Scene]:
    home = layouts.operator.home
    (home / "globex.yml").write_text("version: 1\ntenant: globex\nquotas: {vms: 3}\n")
    (home / "mig.yml").write_text("version: v1\nmig-configs: {plain: [{devices: all, mig-enabled: false}]}\n")
    main = replace(layouts.operator, variables={"VGPUCTL_OVN_NORTHBOUND": central.northbound})
    operators = {"main": main}
    for name in ("other", "forgetful"):
        (home / name).mkdir()
        operators[name] = forgetful(main, home / name, "acme", "globex")
    operators["restored"] = replace(main, database=f"sqlite:///{home}/restored.db")
    postgres.execute("CREATE ROLE walker")
    with postgres.create_database() as url:
        operators["postgresql"] = replace(main, database=url)
        yield Scene(home, operators, layouts.folder)
    postgres.execute("DROP ROLE walker")


def _has_dry_run(name: str) -> bool:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return any("--dry-run" in parameter.opts for parameter in found.params)


def _last_id(operator: Operator) -> int:
    return max((one["id"] for one in operator.json("list-events", "--limit", "1")), default=0)


def _check(step: Step, found: list[dict[str, Any]]) -> str | None:
    """What is wrong with the events that a command left, None if one of them is as the step says."""
    mine = [one for one in found if (one["kind"], one["subject"]) == (step.kind, step.subject)]
    if not mine:
        return f"no {step.kind} of {step.subject} in {[(one['kind'], one['subject']) for one in found]}"
    event = mine[-1]
    actor = event["actor"]
    if actor["command"] != step.command or not actor["os_user"] or not actor["client_host"]:
        return f"the actor is {actor}"
    if not (event["before"] or event["after"]):
        return "no value before and none after"
    return None


def test_every_changing_command_leaves_its_event_and_every_other_none(scene: Scene) -> None:
    faults: list[str] = []
    for step in SCENARIO:
        operator, arguments = scene.operators[step.where], scene.arguments(step.arguments)
        if step.command == "adopt-host":
            faults += _read_everything(scene)
        if step.first is not None:
            step.first(scene)
        before = 0 if step.command == "restore-store" else _last_id(operator)
        if _has_dry_run(step.command):
            operator.run(*arguments, "--dry-run")
            if step.command != "restore-store" and _last_id(operator) != before:
                faults.append(f"{step.arguments} --dry-run left {operator.json('list-events', '--limit', '3')}")
        done = operator.run(*arguments)
        if done.code not in (0, 1):  # check-hosts answers 1 when it finds something
            faults.append(f"{step.arguments} ended with {done.code}: {done.err}")
            continue
        left = operator.json("list-events", "--limit", "0", "--after", str(before))
        fault = _check(step, left)
        if fault is not None:
            faults.append(f"{step.arguments}: {fault}")
    assert faults == [], "\n".join(faults)


def _read_everything(scene: Scene) -> list[str]:
    """Run what only reads. Returns those that left an event."""
    faults = []
    operator = scene.operators["main"]
    for name, arguments in READING.items():
        before = _last_id(operator)
        done = operator.run(name, *scene.arguments(arguments))
        if done.code == 2:
            faults.append(f"{name} was not understood: {done.err}")
        left = operator.json("list-events", "--limit", "0", "--after", str(before))
        faults += [f"{name} left {one['kind']} of {one['subject']}" for one in left]
    return faults
