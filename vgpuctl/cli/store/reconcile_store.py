# SPDX-License-Identifier: Apache-2.0
"""reconcile-store: compare a restored store with the hosts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonFailure, JsonOutput, failures_json
from vgpuctl.cli.shown.output import print_table, say
from vgpuctl.model.times import format_time

if TYPE_CHECKING:
    from vgpuctl.model.backup import RestoreMark
    from vgpuctl.usecases.store.reconcile_store import Discrepancy


class JsonReconciliation(TypedDict):
    """A restored store against the hosts. mark: of the restore; null for a store that is reconciled."""

    mark: "RestoreMark | None"
    discrepancies: "Sequence[Discrepancy]"
    forgotten: Sequence[str]
    is_done: bool
    failures: Sequence[JsonFailure]


_JSON: "JsonOutput[JsonReconciliation]" = JsonOutput()


@click.command("reconcile-store")
@click.option(
    "--forget",
    multiple=True,
    metavar="TENANT/VM",
    help="Drop a VM from the store that the hosts no longer have as it says; several times.",
)
@click.option(
    "--accept",
    multiple=True,
    metavar="NAME",
    help="Accept this difference, or leave this dead host out, with --done; several times.",
)
@click.option("--begin", is_flag=True, help="Mark a store that is older than the hosts without a restore.")
@click.option("--done", is_flag=True, help="Say that the store is reconciled; refused while a difference is open.")
@options.inventory
@options.forks
@options.database
@options.ssh
@options.as_json
def command(
    forget: tuple[str, ...], accept: tuple[str, ...], begin: bool, done: bool, as_json: bool, **where: Any
) -> int:
    """Compare a restored store with the hosts. The store is then older than the hosts. Every host of the inventory is
    compared.

    Hosts are only read, and nothing is deleted on them. VMs that the store does not know are adopted by `adopt-host`;
    VMs that the hosts no longer have are dropped by --forget. --begin is for a standby that became the primary and may
    lack the last commits. Exit code 1 means that differences are open.
    """
    from vgpuctl.cli.forms.services import report_hosts, services
    from vgpuctl.usecases.store.reconcile_store import begin as begin_reconciling
    from vgpuctl.usecases.store.reconcile_store import reconcile_store

    with services(**where) as opened:
        if begin:
            begin_reconciling(opened)
        found = reconcile_store(opened, forget=forget, accept=accept, done=done)
    if as_json:
        _JSON.print(
            {
                "mark": found.mark,
                "discrepancies": found.discrepancies,
                "forgotten": found.forgotten,
                "is_done": found.is_done,
                "failures": failures_json(found.failures),
            }
        )
    else:
        if found.mark is not None:
            say(f"the store is as of {format_time(found.mark.taken_at)} UTC, from {found.mark.file}")
        print_table(
            ["DIFFERENCE", "NAME", "FOUND", "TO DO"],
            [(one.kind, one.name, one.found, one.todo) for one in found.discrepancies],
            empty="store and hosts agree",
        )
        if found.is_done:
            say("the store is reconciled; run `vgpuctl repair` next")
        elif found.mark is not None and not found.open and not found.failures:
            say("nothing is open: give --done to let the store be changed again")
    report_hosts(found.failures, fine=found.answered, what="did not answer", noun="place")
    return int(bool(found.open))
