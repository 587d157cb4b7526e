# SPDX-License-Identifier: Apache-2.0
"""`--dry-run` of the commands that change the store alone: they run in full, and nothing of it is committed.

Commands that change hosts have a `--dry-run` of their own, which prints the steps.
"""

import click

REHEARSED = frozenset(
    {"create-licence-pool", "set-licence-pool", "delete-licence-pool"}
    | {"create-tenant", "create-pool", "grant-pool", "delete-pool"}
    | {"reserve", "cancel-reservation", "leave-queue", "set-queue"}
    | {"create-external-network", "delete-external-network", "delete-image", "set-node-pool"}
    | {"slurm-resume", "slurm-suspend", "slurm-fail"}
)
"""Commands that change nothing but the store."""
_KEY = "vgpuctl.rehearsal"


def is_rehearsal() -> bool:
    """True if the command of this thread runs with the --dry-run of this module."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_KEY))


def offer_rehearsal(command: click.Command) -> None:
    """Give a command of REHEARSED its --dry-run."""
    if command.name not in REHEARSED:
        return

    def note(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        context.meta[_KEY] = given and not context.resilient_parsing

    command.params.append(
        click.Option(
            ["--dry-run"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=note,
            help="Check everything and show what would be done; nothing is changed.",
        )
    )
