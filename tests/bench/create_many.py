# SPDX-License-Identifier: Apache-2.0
"""The cost of one VM of `create-vm --count`: wall time, our CPU, and the CPU of the simulated hosts on this machine.

Each round starts a new process for each version of the sources, one after the other, so that the ratios of a round hold
on a busy machine. The VMs are deleted after each run. The hosts' CPU is that of the lab's processes (agents, sshd,
libvirtd), the wall time is theirs and ours: all run on the same cores.

It starts four simulated hosts with an A40 each, which all runs and versions share.
Run it with `python -m tests.bench.create_many [--count 100] [--rounds N] [--against CHECKOUT]`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.own_lab import simulated_hosts
from tests.bench.versions import ROOT, sources
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.tenant.create_tenant import create_tenant
from vgpuctl.usecases.vm.create_vm import create_vm
from vgpuctl.usecases.vm.created_vm import CreatedVm
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Create the VMs in rounds and print the medians, and the ratios to the other version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--gpu", default="A40-1Q")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version of the sources")
    parser.add_argument("--once", type=Path, metavar="INVENTORY", help="one run in this process, printed as JSON")
    given = parser.parse_args()
    if given.once:
        print(json.dumps(_create(given.once, given.gpu, given.count)))
        return
    versions = {"this": ROOT} | ({"other": given.against} if given.against else {})
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    with tempfile.TemporaryDirectory() as home, simulated_hosts(4, mix="a40:1") as folder:
        paths = {name: sources(Path(home) / name, checkout) for name, checkout in versions.items()}
        for _ in range(given.rounds):
            for name, path in paths.items():
                taken[name].append(_run(path, simulated_folder(folder).inventory, given.gpu, given.count))
    print(f"one of {given.count} VMs, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for name, runs in taken.items():
        medians = (f"{key} {statistics.median(run[key] for run in runs) * 1000:.0f} ms" for key in runs[0])
        print(f"{name}: {', '.join(medians)}")
    if given.against:
        for key in taken["this"][0]:
            ratios = [a[key] / b[key] for a, b in zip(taken["this"], taken["other"], strict=True)]
            print(f"{key}: this / other, pair by pair: median {statistics.median(ratios):.2f}")


def _run(path: Path, inventory: Path, gpu: str, count: int) -> dict[str, float]:
    program = [sys.executable, "-m", "tests.bench.create_many"]
    done = subprocess.run(
        [*program, "--once", str(inventory), "--gpu", gpu, "--count", str(count)],
        env={**os.environ, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def _create(inventory: Path, gpu: str, count: int) -> dict[str, float]:
    """Create the VMs with one command, and delete them. Returns seconds for each VM."""
    requests = [
        VmRequest(f"many-{number}", "bench", (parse_gpu_request(gpu),), 1, 96, network=None) for number in range(count)
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings([str(inventory)], f"sqlite:///{Path(folder)}/store.db")
        with open_services(settings, lambda _text: None) as services:
            create_tenant(services, "bench")
            survey(services, services.hosts(), refresh=True)
        with open_services(settings, lambda _text: None) as services:
            hosts, own, began = _cpu_s(inventory.parent), time.process_time(), time.perf_counter()
            made = create_vm(services, requests)
            wall, own, hosts = time.perf_counter() - began, time.process_time() - own, _cpu_s(inventory.parent) - hosts
            for one in made:
                assert isinstance(one, CreatedVm)
                delete_vm(services, one.vm, timeout_s=0)
    return {"wall": wall / count, "own CPU": own / count, "hosts' CPU": hosts / count}


def _cpu_s(lab: Path) -> float:
    """The CPU of the lab's processes and of those that they started, ended ones too, in seconds."""
    parents: dict[int, int] = {}
    taken: dict[int, int] = {}
    is_lab: dict[int, bool] = {os.getpid(): False}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            pid = int(entry.name)
            parents[pid], taken[pid] = int(fields[1]), sum(map(int, fields[11:15]))
            is_lab.setdefault(pid, str(lab).encode() in command)

    def belongs(pid: int) -> bool:
        return is_lab.get(pid, False) or (pid in parents and belongs(parents[pid]))

    return sum(ticks for pid, ticks in taken.items() if belongs(pid)) / _TICKS_PER_S


if __name__ == "__main__":
    main()
