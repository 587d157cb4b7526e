# SPDX-License-Identifier: Apache-2.0
"""How long the command takes to start, against a bare click application in the same run: wall and CPU, medians.

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
    """Wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure in rounds, each command once per round, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VGPUCTL_DATABASE_URL": f"sqlite:///{Path(folder)}/store.db"}
        commands = {
            "bare click --help": [sys.executable, "-c", BARE],
            "vgpuctl --help": [sys.executable, "-m", "vgpuctl", "--help"],
            "vgpuctl list-vms --json, empty store": [sys.executable, "-m", "vgpuctl", "list-vms", "--json"],
            "completion of 1,000 VMs, 60 hosts": [sys.executable, "-m", "vgpuctl"],
        }
        stored = Path(folder) / "stored"
        stored.mkdir()
        hosts = tuple(f"gpu{number:03}" for number in range(60))
        with open_stored(stored, hosts) as services:
            fill(services, hosts, cards=8, shares=1000)
        completing = {
            **environment,
            "VGPUCTL_DATABASE_URL": f"sqlite:///{stored}/store.db",
            "_VGPUCTL_COMPLETE": "bash_complete",
            "COMP_WORDS": "vgpuctl show-vm acme/",
            "COMP_CWORD": "2",
        }
        environments = {"completion of 1,000 VMs, 60 hosts": completing}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for name, command in commands.items():
            measure(command, environments.get(name, environment))
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(measure(command, environments.get(name, environment)))
    base_wall = statistics.median(wall for wall, _cpu in taken["bare click --help"])
    base_cpu = statistics.median(cpu for _wall, cpu in taken["bare click --help"])
    print(f"{'command':40} {'wall s':>8} {'ratio':>6} {'CPU s':>8} {'ratio':>6}   median of {rounds}")
    for name, results in taken.items():
        wall = statistics.median(result[0] for result in results)
        cpu = statistics.median(result[1] for result in results)
        print(f"{name:40} {wall:8.3f} {wall / base_wall:6.2f} {cpu:8.3f} {cpu / base_cpu:6.2f}")


if __name__ == "__main__":
    main()
