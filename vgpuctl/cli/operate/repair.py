# SPDX-License-Identifier: Apache-2.0
"""repair: list interrupted work, finish it or roll it back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_table
from vgpuctl.errors import PartialFailure

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.repair import Repair


_JSON: "JsonOutput[Sequence[Repair]]" = JsonOutput()


@click.command("repair")
@options.shutdown_timeout("Seconds for a VM to shut down before it is forced off, where a preemption is finished.")
@click.option(
    "--gone",
    "gone",
    multiple=True,
    metavar="MACHINE",
    help="End the runs of this machine first, which is gone for good; its host name. Several times.",
)
@options.dry_run
@options.one_host
@options.as_json
def command(shutdown_timeout_s: float, gone: tuple[str, ...], dry_run: bool, as_json: bool, **where: Any) -> None:
    """Finish or roll back interrupted runs. A kill, a lost connection or a reboot may have interrupted them.

    Only VMs of the store are touched; a run that is still alive is left alone. So is one on another machine, which
    nobody can ask: `vgpuctl repair` there ends it, or --gone where that machine never comes back. That is refused
    while a controller of the machine counts beats.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.operate.gone_machine import end_gone
    from vgpuctl.usecases.operate.repair import Repair, repair

    repairs: list[Repair] = []
    with services(**where) as opened:
        for machine in dict.fromkeys(gone):
            outcome = "would be ended" if dry_run else "ended"
            ended = end_gone(opened, machine, dry_run=dry_run)
            repairs += [Repair(subject, "-", found, outcome) for subject, found in ended]
        repairs += repair(opened, dry_run=dry_run, shutdown_timeout_s=shutdown_timeout_s)
    if as_json:
        _JSON.print(repairs)
    else:
        print_table(
            ["VM", "HOST", "FOUND", "OUTCOME"],
            [(repair.subject, repair.host, repair.found, repair.outcome) for repair in repairs],
            empty="nothing to repair: the store's VMs, shares, disks and networks are so on their hosts; "
            "leftovers that the store does not know were not looked for: `vgpuctl gc --dry-run`",
        )
    failed = [repair for repair in repairs if repair.outcome.startswith("failed")]
    if failed:
        raise PartialFailure(
            f"{len(failed)} of {len(repairs)} could not be repaired",
            context=[f"{repair.subject}: {repair.outcome}" for repair in failed],
            hint="repair the host, then run `vgpuctl repair` again",
        )
