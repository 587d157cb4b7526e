# SPDX-License-Identifier: Apache-2.0
"""A command that runs until a signal tells it to stop ends with the first one, also where it comes too early."""

import ast
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.unit.uses_of_names import PACKAGE, nodes
from vgpuctl.cli.frame.ending import stop_on_signals, wait_until_told


class _Early(threading.Event):
    """An event whose first wait does not see that it was set: the signal came just before."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.limits.append(timeout)
        return len(self.limits) > 1


def test_a_signal_that_came_just_before_the_wait_ends_it() -> None:
    stop = _Early()
    wait_until_told(stop)
    assert len(stop.limits) == 2
    assert None not in stop.limits, "a wait without an end runs no handler of a signal"


def test_no_command_waits_for_a_signal_without_an_end() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in (PACKAGE / "cli").rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "stop.wait" and not (node.args or node.keywords)
    ]
    assert found == []


@pytest.fixture
def _own_handlers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The handlers of the tests come back afterwards, and so does whoever traces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    tracer = sys.gettrace()
    yield
    sys.settrace(tracer)
    for number, handler in before.items():
        signal.signal(number, handler)


def _signalled_at(step: int, stop: threading.Event) -> bool:
    """Wait for the event, with SIGTERM at this step of `threading`. Returns False if the wait has fewer steps."""
    steps = 0

    def trace(frame: FrameType, _event: str, _argument: object) -> "Callable[..., Any] | None":
        nonlocal steps
        if frame.f_code.co_filename != threading.__file__:
            return None
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return trace

    sys.settrace(trace)
    try:
        stop.wait(0.05)
    finally:
        sys.settrace(None)
    return steps >= step


@pytest.mark.usefixtures("_own_handlers")
def test_a_signal_at_any_step_of_a_wait_ends_it() -> None:
    step = 0
    while _signalled_at(step := step + 1, stop := stop_on_signals()):
        assert stop.wait(30), f"the signal at step {step} set nothing"
    assert step > 10, "the wait was not traced"
