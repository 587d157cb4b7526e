# SPDX-License-Identifier: Apache-2.0
"""The undo stack."""

import pytest

from vgpuctl.errors import GuestError, UsageError
from vgpuctl.usecases.undo import Undo


def test_a_failure_runs_the_inverses_in_reverse_and_goes_on_after_one_that_fails() -> None:
    done: list[str] = []

    def refuse() -> None:
        raise GuestError("no")

    undoing = Undo(lambda _text: None)
    with pytest.raises(UsageError), undoing:
        undoing.push("first", lambda: done.append("first"))
        undoing.push("second", refuse)
        undoing.push("third", lambda: done.append("third"))
        raise UsageError("wrong")
    assert done == ["third", "first"]
    assert [(what, failure.message) for what, failure in undoing.failures] == [("second", "no")]


def test_what_is_kept_is_not_taken_back() -> None:
    done: list[str] = []
    with Undo(done.append) as undoing:
        undoing.push("deed", lambda: done.append("undone"))
        undoing.keep()
    assert not done
