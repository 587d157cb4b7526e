# SPDX-License-Identifier: Apache-2.0
"""Each test of the command line begins as a new command line does."""

import pytest

from vgpuctl.cli.frame import command_line


@pytest.fixture(autouse=True)
def _new_command_line() -> None:
    """Forget the choices of an earlier test of this process."""
    command_line.begin()
