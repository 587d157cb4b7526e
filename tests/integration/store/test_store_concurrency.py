# SPDX-License-Identifier: Apache-2.0
"""Several runs at once, and runs that are killed: one wins, nothing is lost, no lock leaks."""

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from tests.integration.store import racers
from tests.integration.store.samples import host_facts, lease, vm
from vgpuctl.errors import ConcurrentChange, StoreUnusable
from vgpuctl.model.backup import StoreKind
from vgpuctl.quota.limits import Quota
from vgpuctl.store import failures, postgresql, sqlite
from vgpuctl.store.liveness import is_running, this_process
from vgpuctl.store.store import Store, open_store

RACERS = 6
LIMIT_S = 90

Racer = Callable[[str, Barrier, Callable[[object], object]], None]


class Race:
    """Processes that start together."""

    def __init__(self, racer: Racer, url: str, *, count: int = RACERS, spectators: int = 0) -> None:
        context = multiprocessing.get_context("forkserver")  # real processes, without importing SQLAlchemy in each
        context.set_forkserver_preload(["vgpuctl.store.store", "sqlalchemy.dialects.postgresql", "psycopg"])
        self.barrier = context.Barrier(count + spectators)
        self._answers = context.Queue()
        self._processes: list[BaseProcess] = [
            context.Process(target=racer, args=(url, self.barrier, self._answers.put), daemon=True)
            for _ in range(count)
        ]
        for process in self._processes:
            process.start()

    def answer(self) -> Any:
        """The next answer, whoever gives it."""
        give_up = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up:
            try:
                return self._answers.get(timeout=0.2)
            except queue.Empty:
                failed = [process.exitcode for process in self._processes if process.exitcode not in (None, 0)]
                assert not failed, "a racer died; its traceback is above"
        raise AssertionError("no racer answered")

    def end(self) -> list[int | None]:
        """Wait for all; their exit codes."""
        for process in self._processes:
            process.join(LIMIT_S)
        return [process.exitcode for process in self._processes]


def run_race(racer: Racer, url: str) -> list[Any]:
    """Let RACERS processes run and return what each told."""
    race = Race(racer, url)
    answers = [race.answer() for _ in range(RACERS)]
    assert race.end() == [0] * RACERS
    return answers


