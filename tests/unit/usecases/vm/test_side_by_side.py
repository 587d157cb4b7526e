# SPDX-License-Identifier: Apache-2.0
"""VMs of one command are placed one at a time and in order, and built side by side, on each host one at a time."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stored_fleet import open_stored
from vgpuctl.errors import GuestError
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.side_by_side import Turn, in_turns

WAIT_S = 20


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with open_stored(tmp_path, ("gpu1", "gpu2", "gpu3")) as opened:
        yield opened


def test_placing_is_one_at_a_time_in_order_and_building_together(services: Services) -> None:
    placed: list[int] = []
    at_once = threading.Barrier(3, timeout=WAIT_S)

    def work(item: int, turn: Turn) -> int:
        with turn:
            placed.append(item)
            assert placed == list(range(item + 1))
            turn.end()
            with turn.on(f"gpu{item}"):
                at_once.wait()
            with turn:
                return item * 10

    done: list[int] = []
    in_turns(services, range(3), work, done)
    assert done == [0, 10, 20]


def test_on_one_host_one_is_built_after_the_other(services: Services) -> None:
    busy = threading.Lock()

    def work(item: int, turn: Turn) -> int:
        with turn:
            turn.end()
            with turn.on("gpu1"):
                assert busy.acquire(blocking=False)
                busy.release()
        return item

    done: list[int] = []
    in_turns(services, range(20), work, done)
    assert done == list(range(20))


def test_after_a_failure_none_is_begun_and_those_under_way_end(services: Services) -> None:
    has_failed, began = threading.Event(), []

    def work(item: int, turn: Turn) -> int:
        with turn:
            began.append(item)
            turn.end()
            if item == 1:
                has_failed.set()
                raise GuestError("one fails")
            assert has_failed.wait(WAIT_S)
            return item

    done: list[int] = []
    with pytest.raises(GuestError, match="one fails"):
        in_turns(services, range(40), work, done)
    assert began[:2] == [0, 1] and len(began) < 40
    assert done == [one for one in began if one != 1]


def test_one_that_fails_while_it_is_placed_lets_go_of_its_turn(services: Services) -> None:
    def work(item: int, turn: Turn) -> int:
        with turn:
            if item == 1:
                raise GuestError("not placed")
        return item

    done: list[int] = []
    with pytest.raises(GuestError, match="not placed"):
        in_turns(services, range(3), work, done)
    assert done[0] == 0


def test_an_interrupt_begins_no_further_one_and_waits_for_those_under_way(services: Services) -> None:
    """Of ten on two hosts that were placed, those whose host is busy are not built."""
    is_waited_for, built, ended = threading.Event(), [], []
    services.say = lambda _text: is_waited_for.set()

    def work(item: int, turn: Turn) -> int:
        try:
            with turn:
                turn.end()
                with turn.on(f"gpu{item % 2}"):
                    built.append(item)
                    if item == 9:
                        raise AssertionError("it was the last one on a busy host")
                    if len(built) == 2:
                        os.kill(os.getpid(), signal.SIGINT)
                    assert is_waited_for.wait(WAIT_S)
            return item
        finally:
            ended.append(item)

    before = signal.getsignal(signal.SIGINT)
    done: list[int] = []
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interruptions.install()
        with pytest.raises(KeyboardInterrupt):
            in_turns(services, range(10), work, done)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(built) == [0, 1] == done and len(ended) >= 2


@pytest.mark.parametrize("forks", [1, 2])
def test_no_more_than_forks_are_at_work(services: Services, forks: int) -> None:
    services.forks = forks
    at_work = threading.Semaphore(forks)

    def work(item: int, turn: Turn) -> str:
        assert at_work.acquire(blocking=False)
        with turn:
            turn.end()
        at_work.release()
        return threading.current_thread().name

    done: list[str] = []
    in_turns(services, range(8), work, done)
    assert len(done) == 8 and (forks > 1) == (threading.main_thread().name not in done)
