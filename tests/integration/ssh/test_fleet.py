# SPDX-License-Identifier: Apache-2.0
"""The same work on many hosts."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.sshd_fixture import LoopbackSshd
from vgpuctl.errors import HostUnreachable, Unexpected
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.fleet import FleetProgress, run_on_hosts


def test_results_keep_the_order_and_a_failure_is_a_value() -> None:
    def work(name: str) -> str:
        if name == "b":
            raise HostUnreachable("b: down")
        if name == "c":
            return {"other": "x"}[name]
        return name.upper()

    results = run_on_hosts(["a", "b", "c", "d"], work, forks=2)
    assert [result.name for result in results] == ["a", "b", "c", "d"]
    assert [result.value for result in results] == ["A", None, None, "D"]
    assert isinstance(results[1].error, HostUnreachable)
    assert isinstance(results[2].error, Unexpected)
    assert "c: unexpected KeyError" in results[2].error.message
    assert results[0].get() == "A"
    with pytest.raises(HostUnreachable):
        results[1].get()


def test_no_host_is_no_result() -> None:
    assert run_on_hosts([], str, forks=4) == []


@pytest.mark.parametrize(("hosts", "forks", "at_once"), [(20, 3, 3), (4, None, 4), (60, None, 25)])
def test_no_more_than_forks_run_at_once(hosts: int, forks: int | None, at_once: int) -> None:
    lock = threading.Lock()
    together = threading.Event()
    running = most = 0

    def work(_: str) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running >= at_once:
                together.set()
        together.wait(30)
        time.sleep(0.01)
        with lock:
            running -= 1

    run_on_hosts([str(number) for number in range(hosts)], work, forks=forks)
    assert most == at_once


def test_many_connections_at_once_give_their_own_answers(sshd: LoopbackSshd) -> None:
    def work(name: str) -> str:
        with Connection(sshd.target(name=name), settings=sshd.settings()) as connection:
            return connection.run(["echo", name], timeout_s=30).stdout.decode().strip()

    names = [f"gpu{number}" for number in range(12)]
    assert [result.get() for result in run_on_hosts(names, work, forks=6)] == names


def test_the_progress_names_the_hosts_that_are_awaited_longest_first() -> None:
    seen: list[FleetProgress] = []
    begun: list[str] = []
    is_enough = threading.Event()

    def work(name: str) -> None:
        begun.append(name)
        if name == "c":
            raise HostUnreachable("c: down")
        if name in "ab":
            is_enough.wait(30)

    def watch(progress: FleetProgress) -> None:
        seen.append(progress)
        if progress.done == 2:
            is_enough.set()

    run_on_hosts(list("abcd"), work, forks=3, watch=watch)
    two = next(one for one in seen if one.done == 2)
    assert (two.total, two.failed, two.is_over) == (4, 1, False)
    assert two.at_work == tuple(one for one in begun if one in "ab")
    assert [one.is_over for one in seen] == [False] * (len(seen) - 1) + [True]
    assert (seen[-1].done, seen[-1].failed, seen[-1].at_work) == (4, 1, ())


def test_an_interrupt_stops_at_once_and_begins_nothing_more() -> None:
    program = """
import os, sys, time
from vgpuctl.hosts.fleet import run_on_hosts
def work(name):
    os.write(1, name.encode() + b"\\n")
    time.sleep(1000)
try:
    run_on_hosts([str(n) for n in range(9)], work, forks=2)
except KeyboardInterrupt:
    sys.exit(9)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stream:
        assert {stream.readline(), stream.readline()} == {b"0\n", b"1\n"}
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=200) == 9
        assert stream.read() == b""
