# SPDX-License-Identifier: Apache-2.0
"""`--dry-run` of the commands that have no plan to print: they run in full, and nothing of it is kept.

The store commits nothing, and a change of a host is told instead of made (vgpuctl.model.rehearsal). Commands that plan
before they change have a `--dry-run` of their own, which prints the plan.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.frame.command_line import running

if TYPE_CHECKING:
    from vgpuctl.model.rehearsal import RehearsedStep

REHEARSED = frozenset(
    {"set-queue", "delete-node-pool", "slurm-resume", "slurm-suspend", "slurm-fail"}
    | {"start-vm", "stop-vm", "suspend-vm", "resume-vm", "restart-vm", "rename-vm"}
    | {"attach-nic", "detach-nic", "attach-disk", "detach-disk", "resize-disk", "eject-iso"}
    | {"create-snapshot", "revert-snapshot", "delete-snapshot", "reconcile-store"}
    | {"label-vm", "rotate-vpn-keys"}
)
"""Commands whose dry run is a run that changes nothing, beside those that are made by StoredKind.changes."""

GOES_ON = frozenset({"start-vm", "resume-vm"})
"""Those of them that leave changes of hosts out and go on: the next VM finds what this one would take."""


def is_rehearsed(command: click.Command) -> bool:
    """True for a command whose dry run is a run that changes nothing."""
    return command.name in REHEARSED or _is_change(command)


def _is_change(command: click.Command) -> bool:
    return getattr(command.callback, "is_change", False)


OWN_DRY_RUN = {
    "apply-hosts": "its check shares the reading, the plan, the choice and the refusals of the run",
    "allow-config": "compares one file of this machine",
    "drain-host": "rehearses within its use case, which also asks before the run",
    "evacuate-host": "rehearses within its use case, which also asks before the run",
    "export monitoring": "compares files of this machine",
    "fit-performance": "compares one file of this machine",
    "gc": "lists what it finds; each thing is deleted by itself",
    "grant-store": "shows SQL of the database's own roles, which no copy of the store has",
    "prune-events": "counts rows of events, which the copy of a store on PostgreSQL leaves out",
    "repair": "lists what it finds; each thing is repaired by itself",
    "restore-store": "replaces the store that a rehearsal copies",
}
"""Commands with code of their own for the dry run, and why. All others give `rehearses=dry_run` to their services."""
WITHOUT_DRY_RUN = {
    "backup-store": "writes one file, which the user names",
    "check-hosts": "reads hosts; with --snapshot it keeps what it read",
    "check-vm": "reads the host and asks the guest; the proof that it keeps is its purpose",
    "controller": "runs for ever; --once is one round",
    "defrag": "prints its plan; --apply alone carries it out",
    "create-certificate": "writes files into a folder of this machine; what is there stays",
    "screenshot": "writes one file, and none that exists",
    "view": "opens a display for as long as it is watched",
}
"""Changing commands for which a dry run makes no sense, and why."""
_ON_BEHALF = frozenset({"console", "serve autoscaler"})
"""Commands that leave no event of their own, and let a guest or a cluster change what they reach."""


def changes_something(context: click.Context) -> bool:
    """True if the command with these parameters changes the store, a host or a guest."""
    name = context.info_name
    if name == "check-hosts":
        return bool(context.params.get("snapshot"))
    if "applies" in context.params:
        return bool(context.params["applies"])
    has_dry_run = any("--dry-run" in one.opts for one in context.command.params)
    return has_dry_run or name in WITHOUT_DRY_RUN or name in _ON_BEHALF


class JsonRehearsal(TypedDict):
    """A dry run that ended at a change of a host. steps: the changes that it did not make."""

    changed: bool
    dry_run: bool
    steps: "Sequence[RehearsedStep]"


def offer_rehearsal(command: click.Command, *, say: Callable[[str], None], finish: Callable[[], None]) -> None:
    """Give a command its --dry-run, if that is a run.

    say: for lines to people. finish: prints the data of a command that ended at a change of a host.
    """
    if not is_rehearsed(command) or command.callback is None:
        return
    goes_on = command.name in GOES_ON or _is_change(command)

    def note(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given and not context.resilient_parsing:
            from vgpuctl.model.rehearsal import Rehearsal

            running().rehearsal = Rehearsal(say, goes_on=goes_on)

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
    run = command.callback

    @functools.wraps(run)
    def rehearsed(**given: Any) -> Any:
        from vgpuctl.model.rehearsal import RehearsalEnds

        try:
            return run(**given)
        except RehearsalEnds:
            finish()
            return 0

    command.callback = rehearsed
