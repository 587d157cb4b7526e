# SPDX-License-Identifier: Apache-2.0
"""Every changing command has --dry-run, but for those that are listed here."""

import click

from tests.e2e.operate.command_events import SCENARIO
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.support.rehearsal import REHEARSED

_WITHOUT = """
    attach-disk attach-nic backup-store check-hosts check-vm console controller create-certificate
    create-snapshot delete-node-pool delete-snapshot detach-disk detach-nic eject-iso force-off
    reconcile-store rename-vm reset-vm resize-disk restart-vm revert-snapshot screenshot start-vm stop-vm view
    """
WITHOUT = frozenset(_WITHOUT.split())
"""Commands that change hosts and have no --dry-run yet, that write a file, or whose change is that they were run."""


def test_every_changing_command_has_dry_run() -> None:
    context = click.Context(command_line)
    without = set()
    for name in {step.command for step in SCENARIO}:
        found = command_line.get_command(context, name)
        assert found is not None
        if not any("--dry-run" in one.opts for one in found.params):
            without.add(name)
    assert without == WITHOUT & {step.command for step in SCENARIO}
    assert not WITHOUT & REHEARSED and set(command_line.list_commands(context)) >= REHEARSED
