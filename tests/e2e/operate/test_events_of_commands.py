# SPDX-License-Identifier: Apache-2.0
"""Every command is run once: a changing one leaves its event, a reading one and a dry run leave none."""

import base64
import contextlib
import datetime
import json
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import psycopg
import pytest
from sqlalchemy import make_url

import vgpuctl_lab as lab
from tests.asking import asking
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.command_events import READING, SCENARIO, Step
from tests.e2e.operator import Operator, forgetful
from tests.lab.simulated_fixtures import need_simulated
from tests.ovn_fixture import LocalOvn, central
from tests.postgres_fixture import LocalPostgres
from vgpuctl.cli.frame.rehearsal import REHEARSED
from vgpuctl.cli.main import command
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.store.store import open_store

__all__ = ["central"]


_ON_HOSTS = ("-vm", "-nic", "-disk", "-snapshot", "-iso", "-off", "-pool", "-store")
"""The ends of rehearsed commands that would change hosts."""
NOBODY = "a yes is needed, and nobody can answer here"


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


@pytest.fixture
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """Two new hosts, whose layout is declared and not applied."""
    need_simulated()
    fleet = layout_fleet(tmp_path_factory.mktemp("walk"), 2, "a40")
    layout = {"gpus": [{"match": "all", "kind": "vgpu"}]}
    fleet.declare(sim_001=layout, sim_002=layout)
    yield fleet
    lab.simulated.down(folder=fleet.folder)


_ON_POSTGRESQL = pytest.mark.long(
    "tests/e2e/operate/test_events_of_commands.py::test_every_changing_command_leaves_its_event_and_every_other_none",
    "tests/e2e/store/test_grant_store.py::test_an_operator_works_and_its_role_is_in_the_events",
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=_ON_POSTGRESQL)])
def scene(
    request: pytest.FixtureRequest, layouts: LayoutFleet, central: LocalOvn, postgres: LocalPostgres, tmp_path: Path
) -> Iterator[Scene]:
    """The operators of one walk. On PostgreSQL the main one has a role with an operator's rights and no others."""
    (tmp_path / "globex.yml").write_text("version: 1\ntenant: globex\nquotas: {vms: 3}\n")
    (tmp_path / "mig.yml").write_text("version: v1\nmig-configs: {plain: [{devices: all, mig-enabled: false}]}\n")
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    key.chmod(0o600)
    variables = {"VGPUCTL_OVN_NORTHBOUND": central.northbound, "VGPUCTL_KEY_FILE": str(key)}
    shop = replace(layouts.operator, variables=variables)
    operators = {}
    for name in ("other", "forgetful"):
        (tmp_path / name).mkdir()
        operators[name] = forgetful(shop, tmp_path / name, "acme", "globex")
    with contextlib.ExitStack() as ended, postgres.create_database() as url, postgres.create_database() as second:
        operators["postgresql"] = operators["owner"] = replace(shop, database=url)
        _create_role(postgres, ended, "walker", "")
        if request.param == "sqlite":
            operators["main"] = operators["owner"] = replace(shop, database=f"sqlite:///{tmp_path}/store.db")
            operators["restored"] = replace(shop, database=f"sqlite:///{tmp_path}/restored.db")
        else:
            role = make_url(url).set(username="runner", password="secret")
            _create_role(postgres, ended, "runner", "LOGIN PASSWORD 'secret'")
            operators["owner"].does("grant-store", "--role", "runner", "--as", "operator")
            operators["main"] = replace(shop, database=role.render_as_string(hide_password=False))
            operators["restored"] = replace(shop, database=second)
        yield Scene(tmp_path, operators, layouts.folder)
        for database in (url, second):
            for statement in ('DROP OWNED BY "walker"', 'DROP OWNED BY "runner"'):
                with contextlib.suppress(psycopg.errors.UndefinedObject):
                    postgres.execute(statement, database=database.rpartition("/")[2])


def _create_role(postgres: LocalPostgres, ended: contextlib.ExitStack, name: str, options: str) -> None:
    postgres.execute(f"CREATE ROLE {name} {options}")
    ended.callback(postgres.execute, f"DROP ROLE {name}")


def _takes(name: str, option: str) -> bool:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return any(option in parameter.opts for parameter in found.params)


def _as_json(name: str) -> list[str]:
    """`--json` where the command has it: what it prints is then compared with its schema."""
    return ["--json"] if _takes(name, "--json") else []


def _events(operator: Operator, after_id: int = 0) -> list[Event]:
    with open_store(operator.database) as store, store.reading() as session:
        return session.events(None, EventFilter(after_id=after_id))


def _last_id(operator: Operator) -> int:
    with open_store(operator.database) as store, store.reading() as session:
        return session.last_event_id()


def _check(step: Step, found: Sequence[Event]) -> str | None:
    """The fault of the events that a command left, None if one of them is as the step says."""
    mine = [one for one in found if (one.kind, one.subject) == (step.kind, step.subject)]
    if not mine:
        return f"no {step.kind} of {step.subject} in {[(one.kind, one.subject) for one in found]}"
    event = mine[-1]
    if event.actor.command != step.command or not event.actor.os_user or not event.actor.client_host:
        return f"the actor is {event.actor}"
    if not (event.before or event.after):
        return "no value before and none after"
    return None


