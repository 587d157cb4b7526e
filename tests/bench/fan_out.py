# SPDX-License-Identifier: Apache-2.0
"""Facts of many hosts: vgpuctl beside ansible-core and plain OpenSSH, on the same simulated hosts in the same run.

Wall time, CPU time and memory of the controller: the command's own processes, without the hosts' side, which runs on
the same machine. Hosts, forks and order are the same for all. `facts` reads every host's facts (`list-hosts`), first
without the agent on the hosts, then with it; `check` is `apply-hosts --check`. `openssh agent` starts the same agent by
`xargs -P ssh` with the same question and only collects the answers. Ansible runs with pipelining and a
ControlPersist socket of its own per run. OpenSSH logs in and runs `true`.

Run it with `python -m tests.bench.fan_out --hosts 10,100 [--forks 10] [--rounds 3]`.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import vgpuctl_lab as lab
from tests.bench.own_lab import simulated_hosts
from tests.bench.versions import ROOT
from vgpuctl.agent.wire.envelope import Request, request_to_json
from vgpuctl.hosts.agent_bootstrap import BOOTSTRAP
from vgpuctl.hosts.bundle import build_agent
from vgpuctl_lab.simulated.layout import simulated_folder

_SAMPLE_S = 0.25
# Reading a file in /proc raises these when its process ends meanwhile.
_ENDED = (FileNotFoundError, ProcessLookupError)
_LAYOUT = "vgpu: {version: 1, gpus: [{match: all, kind: vgpu}]}\n"


@dataclass(frozen=True)
class Cost:
    """The cost of one run. memory_mib: the largest sum over its processes of what they alone have (PSS)."""

    wall_s: float
    cpu_s: float
    memory_mib: float


_FIELDS = tuple(field.name for field in fields(Cost))


def main() -> None:
    """Measure every tool for every number of hosts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="10,100")
    parser.add_argument("--forks", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--without", default="", help="names of runs to leave out, such as setup,ping")
    given = parser.parse_args()
    print(
        f"forks {given.forks}, latency {given.latency_ms:g} ms, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    print(f"{'hosts':>5} {'run':22} {'wall s':>8} {'ms/host':>8} {'CPU s':>8} {'ms/host':>8} {'MiB':>7}")
    taken: dict[int, dict[str, Cost]] = {}
    for text in given.hosts.split(","):
        hosts = int(text)
        with (
            tempfile.TemporaryDirectory(prefix="fan-out-") as name,
            simulated_hosts(hosts, latency_ms=given.latency_ms) as folder,
        ):
            taken[hosts] = _measure(Path(name), folder, hosts, given)
    _print_one_more(taken)


def _print_one_more(taken: Mapping[int, Mapping[str, Cost]]) -> None:
    """Print the controller's cost of one host more, without the start of the command: from the fewest to the most."""
    few, most = min(taken), max(taken)
    if few == most:
        return
    print(f"one host more, from {few} to {most}:")
    for name, last in taken[most].items():
        first = taken[few][name]
        wall, cpu, memory = ((getattr(last, field) - getattr(first, field)) / (most - few) for field in _FIELDS)
        print(f"{name:22} {wall * 1000:8.0f} ms, CPU {cpu * 1000:6.1f} ms, {memory * 1024:6.0f} KiB")


def _measure(home: Path, folder: lab.LabFolder, hosts: int, given: argparse.Namespace) -> dict[str, Cost]:
    """Print what each run costs, the medians of its rounds, and return them."""
    inventory = home / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    shutil.copy(simulated_folder(folder).inventory, inventory / "hosts.yml")
    (inventory / "group_vars/all.yml").write_text(_LAYOUT)
    left_out = set(given.without.split(","))
    runs = _runs(home, inventory, folder, given.forks)
    wanted = [name for name in runs if name.partition(" ")[0] not in left_out and name not in left_out]
    rounds: dict[str, list[Cost]] = {name: [] for name in wanted}
    for number in range(given.rounds):
        for name in wanted:
            if not number or "first" not in name:
                rounds[name].append(run_and_measure(home, runs[name](number)))
    taken = {
        name: Cost(*(statistics.median(getattr(cost, field) for cost in costs) for field in _FIELDS))
        for name, costs in rounds.items()
    }
    for name, cost in taken.items():
        print(
            f"{hosts:5} {name:22} {cost.wall_s:8.2f} {cost.wall_s / hosts * 1000:8.0f} {cost.cpu_s:8.2f} "
            f"{cost.cpu_s / hosts * 1000:8.0f} {cost.memory_mib:7.1f}",
            flush=True,
        )
    return taken


def _runs(home: Path, inventory: Path, folder: lab.LabFolder, forks: int) -> dict[str, Callable[[int], list[str]]]:
    """Every run by name: from the round's number to the command."""
    ours = [sys.executable, "-m", "vgpuctl"]
    where = ["-i", str(inventory), "--forks", str(forks), "--json"]
    ansible = [str(Path(sys.executable).parent / "ansible"), "all", "-i", str(inventory), "-f", str(forks), "-o"]
    names = lab.simulated.names(folder=folder)
    request = home / "request"
    request.write_text(json.dumps(request_to_json(Request("facts"))) + "\n")
    bundle = build_agent()
    python = str(simulated_folder(folder).programs / "python3")
    agent = [python, "-I", "-S", "-c", BOOTSTRAP, bundle.sha256, str(len(bundle.data))]

    def with_ssh(name: str, command: Sequence[str]) -> list[str]:
        """Run one command on all hosts with OpenSSH, the request on stdin."""
        scripts = home / name
        scripts.mkdir(exist_ok=True)
        for one in names:
            argv = lab.simulated.shell_command(one, [shlex.join(command)], folder=folder)
            (scripts / one).write_text(f"exec {shlex.join(argv)} <{request}\n")
        return ["sh", "-c", f"ls {scripts}/* | xargs -P {forks} -n 1 sh"]

    logins, agents = with_ssh("logins", ["true"]), with_ssh("agents", agent)
    return {
        "openssh true": lambda _: logins,
        "vgpuctl facts, first": lambda _: [*ours, "list-hosts", *where],
        "openssh agent": lambda _: agents,
        "vgpuctl facts": lambda _: [*ours, "list-hosts", *where],
        "vgpuctl check": lambda _: [*ours, "apply-hosts", "--check", *where],
        "ping (ansible)": lambda number: [*ansible, "-m", "ping", "-e", f"ansible_control_path_dir={home}/p{number}"],
        "setup (ansible)": lambda number: [*ansible, "-m", "setup", "-e", f"ansible_control_path_dir={home}/s{number}"],
    }


def run_and_measure(home: Path, command: Sequence[str], *, codes: Sequence[int] = (0,), path: Path = ROOT) -> Cost:
    """Run one command in a session of its own and take its CPU time from the kernel when it ends.

    home: with its store. codes: of success. path: the sources that it runs.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(path),
        "PYTHONSAFEPATH": "1",  # the folder that we are in has sources too
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "VGPUCTL_DATABASE_URL": f"sqlite:///{home}/store.db",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_HOST_KEY_CHECKING": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
    }
    log = home / "log"
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        sampler = _Sampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    sampler.stop()
    if process.returncode not in codes:
        tail = log.read_text(errors="replace")[-600:]
        raise SystemExit(f"{' '.join(command)[:200]} ended with {process.returncode}: {tail}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, sampler.most_kib / 1024)


class _Sampler(threading.Thread):
    """Watches the memory of a session's processes."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.most_kib = 0
        self._session = session
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self.most_kib = max(self.most_kib, sum(_memory_kib(pid) for pid in self._pids()))

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _pids(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except _ENDED:
                    continue
                if int(fields[3]) == self._session:
                    found.append(int(entry.name))
        return found


def _memory_kib(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except _ENDED:
        pass
    return 0


if __name__ == "__main__":
    main()
