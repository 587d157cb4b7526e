# SPDX-License-Identifier: Apache-2.0
"""A command that runs until a signal tells it to stop ends with the first one, also where it comes too early."""

import ast
import threading

from tests.unit.uses_of_names import PACKAGE, nodes
from vgpuctl.cli.frame.ending import wait_until_told


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
