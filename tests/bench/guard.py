# SPDX-License-Identifier: Apache-2.0
"""Compares processor time with the commit that docs/performance.md names, in alternating pairs.

Both versions run the same commands on the same simulated hosts, each with its own store and its own environment; of
both the measuring code is this checkout's. A figure is the processor time of the command and what it starts, without
the hosts' side. It names the measures whose median ratio grew by more than a tenth, and ends with 1 if there are any.

Run it with `python -m tests.bench.guard [--pairs N] [--only cold-start,fan-out] [--base COMMIT]`.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fan_out import run_and_measure
from tests.bench.own_lab import simulated_hosts
from tests.bench.versions import ROOT, sources
from tests.changed.commits import require_commit
from vgpuctl_lab.simulated.layout import simulated_folder

_HOSTS = 20
_MOST_GROWTH = 1.1
_NAMED = re.compile(r"compares with the commit `([0-9a-f]{40})`")
_VM = ("--tenant", "bench", "--gpu", "A40-1Q", "--vcpus", "1", "--memory", "96MiB", "--network", "none")
_MANY = 100


@dataclass(frozen=True)
class Version:
    """One version. home: of its store. path: of its sources beside this checkout's measuring code, for PYTHONPATH."""

    python: Path
    checkout: Path
    path: Path
    home: Path
    inventory: Path

    def runs(self, *arguments: str) -> float:
        """Run a Python program. Returns seconds of processor time. Ends the bench if it fails."""
        return run_and_measure(self.home, [str(self.python), *arguments], path=self.path).cpu_s

    def measures_itself(self, *arguments: str) -> float:
        """Run a Python program of its own tests. Returns seconds of processor time. Ends the bench if it fails."""
        return run_and_measure(self.home, [str(self.python), *arguments], path=self.checkout).cpu_s

    def does(self, *arguments: str) -> float:
        """Run a command on the hosts."""
        return self.runs("-m", "vgpuctl", *arguments, "-i", str(self.inventory))

    def creates(self, count: int) -> float:
        """Create VMs, and delete them again, which is not measured."""
        seconds = self.does("create-vm", "vm", "--count", str(count), *_VM)
        self.does("delete-vm", "--all", "--tenant", "bench", "--yes", "--timeout", "0")
        return seconds


@dataclass(frozen=True)
class Measure:
    """Something that is measured. pairs: so many that the median is good to some percent on a busy machine."""

    pairs: int
    run: Callable[[Version], float]


MEASURES: Mapping[str, Measure] = {
    "cold-start": Measure(15, lambda one: one.runs("-m", "vgpuctl", "--help")),
    "cached-list": Measure(9, lambda one: one.does("list-hosts", "--cached", "--json")),
    "fan-out": Measure(5, lambda one: one.does("list-hosts", "--json")),
    "one-create": Measure(5, lambda one: one.creates(1)),
    "many-creates": Measure(2, lambda one: one.creates(_MANY)),
    "placement": Measure(3, lambda one: one.measures_itself("-m", "tests.bench.place_decisions", "--gpus", "1000")),
}


def main() -> int:
    """Measure in pairs, print a table, and say what grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare with, in place of the one in docs/performance.md")
    parser.add_argument("--pairs", type=int, help="of each measure, in place of its own number")
    parser.add_argument("--only", default=",".join(MEASURES), help="names of measures: %(default)s")
    given = parser.parse_args()
    base, wanted = given.base or named_commit(), given.only.split(",")
    if unknown := set(wanted) - set(MEASURES):
        parser.error(f"no measure is named {', '.join(sorted(unknown))}")
    if given.pairs is not None and given.pairs < 1:
        parser.error("--pairs must be 1 or more")
    require_commit(ROOT, base)
    with tempfile.TemporaryDirectory(prefix="guard-", dir="/tmp") as name, simulated_hosts(_HOSTS) as folder:
        inventory = simulated_folder(folder).inventory
        before = _version(Path(name) / "before", *_checked_out(Path(name), base), inventory)
        now = _version(Path(name) / "now", Path(sys.executable), ROOT, inventory)
        for one in (before, now):
            _say("the agent is pushed, and a tenant created")
            one.does("list-hosts", "--json")
            one.runs("-m", "vgpuctl", "create-tenant", "bench")
        print(f"CPU time, {base[:8]} and now; the ratio is the median of the pairs", flush=True)
        growth = [_measure(one, given.pairs or MEASURES[one].pairs, before, now) for one in wanted]
    return 1 if max(growth) > _MOST_GROWTH else 0


def _measure(name: str, pairs: int, before: Version, now: Version) -> float:
    """Print the row of a measure. Returns how many times of before it takes now."""
    taken = _pairs(name, pairs, before, now)
    growth = statistics.median(after / first for first, after in taken)
    first, after = (statistics.median(side) * 1000 for side in zip(*taken, strict=True))
    grew = "  grew by more than a tenth" if growth > _MOST_GROWTH else ""
    print(f"{name:13} {first:8.0f} ms {after:8.0f} ms {growth:6.2f}{grew}", flush=True)
    return growth


def _pairs(name: str, pairs: int, before: Version, now: Version) -> list[tuple[float, float]]:
    """Seconds of both versions, after one run of each that is not counted. Every other pair begins with `now`."""
    run = MEASURES[name].run
    run(before), run(now)
    taken = []
    for number in range(pairs):
        if number % 2:
            after, first = run(now), run(before)
        else:
            first, after = run(before), run(now)
        taken.append((first, after))
        _say(f"{name} {number + 1} of {pairs}: {first:.3f} s, {after:.3f} s")
    return taken


def named_commit() -> str:
    """The commit that docs/performance.md names. Ends the bench where it names none."""
    named = _NAMED.search((ROOT / "docs/performance.md").read_text())
    if named is None:
        raise SystemExit("docs/performance.md names no commit to compare with; give one with --base")
    return named[1]


def _checked_out(home: Path, commit: str) -> tuple[Path, Path]:
    """A clone at a commit, and the Python of an environment that has what it depends on."""
    _say(f"{commit[:8]} is checked out and installed")
    checkout, environment = home / "checkout", home / "environment"
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(checkout)], check=True)
    subprocess.run(["git", "-C", str(checkout), "checkout", "-q", "--detach", commit], check=True)
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-e", str(checkout)]
    subprocess.run([*install, "-e", str(checkout / "lab")], check=True)
    return python, checkout


def _version(home: Path, python: Path, checkout: Path, inventory: Path) -> Version:
    home.mkdir()
    return Version(python, checkout, sources(home / "sources", checkout), home, inventory)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
