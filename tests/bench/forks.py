# SPDX-License-Identifier: Apache-2.0
"""How many hosts to read at the same time: `list-hosts` on simulated hosts with several values of --forks in one run.

The cases: hosts that answer at once, hosts behind a slow network, and a fleet of which one host in ten takes
connections and says nothing until --connect-timeout. The values take turns in each round, so that the load of the
machine meets all of them; the ratio to 10 forks is what counts. Wall time, CPU time and memory are those of vgpuctl
alone; the hosts run on the same machine, where each login costs CPU time too, unlike those of a fleet.

Run it with `python -m tests.bench.forks [--hosts 60] [--forks 5,10,25,50] [--rounds 3] [--latency-ms 100]`.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
from pathlib import Path

import vgpuctl_lab as lab
from tests.bench.fan_out import Cost, run_and_measure
from tests.bench.own_lab import simulated_hosts
from vgpuctl_lab.simulated.layout import simulated_folder

_CONNECT_TIMEOUT_S = 10
_BASE = 10


def main() -> None:
    """Measure every value in every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=60)
    parser.add_argument("--forks", default="5,10,25,50")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=100.0)
    given = parser.parse_args()
    values = [int(one) for one in given.forks.split(",")]
    print(f"{given.hosts} hosts, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(f"{'case':20} {'forks':>5} {'wall s':>8} {'ratio':>6} {'CPU s':>8} {'MiB':>7}")
    for case, latency_ms, silent in (
        ("quick", 0.0, 0),
        (f"latency {given.latency_ms:g} ms", given.latency_ms, 0),
        ("one in ten silent", 0.0, given.hosts // 10),
    ):
        with tempfile.TemporaryDirectory(prefix="forks-") as name, socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1] if silent else None
            costs = _measure(Path(name), given.hosts, silent, port, latency_ms, values, given.rounds)
        base = _median(costs.get(_BASE, costs[values[0]]), "wall_s")
        for forks, taken in costs.items():
            wall, cpu, memory = (_median(taken, field) for field in ("wall_s", "cpu_s", "memory_mib"))
            print(f"{case:20} {forks:5} {wall:8.2f} {wall / base:6.2f} {cpu:8.2f} {memory:7.1f}", flush=True)


def _median(costs: list[Cost], field: str) -> float:
    values: list[float] = [getattr(cost, field) for cost in costs]
    return statistics.median(values)


def _measure(
    home: Path, hosts: int, silent: int, port: int | None, latency_ms: float, values: list[int], rounds: int
) -> dict[int, list[Cost]]:
    """The costs of each value, after one run that puts the agent on the hosts. silent: how many of the hosts are so."""
    with simulated_hosts(hosts, latency_ms=latency_ms) as folder:
        inventories = ["-i", str(simulated_folder(folder).inventory)]
        command = [sys.executable, "-m", "vgpuctl", "list-hosts", "--json"]
        run_and_measure(home, [*command, *inventories, "--forks", "10"])
        if port is not None:
            names = lab.simulated.names(folder=folder)[: silent * 10 : 10]
            lines = "".join(f"    {name}: {{ansible_host: 127.0.0.1, ansible_port: {port}}}\n" for name in names)
            (home / "silent.yml").write_text(f"all:\n  hosts:\n{lines}")
            inventories += ["-i", str(home / "silent.yml"), "--connect-timeout", str(_CONNECT_TIMEOUT_S)]
        taken: dict[int, list[Cost]] = {forks: [] for forks in values}
        for _ in range(rounds):
            for forks in values:
                argv = [*command, *inventories, "--forks", str(forks)]
                taken[forks].append(run_and_measure(home, argv, codes=(0, 10)))
        return taken


if __name__ == "__main__":
    main()