@pytest.fixture
def filled(url: str, store: Store) -> str:
    """The URL of a store with a tenant and a host."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.save_facts("gpu1", host_facts(), 1.0)
    return url


@pytest.mark.parametrize("racer", [racers.add_same_device, racers.reserve_as_seen])
def test_exactly_one_of_many_runs_wins(store: Store, filled: str, racer: Racer) -> None:
    winners = [answer for answer in run_race(racer, filled) if answer is not None]
    assert len(winners) == 1
    with store.reading() as session:
        assert [held.id for held in session.leases()] == winners
        assert session.generation("gpu1") == 1


def test_runs_that_place_again_share_all_devices_without_a_double(store: Store, filled: str) -> None:
    taken = [device for answer in run_race(racers.take_free_devices, filled) for device in answer]
    assert len(taken) == len(set(taken)) == 20
    with store.reading() as session:
        assert {held.share.device for held in session.leases()} == set(taken)
        assert session.generation("gpu1") == 20
        assert sorted(str(event.after["device"]) for event in session.events(100)) == sorted(taken)


@pytest.mark.parametrize(("resource", "limit", "fits"), [("framebuffer", 52 * 1024, 6), ("vms", 7, 7)])
def test_a_quota_is_never_exceeded_by_many_runs_at_once(
    store: Store, filled: str, resource: str, limit: int, fits: int
) -> None:
    with store.transaction() as session:
        session.set_quotas("acme", [Quota(resource, limit)])
    taken = run_race(racers.take_within_quota, filled)
    assert sum(taken) == fits
    with store.reading() as session:
        assert len(session.leases()) == len(session.vms()) == fits
        assert session.used("acme")[resource] <= limit


def test_many_runs_make_one_new_store(url: str) -> None:
    pids = run_race(racers.open_new_store, url)
    with open_store(url) as store, store.reading() as session:
        assert {tenant.name for tenant in session.tenants()} == {f"tenant-{pid}" for pid in pids}


def test_writer_killed_in_a_transaction_leaves_a_usable_store(store: Store, filled: str) -> None:
    race = Race(racers.die_in_transaction, filled, count=1, spectators=1)
    assert race.answer() == "in transaction"
    with store.reading() as session:
        (operation,) = session.open_operations()
        assert is_running(operation) is True
    race.barrier.wait(LIMIT_S)
    assert race.end() == [-signal.SIGKILL]
    with store.transaction() as session:
        assert session.vms() == []
        assert session.leases() == []
        assert session.events(1) == []
        assert session.open_operations() == [operation]
        assert is_running(operation) is False
        session.end_operation(operation.id)
        session.end_operation(operation.id)
        session.add_vm(vm("dies"))
        session.reserve("gpu1", 0, [lease()])
    with open_store(filled) as again, again.reading() as session:
        assert session.open_operations() == []
        assert len(session.leases()) == 1


def test_operation_stands_in_the_journal_as_long_as_it_runs(store: Store) -> None:
    def begin_and_fail() -> None:
        with store.operation("create-vm", "acme/web-1", '{"host": "gpu1"}'):
            with store.reading() as session:
                (operation,) = session.open_operations()
            assert (operation.kind, operation.subject, operation.detail) == (
                "create-vm",
                "acme/web-1",
                '{"host": "gpu1"}',
            )
            assert (operation.pid, operation.hostname) == (os.getpid(), this_process().hostname)
            assert is_running(operation) is True
            with (
                pytest.raises(ConcurrentChange, match="create-vm is at work"),
                store.operation("delete-vm", "acme/web-1", exclusive=True),
            ):
                pass
            with store.operation("delete-vm", "acme/web-2", exclusive=True):
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin_and_fail()
    with store.reading() as session:
        assert session.open_operations() == []


def test_a_run_that_ends_well_takes_over_what_dead_runs_noted(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(LIMIT_S)
    with store.transaction() as session:
        for subject, pid in (("vm", ended.pid), ("vm", os.getpid()), ("another", ended.pid)):
            session.begin_operation("start-vm", subject, pid=pid)
        session.begin_operation("start-vm", "vm", pid=1, hostname="another.example")
        noted = session.open_operations()
    with pytest.raises(KeyboardInterrupt), store.operation("start-vm", "vm", takes_over=True):
        raise KeyboardInterrupt
    with store.operation("start-vm", "vm"):
        pass
    with store.reading() as session:
        assert session.open_operations() == noted
    with store.operation("start-vm", "vm", takes_over=True):
        pass
    with store.reading() as session:
        assert session.open_operations() == noted[1:]


def test_liveness_goes_by_machine_pid_and_start(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(LIMIT_S)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with store.transaction() as session:
        session.begin_operation("a", "elsewhere", pid=1, hostname="another.example")
        session.begin_operation("b", "ended", pid=ended.pid)
        session.begin_operation("c", "init, start unknown", pid=1)
        session.begin_operation("d", "this")
        session.begin_operation("e", "this machine", hostname=this_process().hostname)
        operations = session.open_operations()
    assert [is_running(operation) for operation in operations] == [None, False, True, True, True]
    mine = operations[3]
    used_again = type(mine)(**{**vars(mine), "process_start": mine.process_start + "1"})
    assert is_running(used_again) is False
    assert is_running(type(mine)(**{**vars(mine), "pid": zombie.pid})) is False
    zombie.wait(LIMIT_S)


def test_readers_do_not_wait_for_a_writer(store: Store, filled: str) -> None:
    with store.transaction() as writer, open_store(filled) as other:
        writer.add_tenant("late")
        with other.reading() as session:
            assert [tenant.name for tenant in session.tenants()] == ["acme"]


def test_lock_held_too_long_is_told_and_not_leaked(store: Store, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(postgresql, "BEGIN_WRITING", postgresql.BEGIN_WRITING.replace("15s", "200ms"))
    with ExitStack() as stack:
        other = stack.enter_context(open_store(filled))
        with store.transaction() as writer:
            writer.add_tenant("slow")
            with pytest.raises(StoreUnusable, match="was locked for") as caught, other.transaction():
                pass
            if store.kind is StoreKind.POSTGRESQL:  # SQLite's own process holds it here
                (holder,) = caught.value.context
                assert holder.startswith("vgpuctl of the role ") and "has written for" in holder
            else:
                assert "another vgpuctl" in (caught.value.hint or "")
        with other.transaction() as session:
            session.add_tenant("after")


def test_threads_share_one_store(store: Store) -> None:
    def save(number: int) -> None:
        with store.transaction() as session:
            session.save_facts(f"gpu{number}", facts, 1.0)

    facts = host_facts()
    threads = [threading.Thread(target=save, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    with store.reading() as session:
        assert len(session.all_facts()) == 12


def test_the_process_that_has_a_file_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.2)
    holds = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE')"
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        command = [
            sys.executable,
            "-c",
            f"{holds}; print('held', flush=True); sys.stdin.read()",
            f"{tmp_path}/store.db",
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            with pytest.raises(StoreUnusable, match="was locked for") as caught, store.transaction():
                pass
            process.communicate()
        (holder,) = caught.value.context
        assert holder.startswith(f"process {process.pid} has it locked: python")
        with store.transaction() as session:
            session.add_tenant("after")
