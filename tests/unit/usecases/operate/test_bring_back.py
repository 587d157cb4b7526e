# SPDX-License-Identifier: Apache-2.0
"""The back-off between the restarts of a VM."""

import pytest

from vgpuctl.guests.domain_facts import DomainState, has_failed
from vgpuctl.usecases.operate.bring_back import FIRST_DELAY_S, LONGEST_DELAY_S, Attempt

AT = 1_000_000.0


@pytest.mark.parametrize(
    ("count", "delay_s"), [(1, FIRST_DELAY_S), (2, 20.0), (4, 80.0), (9, LONGEST_DELAY_S), (10_000, LONGEST_DELAY_S)]
)
def test_the_delay_doubles_up_to_five_minutes(count: int, delay_s: float) -> None:
    attempt = Attempt(count, AT)
    assert not attempt.is_over(AT)
    assert not attempt.is_over(AT + delay_s - 0.1)
    assert attempt.is_over(AT + delay_s)


def test_a_clock_that_was_set_back_does_not_block_for_ever() -> None:
    assert Attempt(3, AT).is_over(AT - 86_400.0)


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (DomainState.SHUT_OFF, 1, False),
        (DomainState.SHUT_OFF, 2, False),
        (DomainState.SHUT_OFF, 3, True),
        (DomainState.SHUT_OFF, 0, True),
        (DomainState.CRASHED, 0, True),
        (DomainState.RUNNING, 0, False),
    ],
)
def test_a_vm_that_nobody_ended_has_failed(state: DomainState, reason: int, expected: bool) -> None:
    assert has_failed(state, reason) is expected
