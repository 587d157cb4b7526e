# SPDX-License-Identifier: Apache-2.0
"""lab play: let the readings of a host follow a scenario."""

from pathlib import Path

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_json, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl_lab.cli.folders import lab_folder

_COLUMNS = ("TARGET", "MEASURE", "POINTS")


@click.command("play")
@click.argument("host")
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option("--stop", is_flag=True, help="End what the host plays: its readings are those of its VMs again.")
@options.as_json
@click.pass_obj
def command(folder: Path | None, host: str, scenario: str | None, stop: bool, as_json: bool) -> None:
    """Play a scenario on a host from now on, and print its curves; without SCENARIO, print what the host plays.

    SCENARIO is a YAML file (docs/lab.md) or one of: noisy-neighbour, memory-leak, thermal-throttle, xid, licence-lost,
    idle. It takes the place of the one before. Measures without a curve follow the running
    VMs.
    """
    import vgpuctl_lab as lab

    where = lab_folder(folder)
    if stop:
        if scenario is not None:
            raise UsageError("--stop takes no scenario", hint="a new scenario takes the place of the one before")
        say(f"{host}: stopped" if lab.playing.stop(host, folder=where) else f"{host} played nothing")
        return
    if scenario is None:
        played = lab.playing.playing(host, folder=where)
    else:
        known = lab.scenarios.read_scenario(scenario)
        played = lab.playing.play(host, known, folder=where)
        say(f"{host}: {known.about}")
    if as_json:
        print_json([{"target": target, "measure": name, "points": points} for target, name, points in played.curves])
    else:
        print_table(_COLUMNS, played.curves, empty=f"{host} plays nothing")
