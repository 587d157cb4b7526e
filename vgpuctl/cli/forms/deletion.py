# SPDX-License-Identifier: Apache-2.0
"""The commands that delete what the user names: one way to name, ask, delete, dry-run and answer for all of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_hosts, services
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.frame.rehearsal import REHEARSED
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.found.deletion import Deletion

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class JsonDeletions(TypedDict):
    """deleted: names; empty with dry_run."""

    deleted: Sequence[str]
    dry_run: bool


DELETIONS: JsonOutput[JsonDeletions] = JsonOutput()
if_exists = click.option("--if-exists", is_flag=True, help="Ignore names that do not exist.")


def deletion_command(
    name: str,
    text: str,
    rules: "Callable[[], Deletion[Any]]",
    *,
    word: str,
    listed_by: str,
    whose: str = "",
    verb: str = "Delete",
    outcome: str = "deleted",
    tenant: Decorator | None = None,
    where: Decorator = options.database,
    own: Sequence[Decorator] = (),
) -> click.Command:
    """Make the command that deletes things of one kind.

    text: its help. rules: loads the kind's. word: one of them. listed_by: the command that lists them. whose: the end
    of the question, {tenant} for the tenant. verb, outcome: what the command does, in the question and in its answer.
    tenant: the option for what belongs to a tenant. where: the options of the services. own: more options, which the
    rule `delete` takes.
    """

    def run(
        names: tuple[str, ...],
        yes: bool,
        if_exists: bool,
        as_json: bool,
        dry_run: bool = False,
        tenant: str = "",
        **given: Any,
    ) -> None:
        from vgpuctl.cli.forms.services import take_service_options
        from vgpuctl.usecases.found.deletion import delete_all, find_all

        found_by = rules()
        opening = take_service_options(given)
        with services(rehearses=dry_run, **opening) as opened:
            found = find_all(opened, found_by, tenant, names, word=word, listed_by=listed_by, if_exists=if_exists)
            for one in found:
                say(found_by.describe(one))
            is_trial = dry_run or running().rehearsal is not None
            if found and not (yes or is_trial):
                confirm(f"{verb} {counted(len(found), word)}{whose.format(tenant=tenant)}?")
            errors = delete_all(opened, found_by, found, **given)
        gone = [one for one, error in zip(found, errors, strict=True) if error is None]
        for one in () if found_by.tells else gone:
            left = found_by.left(one)
            say(f"{word} {found_by.printed(one)}: {'would be ' * is_trial}{outcome}{left and f'; {left}'}")
        if as_json:
            DELETIONS.print(
                {"deleted": [] if is_trial else [found_by.printed(one) for one in gone], "dry_run": is_trial}
            )
        failures = [
            (found_by.printed(one), error) for one, error in zip(found, errors, strict=True) if error is not None
        ]
        report_hosts(failures, fine=len(gone), what=f"were not {outcome}", noun=word)

    every: list[Decorator] = [
        click.argument("names", nargs=-1, required=True, metavar="NAME..."),
        *([] if tenant is None else [tenant]),
        options.yes,
        if_exists,
        *own,
        *([] if name in REHEARSED else [options.dry_run]),
        where,
        options.as_json,
    ]
    command: Command = run
    for add in reversed(every):
        command = add(command)
    return click.command(name, help=text)(command)
