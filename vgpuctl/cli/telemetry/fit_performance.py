# SPDX-License-Identifier: Apache-2.0
"""fit-performance: fit the model of throughput of VMs that share GPUs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, print_table, say

if TYPE_CHECKING:
    from vgpuctl.usecases.telemetry.fit_performance import FittedCost, FittedSpeed


class JsonFit(TypedDict):
    """A model of throughput. path: its file; written: false for a dry run. made_at: seconds since the epoch, UTC."""

    path: str
    written: bool
    source: str
    made_at: float
    measurements: int
    costs: "Sequence[FittedCost]"
    speeds: "Sequence[FittedSpeed]"


_JSON: "JsonOutput[JsonFit]" = JsonOutput()


@click.command("fit-performance")
@click.option(
    "--table",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Fit from your own measurements (CSV or YAML, docs/placement.md) instead of the history.",
)
@click.option(
    "--times",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Fit how long jobs take on each card from your own table of sizes and seconds (CSV, docs/placement.md).",
)
@click.option("--workload", metavar="CLASS", help="With --times, the class of jobs whose rows name none.")
@click.option(
    "--since", default="48h", show_default=True, metavar="DURATION", help="Use readings of this time before now."
)
@options.history
@options.prometheus
@options.database
@options.dry_run
@options.as_json
def command(
    table: Path | None,
    times: Path | None,
    workload: str | None,
    since: str,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Fit how much throughput VMs lose beside neighbours on a GPU. The model is by workload class, and is kept beside
    the store.

    `explain-vm --predict` and the policy `predicted` use it. COST is in slowdown: 1 means that one such neighbour
    doubles the time that the work takes. With --dry-run nothing is kept.

    It also fits the speed of each board for a class: from --times, or from VMs of the class that were alone on GPUs of
    several boards. `vgpuctl predict` answers from --times how long a job takes.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.telemetry.fit_performance import fit_performance

    if workload is not None and times is None:
        raise UsageError("--workload is for jobs of --times", hint="add --times FILE, or leave it out")
    since_s = parse_duration(since, what="--since")
    with services(**where) as opened:
        found = fit_performance(opened, table=table, since_s=since_s, times=times, workload=workload, dry_run=dry_run)
    if as_json:
        _JSON.print(
            {
                "path": str(found.path),
                "written": found.written,
                "source": found.model.source,
                "made_at": found.model.made_at,
                "measurements": found.measurements,
                "costs": found.costs,
                "speeds": found.speeds,
            }
        )
        return
    print_line(f"{found.measurements} measurements from {found.model.source}")
    print_table(
        ["SHARING", "WORKLOAD", "BESIDE", "COST", "90 % BETWEEN", "MEASURED", "VMS", "USED"],
        [
            (
                *(one.isolation, one.workload, one.neighbour, f"{one.cost:.2f}", f"{one.low:.2f} and {one.high:.2f}"),
                *(one.measurements, one.vms, "yes" if one.is_used else "too little"),
            )
            for one in found.costs
        ],
        empty="no VM was measured beside a neighbour",
    )
    if found.speeds:
        print_table(
            ["WORKLOAD", "CARD", "SPEED", "90 % BETWEEN", "MEASURED", "FROM"],
            [
                (
                    *(one.workload, one.board),
                    *(("unknown", one.reason) if one.speed is None else _speed(one)),
                    *(one.measurements, "table" if one.is_timed else "readings"),
                )
                for one in found.speeds
            ],
            empty="",
        )
    say(f"kept in {found.path}" if found.written else f"not kept in {found.path}, because of --dry-run")


def _speed(one: "FittedSpeed") -> tuple[str, str]:
    return f"{one.speed:.0%}", f"{one.low:.0%} and {one.high:.0%}"
