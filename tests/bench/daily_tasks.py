# SPDX-License-Identifier: Apache-2.0
"""Twenty tasks of an operator's day and twenty of the second week: lines and keys typed, lines read, and seconds.

Every line of tests/data/daily_tasks.yml for vgpuctl is run by bash on 40 simulated hosts. Each must end with its exit
status, and the last one prints the answer: lines read are those that the task printed up to it. The day runs with the
version before 0.2.0 too, a checkout of its commit. Seconds are medians. Lines of other tools are only counted.

Run it with `git worktree add BEFORE cc8ec0b8 && python -m tests.bench.daily_tasks [BEFORE] [--rounds 3]`.
It prints the tables of docs/daily-tasks.md; without BEFORE, what the version before took is left out.
"""

import argparse
import copy
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "tests/data/daily_tasks.yml"
_OTHERS = ("incus", "virsh", "openstack")
Lines = Sequence[str] | None
Task = Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """What a task took. read: lines printed up to the answer, None where the screen has none."""

    seconds: float
    read: int | None


def main() -> None:
    """Run all tasks of both parts, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="checkout of the version before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=("day", "second_week"), action="append", help="default: both")
    given = parser.parse_args()
    parts = yaml.safe_load(TASKS.read_text())
    for name in given.part or parts:
        part = parts[name]
        versions = {"now": ROOT}
        if given.before is not None and "before" in part["tasks"][0]:
            versions = {"before": given.before.resolve()} | versions
        rounds = [
            {version: _run(checkout, version, part) for version, checkout in versions.items()}
            for _round in range(given.rounds)
        ]
        taken = {version: _medians([one[version] for one in rounds]) for version in versions}
        print(f"{name}: rounds {given.rounds}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
        print(table(part["tasks"], taken), end="\n\n", flush=True)


def _medians(rounds: Sequence[Sequence[Taken | None]]) -> list[Taken | None]:
    """By task, the median seconds and the most lines read."""
    found: list[Taken | None] = []
    for each in zip(*rounds, strict=True):
        taken = [one for one in each if one is not None]
        reads = [one.read for one in taken if one.read is not None]
        median = statistics.median(one.seconds for one in taken) if taken else 0.0
        found.append(Taken(median, max(reads, default=None)) if taken else None)
    return found


def table(tasks: Sequence[Task], taken: Mapping[str, Sequence[Taken | None]]) -> str:
    """The Markdown table: lines / keys of each tool, of vgpuctl lines read and seconds too; a dash where it cannot."""
    versions = [one for one in ("before", "now") if one in tasks[0]]
    rows = [f"| {' | '.join(['task', *versions, *_OTHERS])} |", "|---" * (1 + len(versions) + len(_OTHERS)) + "|"]
    for number, task in enumerate(tasks):
        cells = [str(task["task"])]
        for version in versions:
            at = taken[version][number] if version in taken else None
            measured = "" if at is None else f" / {'-' if at.read is None else at.read}, {at.seconds:.1f} s"
            cells.append(_counted(task[version]) + measured)
        rows.append(f"| {' | '.join(cells + [_counted(task[one]) for one in _OTHERS])} |")
    both = [task for task in tasks if all(task[version] is not None for version in versions)]
    rows.append("")
    for version in versions:
        rows.append(f"{version}: {sum(keys(task[version]) for task in both):,} keys of the tasks of every version")
        all_taken = [one for one in taken.get(version, ()) if one is not None]
        read, seconds = sum(one.read or 0 for one in all_taken), sum(one.seconds for one in all_taken)
        rows[-1] += f"; of all its tasks {read:,} lines read and {seconds:.0f} s"
    return "\n".join(rows)


def keys(lines: Lines) -> int:
    """The keys typed for the lines, with one for Enter each; completion is not used."""
    return sum(len(line) + 1 for line in lines or ())


def read_until(answer: str | None, printed: str) -> int | None:
    """Number of printed lines up to the first that has the answer; None without an answer.

    answer: regular expression. Raises LookupError where no line has it.
    """
    if answer is None:
        return None
    for number, line in enumerate(printed.splitlines(), start=1):
        if re.search(answer, line):
            return number
    raise LookupError(f"no line has {answer!r}:\n{printed[-3000:]}")


def _counted(lines: Lines) -> str:
    return "-" if lines is None else f"{len(lines)} / {keys(lines)}"


def _run(checkout: Path, version: str, part: Mapping[str, Any]) -> list[Taken | None]:
    """Run all tasks of a part with a version, on new hosts and an empty store; None where it has no lines."""
    with fleet(checkout, part) as shell:
        return [_take(shell, task, version) for task in part["tasks"]]


def _take(shell: "Shell", task: Task, version: str) -> Taken | None:
    for line in task.get("prepare", ()):
        shell.run(line)
    if task[version] is None:
        return None
    seconds, lines, printed = 0.0, 0, ""
    exits = task.get("exits", [0] * len(task[version]))
    for line, status in zip(task[version], exits, strict=True):
        lines += len(printed.splitlines())
        took, printed = shell.run(line, status=status)
        seconds += took
    read = read_until(task["answer"], printed)
    return Taken(seconds, None if read is None else lines + read)


@contextmanager
def fleet(checkout: Path, part: Mapping[str, Any]) -> Iterator["Shell"]:
    """A user's shell with the hosts, files and prepared state of a part, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="daily-") as name:
        shell = Shell(Path(name), checkout)
        for file, text in part["files"].items():
            (Path(name) / file).write_text(text)
        slower = f" --latency-ms {part['latency_ms']}" if "latency_ms" in part else ""
        shell.run(f"vgpuctl lab up --simulated {part['hosts']} --mix '{part['mix']}'{slower}")
        try:
            shell.run("find lab -name inventory.yml -exec cp {} hosts.yml \\;")
            for line in part["prepare"]:
                shell.run(line)
            yield shell
        finally:
            shell.run("vgpuctl lab down")


class Shell:
    """A user's bash in a home folder, with one version of vgpuctl on the PATH."""

    def __init__(self, home: Path, checkout: Path) -> None:
        self.home = home
        programs = home / "bin"
        programs.mkdir()
        for program, module in (("vgpuctl", "-m vgpuctl"), ("python", "")):
            (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
            (programs / program).chmod(0o755)
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{checkout}:{checkout / 'lab'}",
            "PYTHONSAFEPATH": "1",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "VGPUCTL_CONFIG": str(home / "vgpuctl.yaml"),
            "VGPUCTL_LAB_FOLDER": str(home / "lab"),
        }
        if not (checkout / "vgpuctl/cli/operate/use_context.py").exists():
            self._environment |= {"VGPUCTL_INVENTORY": "hosts.yml", "VGPUCTL_DATABASE_URL": "sqlite:///store.db"}

    def of(self, checkout: Path) -> "Shell":
        """The same home and hosts, with another version of vgpuctl."""
        other = copy.copy(self)
        other._environment = self._environment | {"PYTHONPATH": f"{checkout}:{checkout / 'lab'}"}
        return other

    def run(self, line: str, *, status: int | None = 0) -> tuple[float, str]:
        """Run a line. Returns its seconds and what it printed. Raises RuntimeError for another exit status than this.

        status: None for any.
        """
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if status is not None and done.returncode != status:
            raise RuntimeError(f"{line}: exit {done.returncode}, not {status}\n{done.stdout[-4000:]}")
        print(f"{seconds:7.2f} s {len(done.stdout.splitlines()):5} lines  {line}", file=sys.stderr, flush=True)
        return seconds, done.stdout


if __name__ == "__main__":
    main()
