# SPDX-License-Identifier: Apache-2.0
"""Twenty tasks of an operator's day: lines and keys typed, and seconds, before version 0.2.0 and now.

Every line of tests/data/daily_tasks.yml for vgpuctl is run by bash on 60 simulated hosts, once per round and version;
the seconds are medians. The older version is a checkout of its commit. Lines of other tools are only counted.

Run it with `git worktree add BEFORE cc8ec0b8 && python -m tests.bench.daily_tasks BEFORE [--hosts 60] [--rounds 3]`.
It prints the table of docs/daily-tasks.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
_TASKS = ROOT / "tests/data/daily_tasks.yml"
_OTHERS = ("incus", "virsh", "openstack")
Lines = Sequence[str] | None


def main() -> None:
    """Run all tasks with both versions, in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="checkout of the version before")
    parser.add_argument("--hosts", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    tasks: list[Mapping[str, Lines]] = yaml.safe_load(_TASKS.read_text())
    versions = {"before": given.before.resolve(), "now": ROOT}
    taken: dict[tuple[str, int], list[float]] = {}
    for _round in range(given.rounds):
        for version, checkout in versions.items():
            for number, seconds in enumerate(_run(checkout, [one[version] for one in tasks], given.hosts)):
                if seconds is not None:
                    taken.setdefault((version, number), []).append(seconds)
    print(f"hosts {given.hosts}, rounds {given.rounds}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    print(table(tasks, {key: statistics.median(one) for key, one in taken.items()}))


def table(tasks: Sequence[Mapping[str, Lines]], seconds: Mapping[tuple[str, int], float]) -> str:
    """The Markdown table: of each tool lines and keys, of vgpuctl the seconds too; a dash where it cannot."""
    rows = [f"| task | before | now | {' | '.join(_OTHERS)} |", "|---" * (3 + len(_OTHERS)) + "|"]
    totals = {"before": 0, "now": 0}
    for number, task in enumerate(tasks):
        cells = [str(task["task"])]
        for version in ("before", "now"):
            at = seconds.get((version, number))
            cells.append(_counted(task[version]) + ("" if at is None else f", {at:.1f} s"))
        if task["before"] is not None:
            for version in totals:
                totals[version] += keys(task[version])
        rows.append(f"| {' | '.join(cells + [_counted(task[one]) for one in _OTHERS])} |")
    before, now = (sum(at for (one, _), at in seconds.items() if one == version) for version in ("before", "now"))
    rows.append(f"\nOf the tasks that both can do: {totals['before']} keys before, {totals['now']} now.")
    rows.append(f"All tasks of a version: {before:.0f} s before, {now:.0f} s now.")
    return "\n".join(rows)


def keys(lines: Lines) -> int:
    """The keys typed for the lines, with one for Enter each; completion is not used."""
    return sum(len(line) + 1 for line in lines or ())


def _counted(lines: Lines) -> str:
    return "-" if lines is None else f"{len(lines)} / {keys(lines)}"


def _run(checkout: Path, tasks: Sequence[Lines], hosts: int) -> list[float | None]:
    """Run the lines of all tasks with a version, on new hosts and an empty store. Returns seconds, None of no lines."""
    with tempfile.TemporaryDirectory(prefix="daily-") as name:
        home = Path(name)
        shell = _Shell(home, checkout)
        shell.run(f"vgpuctl lab up --simulated {hosts} --mix a40*2 > up")
        try:
            shell.run(
                "find lab -name inventory.yml -exec cp {} hosts.yml \\;; mkdir other; cp hosts.yml other/hosts.yml"
            )
            shell.run("vgpuctl list-hosts")
            return [None if lines is None else sum(map(shell.run, lines)) for lines in tasks]
        finally:
            shell.run("vgpuctl lab down")


class _Shell:
    """A user's bash in a home folder, with one version of vgpuctl on the PATH."""

    def __init__(self, home: Path, checkout: Path) -> None:
        self._home = home
        programs = home / "bin"
        programs.mkdir()
        (programs / "vgpuctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m vgpuctl "$@"\n')
        (programs / "vgpuctl").chmod(0o755)
        configuration = home / "vgpuctl.yaml"
        configuration.write_text(
            "inventory: [hosts.yml]\ndatabase: sqlite:///store.db\ncontexts:\n"
            "  other: {inventory: [other/hosts.yml], database: 'sqlite:///other/store.db'}\n"
        )
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{checkout}:{checkout / 'lab'}",
            "PYTHONSAFEPATH": "1",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "VGPUCTL_CONFIG": str(configuration),
            "VGPUCTL_LAB_FOLDER": str(home / "lab"),
        }
        if not (checkout / "vgpuctl/cli/operate/use_context.py").exists():
            self._environment |= {"VGPUCTL_INVENTORY": "hosts.yml", "VGPUCTL_DATABASE_URL": "sqlite:///store.db"}

    def run(self, line: str) -> float:
        """Run a line. Returns its seconds. Raises RuntimeError with its output if it fails."""
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"{line}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        print(f"{seconds:7.2f} s  {line}", file=sys.stderr, flush=True)
        return seconds


if __name__ == "__main__":
    main()
