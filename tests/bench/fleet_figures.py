# SPDX-License-Identifier: Apache-2.0
"""Figures of 40 hosts with 130 GPUs: lines that commands print, seconds of a refusal, and 40 VMs of one file.

Each command is run as in tests/bench/daily_tasks.py; seconds are medians of the rounds, with the command's start.
A refusal is measured with facts that were just read, with facts that are an hour old, and while a controller runs.
The VMs of a file are created on ten other hosts, 40 ms away.

Run it with `git worktree add BEFORE 3127fa99~1 && python -m tests.bench.fleet_figures [BEFORE] [--rounds 3]`; it prints
the tables of docs/daily-tasks.md. BEFORE: another version, which prints the same lines on the same hosts.
"""

import argparse
import os
import sqlite3
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.bench.daily_tasks import ROOT, TASKS, Shell, fleet
from vgpuctl.cli.contents import COMMANDS

_VMS = (
    ("acme/web", 100, "A40-8Q"),
    ("acme/app", 30, "A40-8Q"),
    ("umbrella/render", 60, "L40S-24Q"),
    ("initech/desk", 10, "T4-4Q"),
)
_ABOUT_ALL = (
    "map",
    "map --full",
    "stop-vm -A --all --dry-run",
    "check-vm -A --all",
    "plan-upgrade --driver 590.44.01",
)
_NO_HOST = "vgpuctl create-vm acme/nowhere --gpu '9*A40-48Q' --network none"
_FAR = {"hosts": 10, "mix": "a40*4", "latency_ms": 40}
"""Hosts whose 40 cards are for one VM each: without a way to them the processor of this machine alone would count."""

_FORTY = "forty.yml"


def main() -> None:
    """Measure on one fleet, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="checkout of the version before")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    part = yaml.safe_load(TASKS.read_text())["second_week"] | {"prepare": ["vgpuctl list-hosts"]}
    with fleet(ROOT, part) as shell:
        versions = [shell.of(given.before.resolve())] if given.before else []
        versions.append(shell)
        rows = [_lines(versions, line) for line in ("vgpuctl plan-hosts", "vgpuctl plan-hosts --steps")]
        shell.run("vgpuctl apply-hosts --reset")
        for tenant in sorted({name.partition("/")[0] for name, _count, _profile in _VMS}):
            shell.run(f"vgpuctl create-tenant {tenant}")
        for name, count, profile in _VMS:
            shell.run(f"vgpuctl create-vm {name} --count {count} --gpu {profile} --network none")
        rows += [_lines(versions, f"vgpuctl {line}") for line in _ABOUT_ALL]
        refusals = _refusals(shell, given.rounds)
    with fleet(ROOT, part | _FAR | {"files": part["files"] | {"layout.yml": "all: {}\n"}}) as shell:
        forty = _forty(shell, given.rounds)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, medians of {given.rounds} rounds\n")
    print(f"| command{' | before' * (len(versions) - 1)} | now |\n|---{'|---' * len(versions)}|")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    print("\n| what | seconds |\n|---|---|")
    print("\n".join(f"| {what} | {seconds:.1f} |" for what, seconds in (refusals | forty).items()))
    print(f"\n{len(COMMANDS)} commands, with {len({name.split()[0] for name in COMMANDS})} first words")


def _lines(versions: Sequence[Shell], line: str) -> list[str]:
    """The command, and the number of lines that each version prints; a dash where it has no such option."""
    found = [shell.run(line, status=None)[1] for shell in versions]
    return [f"`{line}`", *("-" if "No such option" in one else f"{len(one.splitlines()):,}" for one in found)]


def _refusals(shell: Shell, rounds: int) -> dict[str, float]:
    """Seconds of a `create-vm` that no host can take."""

    def refused(before: str | None = None, options: str = "") -> float:
        taken = []
        for _round in range(rounds):
            if before is None:
                _age_facts(shell)
            else:
                shell.run(before)
            taken.append(shell.run(_NO_HOST + options, status=5)[0])
        return statistics.median(taken)

    found = {
        "refusal, no controller, hosts read just before": refused("vgpuctl list-hosts > hosts.txt"),
        "refusal, no controller, facts an hour old": refused(),
        "refusal, no controller, `--refresh`": refused("true", " --refresh"),
    }
    shell.run("vgpuctl controller > controller.log 2>&1 & echo $! > controller.pid")
    try:
        while "sim-" in shell.run("vgpuctl list-controllers --json | jq '.unwatched'")[1]:
            time.sleep(1)
        found["refusal, a controller watches the hosts"] = refused("true")
    finally:
        shell.run("kill $(cat controller.pid)")
    return found


def _age_facts(shell: Shell) -> None:
    with sqlite3.connect(shell.home / "store.db") as store:
        store.execute("UPDATE hosts SET read_at = read_at - 3600")


def _forty(shell: Shell, rounds: int) -> dict[str, float]:
    """Seconds of `onboard` of a tenant with 40 VMs with a vGPU each, on a card each."""
    vms = [{"name": f"vm-{number}", "gpus": ["A40-48Q"], "memory": "2GiB", "network": None} for number in range(40)]
    (shell.home / _FORTY).write_text(yaml.safe_dump({"version": 1, "tenant": "forty", "vms": vms}))
    found, left = {}, list[float]()
    for what, options in (("one after the other, `--forks 1`", " --forks 1"), ("side by side", "")):
        taken = []
        for _round in range(rounds):
            taken.append(shell.run(f"vgpuctl onboard {_FORTY}{options}")[0])
            left.append(shell.run("vgpuctl offboard-tenant forty --timeout 0 -y")[0])
        found[f"40 VMs of one file, {what}"] = statistics.median(taken)
    return found | {"their tenant leaves": statistics.median(left)}


if __name__ == "__main__":
    main()
