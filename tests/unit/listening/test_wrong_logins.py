# SPDX-License-Identifier: Apache-2.0
"""How long clients wait after wrong logins."""

from vgpuctl.listening import wrong_logins
from vgpuctl.listening.wrong_logins import (
    FORGOTTEN_S,
    FREE,
    FREE_OF_CLIENT,
    LONGEST_TURN_S,
    LONGEST_WAIT_S,
    TURNS_PER_S,
    WrongLogins,
)
from vgpuctl.web.connections import MOST_CONNECTIONS, REQUEST_S


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_wrong_login_doubles_the_wait_up_to_its_longest() -> None:
    clock = Clock()
    wrong = WrongLogins(clock)
    waits = []
    for _ in range(FREE + 8):
        wrong.add("192.0.2.1", "ops")
        waits.append(wrong.wait_s("192.0.2.1", "ops"))
        clock.now += waits[-1]
        assert wrong.wait_s("192.0.2.1", "ops") == 0
    assert waits == [0.0] * (FREE - 1) + [1, 2, 4, 8, 16, 32, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]


def test_others_do_not_wait() -> None:
    wrong = WrongLogins(Clock())
    for _ in range(FREE):
        wrong.add("192.0.2.1", "ops")
    assert wrong.wait_s("192.0.2.2", "ops") == wrong.wait_s("192.0.2.1", "prometheus") == 0


def test_guesses_at_many_users_count_together() -> None:
    wrong = WrongLogins(Clock())
    for number in range(FREE_OF_CLIENT):
        assert wrong.wait_s("192.0.2.1", f"user{number}") == 0
        wrong.add("192.0.2.1", f"user{number}")
    assert wrong.wait_s("192.0.2.1", "another") > 0


def test_turns_are_spaced_and_each_user_has_their_own() -> None:
    clock = Clock()
    wrong = WrongLogins(clock)
    turns = [wrong.turn_s("192.0.2.1", "ops") for _ in range(2 * MOST_CONNECTIONS)]
    given = [one for one in turns if one is not None]
    assert given == [number / TURNS_PER_S for number in range(len(given))]
    assert given[-1] == LONGEST_TURN_S and turns[-1] is None
    assert MOST_CONNECTIONS // 2 / TURNS_PER_S <= LONGEST_TURN_S < REQUEST_S
    assert wrong.turn_s("192.0.2.1", "prometheus") == wrong.turn_s("192.0.2.2", "ops") == 0
    clock.now += 1
    assert wrong.turn_s("192.0.2.1", "ops") == LONGEST_TURN_S + 1 / TURNS_PER_S - 1
    for number in range(2 * wrong_logins._MOST_KEPT):
        wrong.turn_s("192.0.2.1", str(number))
    assert len(wrong._turns) <= wrong_logins._MOST_KEPT


def test_quiet_clients_begin_anew_and_strangers_fill_no_memory() -> None:
    clock = Clock()
    wrong = WrongLogins(clock)
    for _ in range(FREE):
        wrong.add("192.0.2.1", "ops")
    clock.now += FORGOTTEN_S + 1
    wrong.add("192.0.2.1", "ops")
    assert wrong.wait_s("192.0.2.1", "ops") == 0
    for number in range(3 * wrong_logins._MOST_KEPT):
        wrong.add(f"192.0.2.{number}", "x")
    assert len(wrong._kept) <= wrong_logins._MOST_KEPT
