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
@options.dry_run
@options.one_host
@options.as_json
def command(shutdown_timeout_s: float, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Finish or roll back interrupted runs. A kill, a lost connection or a reboot may have interrupted them.

    Only VMs of the store are touched; a run that is still alive is left alone.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.operate.repair import repair

    with services(**where) as opened:
        repairs = repair(opened, dry_run=dry_run, shutdown_timeout_s=shutdown_timeout_s)
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
