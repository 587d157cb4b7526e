# SPDX-License-Identifier: Apache-2.0
"""Conventions of every command, also of plugins: options of the log, `--help-all`, and VMs named `TENANT/NAME`.

A command is given these when it is loaded, so that none can be without them.
"""

import click

from vgpuctl.cli.forms.completion import complete_values
from vgpuctl.cli.frame.rehearsal import offer_rehearsal
from vgpuctl.cli.options.log_options import accept_log_options
from vgpuctl.cli.options.qualified_names import split_names
from vgpuctl.cli.shown.output import finish_rehearsal, print_document, say

CONNECTION = frozenset(
    {"inventories", "inventory_reader", "database", "known_hosts", "connect_timeout_s", "command_timeout_s", "forks"}
    | {"verbosity", "context_name", "log_file", "is_quiet", "history", "history_file", "prometheus"}
)
"""Parameters of the connection to hosts and store: one page documents them, and `--help-all` shows them."""


def apply_conventions(command: click.Command) -> None:
    """Give a command, and the commands under it, what every command has."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            apply_conventions(one)
    if any(one.name == "help_all" for one in command.params):
        return
    offer_rehearsal(command, say=say, finish=finish_rehearsal)
    accept_log_options(command, hidden=True)
    _hide_connection(command)
    split_names(command)
    complete_values(command)


def _hide_connection(command: click.Command) -> None:
    hidden = [one for one in command.params if isinstance(one, click.Option) and one.name in CONNECTION]
    for one in hidden:
        one.hidden = True

    def show(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given and not context.resilient_parsing:
            for one in hidden:
                one.hidden = False
            print_document(context.get_help())
            context.exit()

    command.params.append(
        click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=show,
            help="Show this message with the options of the connection, and exit.",
        )
    )
