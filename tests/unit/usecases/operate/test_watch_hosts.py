# SPDX-License-Identifier: Apache-2.0
"""Values that the watch keeps, and those that it asks for again, when a part of a host gives no answer."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet_factory import host_facts
from tests.unit.usecases.seats.licensed_share import licensed_share
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import GpuHealth, HostHealth
from vgpuctl.agent.wire.readings import HostReadings, VgpuReadings
from vgpuctl.errors import AgentBroken, HostUnreachable, InventoryError, LibvirtMissing, StoreUnusable, VgpuctlError
from vgpuctl.model.event import EventFilter
from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.model.way import Way
from vgpuctl.store.store import open_store
from vgpuctl.usecases.observed.observations import ObservedHost, note_answers, observed_hosts
from vgpuctl.usecases.operate import sighting, watch_hosts
from vgpuctl.usecases.operate.watch_hosts import watching
from vgpuctl.usecases.running.services import HostSession, Openers, Services

HOST = "gpu1"
LOOKS = 6


class _Host:
    """A host that counts what it is asked. agent, libvirt: the error of all answers, None while it answers."""

    is_alive = True

    def __init__(self) -> None:
        self.reads = self.logins = self.tunnels = self.tries = 0
        self.login: VgpuctlError | None = None
        self.agent: VgpuctlError | None = None
        self.libvirt: VgpuctlError | None = None
        self.killed: set[str] = set()
        self.hangs = False
        self.gpus: tuple[GpuHealth, ...] = ()
        self.vgpus: tuple[VgpuReadings, ...] | None = None
        self.way = Way("root@10.0.0.1 port 22")

    def session(self, _inventory: object, name: str) -> HostSession:
        self.logins += 1
        while self.hangs:
            time.sleep(0.01)
        if self.login is not None:
            raise self.login
        line: Any = self
        return HostSession(name, line, lambda _line: line, line._open_libvirt)

    @contextlib.contextmanager
    def libvirt_uri(self) -> Iterator[str]:
        self.tunnels += 1
        try:
            yield "test:///default"
        finally:
            self.tunnels -= 1

    @contextlib.contextmanager
    def _open_libvirt(self, _uri: str, _host: str) -> Iterator[Any]:
        self.states()
        yield self

    def states(self) -> dict[str, Any]:
        self.tries += 1
        if self.libvirt is not None:
            raise self.libvirt
        return {}

    def call_on_change(self, _call: Callable[[], None]) -> None:
        """Nothing changes here."""

    def facts_and_health(self) -> tuple[HostFacts, HostHealth]:
        self.reads += 1
        if self.agent is not None:
            raise self.agent
        facts = host_facts([])
        return facts, HostHealth(facts.boot_id, self.gpus)

    def readings(self) -> HostReadings:
        assert self.vgpus is not None, "nobody counts licences here"
        return HostReadings("boot-1", 0.0, 0.0, vgpus=self.vgpus)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def there() -> _Host:
    return _Host()


@pytest.fixture
def told() -> list[str]:
    """The messages to the operator."""
    return []


@pytest.fixture
def services(there: _Host, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Of an inventory with one host, which is looked at 50 times a second and read once in READ_S."""
    for name in ("LOOK_S", "_PAUSE_S", "RECORD_S"):
        monkeypatch.setattr(watch_hosts, name, 0.02)
    monkeypatch.setattr(watch_hosts, "bring_back", lambda *_: None)
    said = {"select": lambda *_: [HOST], "health_policy": lambda *_: None, "structure_warnings": ()}
    said["layout"] = lambda *_: None
    inventory: Any = type("Inventory", (), said)()
    unused: Any = None
    with Services(
        Openers(
            inventory=lambda: inventory,
            store=lambda: open_store(f"sqlite:///{tmp_path}/store.db"),
            store_place=unused,
            session=there.session,
        ),
        forks=1,
        say=told.append,
    ) as opened:
        yield opened


def _was_reached(services: Services, there: _Host) -> None:
    """Once a login has worked."""
    with services.store.transaction() as session:
        note_answers(session, HOST, domains={}, way=there.way)


def _soon(is_so: Callable[[], bool], limit_s: float = 20) -> None:
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def _seen(services: Services) -> ObservedHost:
    return _all_seen(services)[HOST]


def _all_seen(services: Services) -> dict[str, ObservedHost]:
    with services.store.reading() as session:
        return observed_hosts(session)


def test_the_intervals_keep_the_store_true_within_thirty_seconds() -> None:
    """As docs/repair.md promises: what no event tells is seen by the next question, or by its missing answer."""
    noticed_s = max(watch_hosts.READ_S, watch_hosts.LOOK_S + watch_hosts.ANSWER_S)
    assert noticed_s + watch_hosts.RECORD_S <= 30


