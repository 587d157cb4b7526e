# SPDX-License-Identifier: Apache-2.0
"""A command that is interrupted, or closes its connections, records nothing of what fails by that."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.fleet_factory import a40_host
from vgpuctl.errors import GuestError, HostUnreachable
from vgpuctl.hosts.fleet import FleetProgress
from vgpuctl.model.way import Way
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.observed.full_survey import survey_fully
from vgpuctl.usecases.observed.observations import note_answers, observed_hosts, read_domains, read_facts
from vgpuctl.usecases.running.services import HostSession, Openers, Services

FACTS = a40_host("gpu1").facts
WAY = Way("root@gpu1 port 22")


class _Host:
    """A host whose answers fail when its connection is closed; closing waits until its reader has ended.

    libvirt_only: its agent answers.
    """

    def __init__(self, *, libvirt_only: bool) -> None:
        self.way = WAY
        self._libvirt_only = libvirt_only
        self.is_asked, self._is_closed = threading.Event(), threading.Event()
        self.reader: threading.Thread | None = None

    def facts(self) -> Any:
        if self._libvirt_only:
            return FACTS
        self._fail(HostUnreachable("gpu1: the connection was lost"))

    def facts_and_health(self) -> Any:
        return self.facts(), None

    def states(self) -> Any:
        self._fail(GuestError("gpu1: End of file while reading data (libvirt error 38)"))

    def _fail(self, error: Exception) -> None:
        self.reader = threading.current_thread()
        self.is_asked.set()
        assert self._is_closed.wait(60)
        raise error

    def close(self) -> None:
        self._is_closed.set()
        assert self.reader is not None
        self.reader.join(60)


class _Session(HostSession):
    def __init__(self, host: _Host) -> None:
        connection: Any = host
        super().__init__("gpu1", connection, connection, connection)
        self._of: Any = host

    @property
    def agent(self) -> Any:
        return self._of

    @property
    def hypervisor(self) -> Any:
        return self._of


READS: dict[str, Callable[[Services], object]] = {
    "facts": lambda services: services.on_hosts(["gpu1"], lambda name: read_facts(services, name)),
    "domains": lambda services: services.on_hosts(["gpu1"], lambda name: read_domains(services, name)),
    "both": lambda services: survey_fully(services, ["gpu1"], refresh=True),
}


def _services(host: _Host, url: str, watch: Any = None) -> Services:
    inventory: Any = SimpleNamespace(target=lambda _name: None, structure_warnings=(), health_policy=lambda _name: None)
    return Services(
        Openers(
            inventory=lambda: inventory, store=lambda: open_store(url), store_place=inventory,
            session=lambda _inventory, _name: _Session(host),
        ),
        say=lambda _line: None,
        watch=watch,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["interrupted", "closed by another thread"])
@pytest.mark.parametrize("what", READS)
def test_a_command_that_ends_takes_no_host_for_lost(what: str, how: str, store: Store, url: str) -> None:
    with store.transaction() as session:
        note_answers(session, "gpu1", facts=FACTS, domains={}, way=WAY)
    host = _Host(libvirt_only=what != "facts")

    def interrupt(progress: FleetProgress) -> None:
        if host.is_asked.is_set() and not progress.is_over:
            if how == "interrupted":
                raise KeyboardInterrupt
            services.forget_host("gpu1")

    services = _services(host, url, interrupt)
    services.open_store()
    try:
        READS[what](services)
    except KeyboardInterrupt:
        assert how == "interrupted"
    finally:
        services.close()
    assert host.is_asked.is_set()
    with store.reading() as session:
        seen = observed_hosts(session)["gpu1"]
        assert (seen.state, seen.libvirt.unknown_since) == ("up", None)
        assert session.events(10) == []
