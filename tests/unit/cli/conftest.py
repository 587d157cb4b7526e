# SPDX-License-Identifier: Apache-2.0
"""Each test of the command line begins as a new command line does."""

import pytest

from vgpuctl.cli.frame import command_line


@pytest.fixture(autouse=True)
def _new_command_line() -> None:
    """What an earlier test of this process chose, or told the command line to do, is forgotten."""
    command_line.begin()
