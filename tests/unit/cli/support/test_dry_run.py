# SPDX-License-Identifier: Apache-2.0
"""Every changing command has --dry-run, but for those that are listed here with their reason."""

import click

from tests.e2e.operate.command_events import SCENARIO
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.support.rehearsal import REHEARSED

WITHOUT = {
    "backup-store": "writes one file, which the user names",
    "check-hosts": "reads hosts; with --snapshot it keeps what it read",
    "check-vm": "reads the host and asks the guest; the proof that it keeps is its purpose",
    "controller": "runs for ever; --once is one round",
    "create-certificate": "writes files into a folder of this machine; what is there stays",
    "screenshot": "writes one file, and none that exists",
    "view": "opens a display for as long as it is watched",
}
"""Changing commands for which a dry run makes no sense, and why."""


def test_every_changing_command_has_dry_run() -> None:
    context = click.Context(command_line)
    without = set()
    for name in {step.command for step in SCENARIO}:
        found = command_line.get_command(context, name)
        assert found is not None
        if not any("--dry-run" in one.opts for one in found.params):
            without.add(name)
    assert without == set(WITHOUT)
    assert not WITHOUT.keys() & REHEARSED and set(command_line.list_commands(context)) >= REHEARSED