def test_a_host_is_read_once_while_only_its_libvirt_is_away(services: Services, there: _Host) -> None:
    there.libvirt = LibvirtMissing("libvirtd is not up yet")
    with watching(services, threading.Event()):
        _soon(lambda: there.tries >= LOOKS)
        assert (there.reads, there.logins) == (1, 1)
        _soon(lambda: _seen(services).libvirt.problem is not None)
        assert _seen(services).state == "up"
        there.libvirt = None
        _soon(lambda: _seen(services).libvirt.problem is None)
    assert (there.reads, there.logins) == (1, 1)
    _soon(lambda: there.tunnels == 0)  # the threads of hosts are told to end, and not waited for


def test_libvirt_is_asked_while_the_agent_gives_no_answer(services: Services, there: _Host) -> None:
    there.agent = AgentBroken("it wrote something else")
    with watching(services, threading.Event()):
        _soon(lambda: there.reads >= LOOKS)
    assert there.tries > 0
    assert there.logins == 1, "the connection stays"


def test_a_sick_gpu_is_in_quarantine_also_where_the_inventory_cannot_be_read(
    services: Services, there: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InventoryError("a typing error")

    monkeypatch.setattr(services.inventory, "layout", refuse)
    monkeypatch.setattr(services.inventory, "health_policy", refuse)
    there.gpus = (GpuHealth("0000:41:00.0", "10de:2235", "ffff:ffff", "nvidia"),)

    def found() -> list[str | None]:
        with services.store.reading() as session:
            return [one.finding for one in session.restrictions()]

    with watching(services, threading.Event()):
        _soon(lambda: found() == ["off-the-bus"])


def test_a_lost_licence_is_an_event_where_licences_are_counted(
    services: Services, there: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_hosts, "READ_S", 0.0)
    with watching(services, threading.Event()):
        _soon(lambda: there.reads >= LOOKS)  # a site without a pool: nobody reads the vGPUs
    lease, vgpu = licensed_share(HOST)
    with services.store.transaction() as session:
        session.add_tenant(lease.tenant)
        session.put_licence_pool(LicencePool("dls", Edition.VWS, 1))
        session.save_facts(HOST, host_facts([]), 1.0)
        session.reserve(HOST, session.generation(HOST), [lease])

    def written() -> list[object]:
        with services.store.reading() as session:
            found = session.events(None, EventFilter(kinds=("licence-observed",)))
        return [one.after["licence"] for one in found]

    there.vgpus = (vgpu("licensed"),)
    with watching(services, threading.Event()):
        for state in ("licensed", "unlicensed-restricted", "unlicensed"):
            there.vgpus = (vgpu(state),)
            before = there.reads
            _soon(lambda before=before: there.reads >= before + LOOKS)  # type: ignore[misc]
        _soon(lambda: written() == ["unlicensed"])
        there.vgpus = (vgpu("licensed"),)
        _soon(lambda: written() == ["unlicensed", "licensed"])


def test_a_host_without_any_answer_is_connected_again(services: Services, there: _Host) -> None:
    _was_reached(services, there)
    there.agent = HostUnreachable("it was reset")
    with watching(services, threading.Event()):
        _soon(lambda: there.logins >= LOOKS)
    assert there.tries == 0
    assert _seen(services).state == "unreachable"


def test_a_mistake_in_the_inventory_is_told_once(services: Services, there: _Host, told: list[str]) -> None:
    there.login = InventoryError("hosts.yml:7: ansible_port is 'abc'")
    with watching(services, threading.Event()):
        _soon(lambda: there.logins >= LOOKS)
    assert told == [f"{HOST}: it is not watched: hosts.yml:7: ansible_port is 'abc'"]


def test_what_a_host_answered_while_the_store_was_away_is_recorded_later(
    services: Services, there: _Host, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    _was_reached(services, there)
    there.agent = HostUnreachable("it was reset")
    tried: list[int] = []
    record = note_answers

    def note(*arguments: Any, **answers: Any) -> None:
        tried.append(1)
        if len(tried) <= 3:
            # Nothing else comes: what the store did not take is all that there is.
            there.hangs = True
            raise StoreUnusable("the disk is full")
        record(*arguments, **answers)

    monkeypatch.setattr(sighting, "note_answers", note)
    with watching(services, threading.Event()):
        try:
            _soon(lambda: _seen(services).state == "unreachable", limit_s=watch_hosts.ANSWER_S / 2)
        finally:
            there.hangs = False
    assert len(told) == 1 and "the hosts are recorded later" in told[0]


def test_the_watch_goes_on_after_an_error_that_nobody_foresaw(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    record = note_answers

    def note(*arguments: Any, **answers: Any) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ZeroDivisionError
        record(*arguments, **answers)

    monkeypatch.setattr(sighting, "note_answers", note)
    with watching(services, threading.Event()):
        _soon(lambda: HOST in _all_seen(services))


def test_a_kill_is_remembered_when_libvirt_is_opened_again(there: _Host) -> None:
    session = there.session(None, HOST)
    session.hypervisor.killed.add("5b1c")
    session.let_go_of_libvirt()
    there.killed = set()
    assert session.killed == {"5b1c"}
    assert session.hypervisor.killed == set()
    assert session.killed == {"5b1c"}
