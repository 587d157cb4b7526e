# SPDX-License-Identifier: Apache-2.0
"""Run a command whose end nobody knows beforehand, and read how it ended."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.operator import Operator
from tests.e2e.warm_start import warm_start


@dataclass(frozen=True)
class Answer:
    """How a command ended. code: its exit code, negative for the signal that ended it."""

    code: int
    out: str
    err: str

    @property
    def reference(self) -> str:
        """The error's reference, `usage` when the command named none."""
        lines = [line for line in self.err.splitlines() if line.startswith('{"error"')]
        return str(json.loads(lines[-1])["error"]["reference"]) if lines else "usage"

    @property
    def shows_traceback(self) -> bool:
        """True if the user saw a traceback.

        The tests turn warnings on: a connection that an interrupt left open to the end of the process is one.
        """
        return any(
            "Traceback" in part and "ResourceWarning" not in part for part in self.err.split("Exception ignored")
        )


def run(
    operator: Operator,
    *words: str,
    module: str = "vgpuctl",
    signals: Sequence[tuple[float, int]] = (),
    timeout_s: float = 400,
) -> Answer:
    """Run a command in a process of its own. signals: (seconds after its start, signal) that it gets."""
    return Answer(*warm_start().run(module, words, operator.environment, timeout_s, signals))
