# SPDX-License-Identifier: Apache-2.0
"""predict: how long a job takes on each GPU."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import DecimalRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.scheduler.performance.job_times import JobTime
    from vgpuctl.usecases.telemetry.predict import PredictedJob

_JSON: "JsonOutput[PredictedJob]" = JsonOutput()


@click.command("predict")
@click.argument("workload", metavar="CLASS")
@click.option(
    "--size",
    type=DecimalRange(1e-9, 1e12),
    help="Size of the job, as in the table: one side of a matrix.  [default: none, for a class without sizes]",
)
@options.one_host
@options.as_json
def command(workload: str, size: float | None, as_json: bool, **where: Any) -> None:
    """Predict how long a job of a workload class takes on each GPU.

    The interval holds 90 % of such jobs. It goes by your own table of sizes and seconds (`vgpuctl fit-performance
    --times`). The job is alone on the GPU. Nothing is predicted for a board or a size outside the table: such a GPU is
    unknown, and where all are the command ends with exit code 6 (`not-found`).
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import format_time
    from vgpuctl.usecases.telemetry.predict import predict

    with services(**where) as opened:
        found = predict(opened, workload, size)
    if as_json:
        _JSON.print(found)
        return
    print_line(f"{found.workload}, fitted {format_time(found.fitted_at)} UTC")
    print_table(
        ["HOST", "GPU", "CARD", "SECONDS", "90 % BETWEEN", "TIMED"],
        [
            (
                *(one.host, one.gpu, one.board),
                *(("unknown", one.reason, None) if one.time is None else _shown(one.time, is_declared=one.is_declared)),
            )
            for one in found.cards
        ],
        empty="no host with a GPU was read",
    )


def _shown(time: "JobTime", *, is_declared: bool) -> tuple[str, str, str]:
    between = f"{time.low:.4g} and {time.high:.4g}"
    return f"{time.seconds:.4g}", between, "speed as declared" if is_declared else str(time.measured)
