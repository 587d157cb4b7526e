# SPDX-License-Identifier: Apache-2.0
"""`-v`, `-vv`, `-q` and `--log-file`: understood before the command's name, where help shows them, and after it."""

from typing import Any

import click

from vgpuctl.cli.frame.command_line import running

_DEBUG = 2


def accept_log_options(command: click.Command, *, hidden: bool) -> None:
    """Give a command, and the commands under it, the options of the log."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            accept_log_options(one, hidden=hidden)
    # Such a command hands on what it does not know, `-v` too.
    if command.context_settings.get("ignore_unknown_options") or any(one.name == "verbosity" for one in command.params):
        return
    command.params += [
        click.Option(
            ["-v", "verbosity"],
            count=True,
            expose_value=False,
            hidden=hidden,
            callback=_log_on_stderr,
            help="Log progress on stderr; -vv adds each call to a host, libvirt and the store with its duration.",
        ),
        click.Option(
            ["--context", "context_name"],
            metavar="NAME",
            is_eager=True,
            expose_value=False,
            hidden=hidden,
            callback=_choose_context,
            help="Use this context of the configuration files (docs/configuration.md).  [env: VGPUCTL_CONTEXT]",
        ),
        click.Option(
            ["-q", "--quiet", "is_quiet"],
            is_flag=True,
            expose_value=False,
            hidden=hidden,
            callback=_be_quiet,
            help="Print data and errors only, no remarks.",
        ),
        click.Option(
            ["--log-file"],
            type=click.Path(dir_okay=False),
            metavar="FILE",
            expose_value=False,
            hidden=hidden,
            callback=_log_to_file,
            help="Append the log of -vv to this file, with tracebacks of unexpected errors.",
        ),
    ]


def _choose_context(_context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        running().context_name = name


def _log_on_stderr(_context: click.Context, _parameter: click.Parameter, count: int) -> None:
    if count:
        from functools import partial

        from vgpuctl import logs
        from vgpuctl.cli.shown.output import print_document

        logs.start(verbosity=min(count, _DEBUG), write=partial(print_document, err=True))


def _be_quiet(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given:
        running().is_quiet = True


def _log_to_file(_context: click.Context, _parameter: click.Parameter, file: Any) -> None:
    if file is not None:
        from functools import partial
        from pathlib import Path

        from vgpuctl import logs
        from vgpuctl.cli.shown.output import print_line

        logs.start(file=Path(file), warn=partial(print_line, err=True))
