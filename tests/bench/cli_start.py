# SPDX-License-Identifier: Apache-2.0
"""How long the command takes to start, against a bare click application in the same run: wall and CPU, medians.

The ratios are medians of the rounds' own ratios, so that other work on the machine counts on both sides.

Run it with `python -m tests.bench.cli_start [--rounds N]`; the ratios go to docs/performance.md.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.stored_fleet import fill, open_stored

BARE = "import click\n@click.command()\ndef command(): 'A bare click application.'\ncommand(['--help'])\n"


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process, which may end with an error."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure in rounds, each command once per round, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        # The first run of each command writes its bytecode, as an installation does.
        left = {"PYTHONDONTWRITEBYTECODE", "VGPUCTL_INVENTORY"}
        environment = {name: value for name, value in os.environ.items() if name not in left}
        environment["VGPUCTL_DATABASE_URL"] = f"sqlite:///{folder}/store.db"
        vgpuctl = [sys.executable, "-m", "vgpuctl"]
        runs = {
            "bare click `--help`": ([sys.executable, "-c", BARE], environment),
            "`vgpuctl --help`": ([*vgpuctl, "--help"], environment),
            "TAB after `list-`": (vgpuctl, environment | _completing("vgpuctl list-")),
            "TAB of 1,000 VMs, 60 hosts": (vgpuctl, _with_vms(Path(folder), environment)),
            "`create-vm --help`": ([*vgpuctl, "create-vm", "--help"], environment),
            "`list-vms`, empty store": ([*vgpuctl, "list-vms"], environment),
            "`list-hosts` without an inventory": ([*vgpuctl, "list-hosts"], environment),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for command, of_run in runs.values():
            measure(command, of_run)
        for _ in range(rounds):
            for name, (command, of_run) in runs.items():
                taken[name].append(measure(command, of_run))
    print(f"{'command':40} {'wall s':>8} {'ratio':>6} {'CPU s':>8} {'ratio':>6}   median of {rounds}")
    bare = next(iter(taken.values()))
    for name, results in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*results, strict=True))
        of_wall, of_cpu = (
            statistics.median(one[at] / base[at] for one, base in zip(results, bare, strict=True)) for at in (0, 1)
        )
        print(f"{name:40} {wall:8.3f} {of_wall:6.2f} {cpu:8.3f} {of_cpu:6.2f}")


def _completing(words: str) -> dict[str, str]:
    """The environment in which bash asks for the last of these words."""
    return {"_VGPUCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}


def _with_vms(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment of completing a VM of a store that has many."""
    hosts = tuple(f"gpu{number:03}" for number in range(60))
    stored = folder / "stored"
    stored.mkdir()
    with open_stored(stored, hosts) as services:
        fill(services, hosts, cards=8, shares=1000)
    return environment | {"VGPUCTL_DATABASE_URL": f"sqlite:///{stored}/store.db"} | _completing("vgpuctl show-vm acme/")


if __name__ == "__main__":
    main()
