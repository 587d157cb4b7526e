# SPDX-License-Identifier: Apache-2.0
"""Every changing command has --dry-run, but for those that are listed with their reason."""

import inspect

import click

from tests.e2e.operate.command_events import SCENARIO
from vgpuctl.cli.frame.rehearsal import GOES_ON, OWN_DRY_RUN, REHEARSED, WITHOUT_DRY_RUN, is_rehearsed
from vgpuctl.cli.main import command as command_line


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


def test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own() -> None:
    """Whatever places, reserves or checks a quota runs on services that rehearse."""
    context, own = click.Context(command_line), set()
    for name in command_line.list_commands(context):
        found = command_line.get_command(context, name)
        assert found is not None
        if not is_rehearsed(found) and any("--dry-run" in one.opts for one in found.params):
            made_by = getattr(found.callback, "prints", None) or found.callback
            module = None if made_by is None else inspect.getmodule(inspect.unwrap(made_by))
            assert module is not None
            if "rehearses=dry_run" not in inspect.getsource(module):
                own.add(name)
    assert own == set(OWN_DRY_RUN)
    assert GOES_ON <= REHEARSED
