# SPDX-License-Identifier: Apache-2.0
"""repair --gone: what a machine left open that never comes back, and what keeps it from being ended."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpuctl.errors import ConcurrentChange, NotFound, StateError, UsageError
from vgpuctl.store.liveness import GONE, is_running, this_process
from vgpuctl.usecases.operate.gone_machine import end_gone
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services

SUBJECTS = ("host/gpu1", "rebalance:moves", "tune:fleet", "move:9c1b3a52-0000-4000-8000-000000000001")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    settings = Settings((), f"sqlite:///{tmp_path}/store.db")
    with open_services(settings, lambda _text: None) as opened:
        yield opened


def _leave(services: Services, hostname: str = "admin-2", *subjects: str) -> None:
    with services.store.transaction() as session:
        for subject in subjects or SUBJECTS:
            session.begin_operation("rebalance", subject, pid=4711, hostname=hostname)


def _open(services: Services) -> list[tuple[str, str]]:
    with services.store.reading() as session:
        return [(one.subject, one.hostname) for one in session.open_operations()]


def _controller(services: Services, store: Path) -> None:
    """A controller as one of the machine admin-2 has registered it."""
    with services.store.transaction() as session:
        session.beat_controller("other", ["gpu1"])
    _change(store, "UPDATE controllers SET hostname = 'admin-2', machine = 'm'")


def _controller_in(store: Path) -> None:
    """The same, in a thread of its own."""
    with open_services(Settings((), f"sqlite:///{store}"), lambda _text: None) as opened:
        _controller(opened, store)


def _change(store: Path, statement: str) -> None:
    """Change rows as another machine would have written them."""
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(statement)


def test_everything_that_a_gone_machine_has_open_is_ended(services: Services) -> None:
    _leave(services)
    _leave(services, "admin-3", "host/gpu9")
    with pytest.raises(ConcurrentChange) as refused, services.store.operation("apply", "host/gpu1", exclusive=True):
        pass
    assert "`vgpuctl repair --gone admin-2` if that machine never comes back" in (refused.value.hint or "")
    planned = end_gone(services, "admin-2", dry_run=True, wait_s=0)
    assert len(_open(services)) == 5, "a dry run ends nothing"
    assert end_gone(services, "admin-2", dry_run=False, wait_s=0) == planned
    assert [subject for subject, _found in planned] == list(SUBJECTS)
    assert planned[0][1].startswith("rebalance of host/gpu1, begun ")
    assert planned[0][1].endswith("UTC by process 4711 of admin-2, which is gone")
    with services.store.reading() as session:
        own = [one for one in session.open_operations() if one.hostname != "admin-3"]
        (event,) = session.events(1)
    assert {(one.process_start, is_running(one)) for one in own} == {(GONE, False)}
    assert (event.kind, event.subject, len(event.before["open"])) == ("machine-gone", "admin-2", 4)  # type: ignore[arg-type]
    with services.store.operation("apply", "host/gpu1", exclusive=True, takes_over=True):
        pass
    assert ("host/gpu1", this_process().hostname) not in _open(services), "as of a dead run of this machine"
    assert ("host/gpu9", "admin-3") in _open(services)


@pytest.mark.parametrize(
    ("machine", "error", "words"),
    [
        ("admin-9", NotFound, "no process of a machine admin-9 has anything open"),
        ("", NotFound, "no process of a machine"),
        (this_process().hostname, UsageError, "is this machine"),
    ],
)
def test_a_machine_without_open_work_is_refused(
    services: Services, machine: str, error: type[Exception], words: str
) -> None:
    _leave(services)
    with pytest.raises(error, match=words) as refused:
        end_gone(services, machine, dry_run=False)
    if error is NotFound:
        assert "admin-2" in str(getattr(refused.value, "hint", ""))
    assert len(_open(services)) == 4


def test_a_machine_that_was_installed_again_under_its_name_is_told_from_this_one(
    services: Services, tmp_path: Path
) -> None:
    _leave(services, this_process().hostname)
    _change(tmp_path / "store.db", "UPDATE operations SET machine = 'before'")
    assert len(end_gone(services, this_process().hostname, dry_run=False, wait_s=0)) == 4


def test_nothing_is_ended_while_a_controller_of_the_machine_counts_beats(services: Services, tmp_path: Path) -> None:
    _leave(services)
    _controller(services, tmp_path / "store.db")
    stop = threading.Event()

    def beats() -> None:
        settings = Settings((), f"sqlite:///{tmp_path}/store.db")
        with open_services(settings, lambda _text: None) as other:
            while not stop.wait(0.1):
                with other.store.transaction() as session:
                    session.beat_controller("other", ["gpu1"])

    living = threading.Thread(target=beats)
    living.start()
    try:
        with pytest.raises(StateError, match="is alive: it has just counted a beat"):
            end_gone(services, "admin-2", dry_run=False, wait_s=20)
    finally:
        stop.set()
        living.join()
    assert len(_open(services)) == 4


def test_a_controller_that_registers_again_is_alive(services: Services, tmp_path: Path) -> None:
    """Others buried it while it could not reach the store."""
    _leave(services)
    late = threading.Timer(0.3, lambda: _controller_in(tmp_path / "store.db"))
    late.start()
    with pytest.raises(StateError, match="is alive"):
        end_gone(services, "admin-2", dry_run=False, wait_s=20)
    late.join()


def test_a_silent_controller_is_taken_out_and_its_hosts_are_free(services: Services, tmp_path: Path) -> None:
    _controller(services, tmp_path / "store.db")
    began = time.monotonic()
    assert end_gone(services, "admin-2", dry_run=False, wait_s=0.6) == []
    assert time.monotonic() - began >= 0.6
    with services.store.reading() as session:
        assert session.controllers() == []
