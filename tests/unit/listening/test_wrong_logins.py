# SPDX-License-Identifier: Apache-2.0
"""How long clients wait after wrong logins."""

from vgpuctl.listening import wrong_logins
from vgpuctl.listening.wrong_logins import FORGOTTEN_S, FREE, FREE_OF_CLIENT, LONGEST_WAIT_S, WrongLogins


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
