# SPDX-License-Identifier: Apache-2.0
"""The choices that the options of the running command line make for the whole process.

Every command line begins with this module, `vgpuctl --help` too, so it imports next to nothing.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl.model.configuration import Configuration
    from vgpuctl.model.rehearsal import Rehearsal


class OutputFormat(StrEnum):
    """The forms of data. TEXT is what a command prints for people, TABLE the same of a list."""

    TEXT = "text"
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"

    def is_for_programs(self) -> bool:
        """True for JSON and YAML, which have all of a command's fields."""
        return self in (OutputFormat.JSON, OutputFormat.YAML)


class CommandLine:
    """The choices of one command line.

    form: of the data. context_name: of --context. configuration: what the files say, None before one was read.
    rehearsal: the dry run of a command without a --dry-run of its own.
    """

    def __init__(self) -> None:
        self.form = OutputFormat.TEXT
        self.is_quiet = False
        self.runs_until_told = False
        self.is_summing_up = False
        self.may_have_changed = False
        self.context_name: str | None = None
        self.configuration: Configuration | None = None
        self.rehearsal: Rehearsal | None = None


_running = CommandLine()


def running() -> CommandLine:
    """The choices of the running command line."""
    return _running


def begin() -> None:
    """Forget what an earlier command line chose in this process."""
    global _running
    _running = CommandLine()
