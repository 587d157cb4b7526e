# SPDX-License-Identifier: Apache-2.0
"""The turn at the trials of the fleet that a controller of another machine left when it died."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpuctl.errors import ConcurrentChange
from vgpuctl.store.liveness import this_process
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.tuning_turn import DEAD_AFTER_S, TOLD_AFTER_S, TuningTurn
from vgpuctl.wiring import Settings, open_services

NOW = 1_800_000_000.0


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    settings = Settings((), f"sqlite:///{tmp_path}/store.db")
    with open_services(settings, lambda _text: None, clock=lambda: NOW) as opened:
        yield opened


class Waiting:
    """A controller that waits for its turn."""

    def __init__(self, services: Services) -> None:
        self.services, self.now = services, 0.0
        self.turn = TuningTurn(lambda: self.now)

    def says_at(self, now: float) -> str | None:
        """What it says so many seconds after it began to wait."""
        self.now = now
        try:
            with self.turn.taken(self.services):
                return "has its turn"
        except ConcurrentChange:
            return self.turn.blocked(self.services)


def leave_turn(services: Services, hostname: str = "admin-2", pid: int = 4711) -> int:
    """A turn that has not ended."""
    with services.store.transaction() as session:
        return session.begin_operation("tune", "tune:fleet", pid=pid, hostname=hostname)


def test_a_dead_machine_blocks_for_an_hour_and_that_is_said(services: Services) -> None:
    leave_turn(services)
    waiting = Waiting(services)
    assert waiting.says_at(0) is None and waiting.says_at(TOLD_AFTER_S - 1) is None
    said = waiting.says_at(TOLD_AFTER_S)
    assert said is not None and said.startswith(
        "nothing is tuned: process 4711 on admin-2 has its turn since 2027-01-15"
    )
    assert "`vgpuctl repair` on admin-2 ends the turn" in said
    assert waiting.says_at(DEAD_AFTER_S - 1) == said
    ended = waiting.says_at(DEAD_AFTER_S)
    assert ended is not None and ended.startswith("the turn of process 4711 on admin-2 is ended")
    assert waiting.says_at(DEAD_AFTER_S) == "has its turn"


def test_turns_of_controllers_that_take_them_one_after_the_other_are_no_dead_one(services: Services) -> None:
    waiting = Waiting(services)
    for step in range(3):
        turn = leave_turn(services)
        assert waiting.says_at(step * (DEAD_AFTER_S - 1)) is None
        with services.store.transaction() as session:
            session.end_operation(turn)


def test_a_turn_of_a_living_process_of_this_machine_is_waited_for(services: Services) -> None:
    own = this_process()
    leave_turn(services, own.hostname, own.pid)
    waiting = Waiting(services)
    assert [waiting.says_at(at) for at in (0, DEAD_AFTER_S, 9 * DEAD_AFTER_S)] == [None] * 3


def test_a_controller_that_counts_beats_keeps_its_turn(services: Services) -> None:
    leave_turn(services)
    with services.store.transaction() as session:
        session.beat_controller("c", ["gpu1"])
        (own,) = session.controllers()
        moved = "UPDATE controllers SET pid = 4711, hostname = 'admin-2', machine = '', process_start = ''"
        session._write(moved)
    waiting = Waiting(services)
    assert [waiting.says_at(at) for at in (0, DEAD_AFTER_S, 9 * DEAD_AFTER_S)] == [None] * 3
    with services.store.transaction() as session:
        session.end_controller(own.id)
    assert waiting.says_at(9 * DEAD_AFTER_S) is None, "from now on it counts none"
    assert "is ended" in (waiting.says_at(10 * DEAD_AFTER_S) or "")
