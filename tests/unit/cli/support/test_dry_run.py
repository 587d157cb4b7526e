# SPDX-License-Identifier: Apache-2.0
"""Every changing command has --dry-run, but for those that are listed with their reason."""

import click

from tests.e2e.operate.command_events import SCENARIO
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.support.rehearsal import REHEARSED, WITHOUT_DRY_RUN


def test_every_changing_command_has_dry_run() -> None:
    context = click.Context(command_line)
    without = set()
    for name in {step.command for step in SCENARIO}:
        found = command_line.get_command(context, name)
        assert found is not None
        if not any("--dry-run" in one.opts for one in found.params):
            without.add(name)
    assert without == set(WITHOUT_DRY_RUN)
    assert not WITHOUT_DRY_RUN.keys() & REHEARSED and set(command_line.list_commands(context)) >= REHEARSED
