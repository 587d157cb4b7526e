# SPDX-License-Identifier: Apache-2.0
"""Controllers divide the hosts: each host has one, the dead are buried, and no clock that jumps changes that."""

import subprocess
import sys

import pytest

from tests.integration.store.conftest import Clock
from vgpuctl.store.store import Store
from vgpuctl.usecases.operate.division import DEAD_AFTER_S, Division

HOSTS = [f"gpu{number:02}" for number in range(20)]


class Steady:
    """A monotonic clock that the test moves."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


def beat(store: Store, one: Division, hosts: list[str] = HOSTS) -> frozenset[str]:
    with store.transaction() as session:
        return one.beat(session, hosts)


def settle(store: Store, *divisions: Division) -> list[frozenset[str]]:
    """Let each beat twice: in the first round some give up what others claim in the second."""
    for _ in range(2):
        parts = [beat(store, one) for one in divisions]
    return parts


def test_every_host_has_one_controller_and_each_has_a_part(store: Store) -> None:
    first, second, third = (Division(Steady()) for _ in range(3))
    assert beat(store, first) == set(HOSTS), "one alone has them all"
    assert beat(store, second) == frozenset(), "hosts of others are not taken while they live"
    parts = settle(store, first, second, third)
    assert sorted(host for part in parts for host in part) == HOSTS
    assert all(parts)
    assert settle(store, first, second, third) == parts, "the division is steady"
    with store.transaction() as session:
        second.end(session)
    left = settle(store, first, third)
    assert sorted(host for part in left for host in part) == HOSTS
    assert parts[0] <= left[0] and parts[2] <= left[1], "nobody loses a host by another's end"


def test_controllers_of_other_hosts_take_no_part(store: Store) -> None:
    rack1, rack2 = Division(Steady()), Division(Steady())
    assert beat(store, rack1, HOSTS[:10]) == set(HOSTS[:10])
    assert beat(store, rack2, HOSTS[10:]) == set(HOSTS[10:])
    assert beat(store, rack1, HOSTS[:10]) == set(HOSTS[:10])


@pytest.mark.parametrize("jump_s", [-86_400.0, 0.0, 86_400.0])
def test_a_silent_controller_is_dead_after_its_time_whatever_the_store_s_clock_does(
    store: Store, clock: Clock, jump_s: float
) -> None:
    steady = Steady()
    silent, living = Division(Steady()), Division(steady)
    settle(store, silent, living)
    with store.transaction() as session:  # Another machine: nobody here knows whether the process lives.
        session._update("controllers", {"id": silent.id}, machine="other")
    part = beat(store, living)
    clock.now += jump_s
    steady.now += DEAD_AFTER_S - 1
    assert beat(store, living) == part
    steady.now += 2
    assert beat(store, living) == set(HOSTS)
    assert beat(store, silent) == frozenset(), "it wakes up and has lost its claims"
    parts = settle(store, silent, living)
    assert sorted(host for one in parts for host in one) == HOSTS


def test_a_killed_process_is_dead_at_once(store: Store, url: str) -> None:
    program = (
        "import os, sys, time\n"
        "from vgpuctl.store.store import open_store\n"
        "from vgpuctl.usecases.operate.division import Division\n"
        f"with open_store(sys.argv[1]) as store, store.transaction() as session:\n"
        f"    Division(time.monotonic).beat(session, {HOSTS})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, timeout=60, check=False)
    assert done.returncode == -9, done.stderr
    with store.reading() as session:
        assert [one.hosts for one in session.controllers()] == [frozenset(HOSTS)]
    assert beat(store, Division(Steady())) == set(HOSTS)
