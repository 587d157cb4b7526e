# SPDX-License-Identifier: Apache-2.0
"""Commands that end what the user names: ask first, do it, say what was done."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm
    from vgpuctl.usecases.disk.snapshots import SnapshotChange
    from vgpuctl.usecases.support.services import Services

Command = Callable[..., Any]
Deleted = TypeVar("Deleted")


class JsonDeletion(TypedDict, Generic[Deleted]):
    """deleted: the object as it was."""

    deleted: Deleted


class JsonDeletions(TypedDict):
    """deleted: names; empty with dry_run."""

    deleted: Sequence[str]
    dry_run: bool


DELETIONS: JsonOutput[JsonDeletions] = JsonOutput()
SNAPSHOT: "JsonOutput[SnapshotChange]" = JsonOutput()


def deletion_options(function: Command) -> Command:
    """NAME of an object of the store, and the options of its deletion."""
    return click.argument("name")(options.yes(options.database(options.as_json(function))))


def delete_one(
    delete: Callable[["Services"], Deleted],
    *,
    question: str,
    told: Callable[[Deleted], str],
    output: JsonOutput[JsonDeletion[Deleted]],
    yes: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Delete an object of the store after the question. told: the line for people."""
    from vgpuctl.cli.support.services import services

    if not yes:
        confirm(question)
    with services(database=database) as opened:
        deleted = delete(opened)
    if as_json:
        output.print({"deleted": deleted})
    else:
        say(told(deleted))


def delete_each(
    found: Sequence[Deleted],
    delete: Callable[[Deleted], object],
    *,
    what: str,
    whose: str = "",
    name: Callable[[Deleted], str],
    describe: Callable[[Deleted], str],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show what was found, ask, and delete one after the other. whose: the end of the question, for people.

    dry_run: the services of `delete` rehearse, and nobody is asked."""
    for one in found:
        say(describe(one))
    if found and not (yes or dry_run):
        confirm(f"Delete {counted(len(found), what)}{whose}?")
    for one in found:
        delete(one)
        say(f"{what} {name(one)}: {'would be deleted' if dry_run else 'deleted'}")
    if as_json:
        DELETIONS.print({"deleted": [] if dry_run else [name(one) for one in found], "dry_run": dry_run})


def snapshot_options(function: Command) -> Command:
    """NAME of a VM, SNAPSHOT, and the options of a command that ends it."""
    found = options.tenant(options.yes(options.one_host(options.as_json(function))))
    return click.argument("name")(click.argument("snapshot")(found))


def end_snapshot(
    end: Callable[["Services", "Vm", str], "SnapshotChange"],
    name: str,
    snapshot: str,
    *,
    question: str,
    outcome: str,
    tenant: str,
    yes: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """End a VM's snapshot after the question. outcome: what became of it, for people."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.support.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        if not yes:
            confirm(question)
        done = end(opened, vm, snapshot)
    if as_json:
        SNAPSHOT.print(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} {outcome}")