@pytest.mark.timeout(1500)
def test_every_changing_command_leaves_its_event_and_every_other_none(scene: Scene) -> None:
    faults: list[str] = []
    is_rehearsed = scene.operators["main"] == scene.operators["owner"]  # once is enough
    for step in SCENARIO:
        operator, arguments = scene.operators[step.where], scene.arguments(step.arguments)
        if is_rehearsed and step.command == "adopt-host":
            faults += _read_everything(scene)
        if step.first is not None:
            step.first(scene)
        is_new = step.command == "restore-store"  # which asks only before it replaces a store
        before = 0 if is_new else _last_id(operator)
        if is_rehearsed and step.command in asking() and not is_new:
            faults += _ask_nobody(operator, step, arguments)
        if is_rehearsed and _takes(step.command, "--dry-run"):
            faults += _rehearse(operator, step, arguments)
            if not is_new and _last_id(operator) != before:
                faults.append(f"{step.arguments} --dry-run left {_events(operator, before)}")
        try:
            done = operator.run(*arguments, *_as_json(step.command))
        except AssertionError as wrong:
            faults.append(f"{step.arguments}: {wrong}")
            continue
        # check-hosts answers 1 when it finds something
        if done.code not in (0, 1) and not step.is_refused:
            faults.append(f"{step.arguments} ended with {done.code}: {done.err}")
            continue
        fault = _check(step, _events(operator, before))
        if fault is not None:
            faults.append(f"{step.arguments}: {fault}")
    assert faults == [], "\n".join(faults)


def _ask_nobody(operator: Operator, step: Step, arguments: Sequence[str]) -> list[str]:
    """Run a command that asks without --yes, and without a terminal. It must fail, and leave every row as it was."""
    before = _rows(operator)
    done = operator.run(*(word for word in arguments if word != "--yes"), "--json")
    error = json.loads(done.err.splitlines()[-1])["error"] if done.code == 2 else {}
    faults = [] if error.get("message") == NOBODY else [f"{step.arguments} without --yes: {done.code}, {done.err}"]
    return [*faults, *([] if _rows(operator) == before else [f"{step.arguments} without --yes changed the store"])]


def _rehearse(operator: Operator, step: Step, arguments: Sequence[str]) -> list[str]:
    """Run a command with --dry-run. It must succeed, and leave every row and every domain as it was."""
    if step.command not in REHEARSED:
        operator.run(*arguments, "--dry-run", *_as_json(step.command))
        return []
    is_on_hosts = step.command.endswith(_ON_HOSTS)
    with _libvirts(operator, ("sim-001", "sim-002") if is_on_hosts else ()) as hosts:
        before = _rows(operator), _domains(hosts)
        done = operator.run(*arguments, "--dry-run", "--json")
        after = _rows(operator), _domains(hosts)
    faults = [] if done.code == 0 else [f"{step.arguments} --dry-run ended with {done.code}: {done.err}"]
    faults += [] if done.code or _says_so(done.out) else [f"{step.arguments} --dry-run printed {done.out}"]
    faults += [] if after[0] == before[0] else [f"{step.arguments} --dry-run changed the store"]
    return [*faults, *([] if after[1] == before[1] else [f"{step.arguments} --dry-run changed a host"])]


def _says_so(printed: str) -> bool:
    """True if the JSON of a dry run says what it is, and that of one object what hosts were spared."""
    found = json.loads(printed)
    if isinstance(found, dict):
        return found["dry_run"] is True and isinstance(found["steps"], list)
    return all(one["dry_run"] is True for one in found)


@contextlib.contextmanager
def _libvirts(operator: Operator, names: Sequence[str]) -> Iterator[dict[str, Hypervisor]]:
    """Open libvirt on those of the hosts that answer."""
    with contextlib.ExitStack() as opened:
        hosts: dict[str, Hypervisor] = {}
        for host in names:
            with contextlib.suppress(VgpuctlError):
                hosts[host] = opened.enter_context(libvirt_of(operator.inventory, host))
        yield hosts


def _domains(hosts: Mapping[str, Hypervisor]) -> list[str]:
    """The definition, state and disks of every domain of the hosts."""
    found = []
    for host, there in hosts.items():
        with contextlib.suppress(VgpuctlError):
            for one in there.domains():
                found.append(f"{host} {one.state} {one.uuid} {there.definition(one.name, uuid=one.uuid)}")
            for pool in Storage(there).pools():
                found += [f"{host} {fact}" for fact in Storage(there).volumes(pool.name)]
    return sorted(found)


def _rows(operator: Operator) -> list[str]:
    """Everything in a store in SQLite."""
    with contextlib.closing(sqlite3.connect(operator.database.removeprefix("sqlite:///"))) as store:
        return list(store.iterdump())


def _read_everything(scene: Scene) -> list[str]:
    """Run what only reads. Returns those that left an event."""
    faults = []
    operator = scene.operators["main"]
    for name, arguments in READING.items():
        before = _last_id(operator)
        try:
            done = operator.run(name, *scene.arguments(arguments), *_as_json(name))
        except AssertionError as wrong:
            faults.append(f"{name} {arguments}: {wrong}")
            continue
        if done.code == 2:
            faults.append(f"{name} was not understood: {done.err}")
        faults += [f"{name} left {one.kind} of {one.subject}" for one in _events(operator, before)]
    return faults
