# SPDX-License-Identifier: Apache-2.0
"""Examples of a command, shown at the end of its help page. tests/unit/cli/test_examples.py reads every line."""

from collections.abc import Sequence
from typing import NamedTuple


class Example(NamedTuple):
    """One command line as a user types it, without `vgpuctl`, and what it does."""

    line: str
    meaning: str

    @property
    def arguments(self) -> list[str]:
        """The words of the line, split as by a shell."""
        import shlex

        return shlex.split(self.line)


def examples_text(examples: Sequence[Example]) -> str | None:
    """The end of a help page; None without examples."""
    if not examples:
        return None
    shown = "\n".join(f"  # {one.meaning}\n  $ vgpuctl {one.line}" for one in examples)
    return f"\b\nExamples:\n{shown}"
