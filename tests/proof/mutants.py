# SPDX-License-Identifier: Apache-2.0
"""Eighty small mistakes in the rooms that decide and change: which tests notice them, and which mistakes nobody does.

A fixed seed chooses the mutants over the rooms and kinds (tests/proof/mutations.py), not over the lines, so that a
small room counts as much as a large one. Each is put into the file of this checkout, the tests that are nearest to the
file (tests/changed) run until one fails, and the file is put back. So run it in a clone of its own with its own .venv:

    git clone . ../mutants && cd ../mutants && bash scripts/setup test
    .venv/bin/python -m tests.proof.mutants --results mutants.json

A test counts only if it passes without the mutant. The results file is written after each mutant. A second run goes on
where the first ended, and one with a larger --budget runs more tests for the survivors. To compare a later tree, hand
it the earlier results: the same mutants are looked up by file, function and text, and the test that noticed one before
runs first:

    .venv/bin/python -m tests.proof.mutants --before mutants.json --results mutants-after.json

The last line of stdout is JSON. The exit code is 1 when a smaller share is noticed than in --before.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.changed.checkout import Checkout
from tests.changed.choice import LINTERS, Ranked, Ranking
from tests.changed.seconds import recorded
from tests.proof.mutations import Mutation, mutated, mutations

ROOT = Path(__file__).parents[2]
ROOMS = ("scheduler", "sharing", "quota", "planner", "usecases", "agent/changes", "store")
_LEFT_OUT = "store/migrations/"
_FIRST_FILES = 6
"""Collected in a run of their own, because most mutants are noticed by the nearest tests."""
_LOAD = 5
"""How much longer than recorded the tests may take on a busy machine before their run is given up."""
_SLOWEST_S = 600
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\n]+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file, named below the root."""

    file: str
    mutation: Mutation

    @property
    def places(self) -> frozenset[str]:
        """The file, and its function or method that changes."""
        names = self.mutation.function.split(".")
        return frozenset([self.file, f"{self.file}::{names[0]}", f"{self.file}::{'.'.join(names[:2])}"])


@dataclass(frozen=True)
class Outcome:
    """The verdict on one mutant.

    killed_by: the test that failed; empty for a survivor. gone: its place no longer exists in this tree.
    ran: the test files that ran, in order. seconds: wall seconds of all runs.
    """

    mutant: Mutant
    killed_by: str
    gone: bool
    ran: Sequence[str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As a row of the results file."""
        return {
            "file": self.mutant.file,
            **dataclasses.asdict(self.mutant.mutation),
            "killed_by": self.killed_by,
            "gone": self.gone,
            "ran": list(self.ran),
            "seconds": round(self.seconds, 1),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Outcome":
        """Read a row of a results file."""
        mutation = Mutation(**{field.name: row[field.name] for field in dataclasses.fields(Mutation)})
        mutant = Mutant(row["file"], mutation)
        return cls(mutant, row["killed_by"], row["gone"], tuple(row["ran"]), row["seconds"])


def choose_mutants(count: int, seed: int) -> list[Mutant]:
    """The same mutants for the same tree and seed: a room in turn, then one of its kinds, then a place."""
    chance = random.Random(seed)
    by_room: dict[str, dict[str, list[Mutant]]] = {}
    for room in ROOMS:
        kinds = by_room[room] = {}
        for path in sorted((ROOT / "vgpuctl" / room).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if _LEFT_OUT not in file:
                for mutation in mutations(path.read_text(encoding="utf-8")):
                    kinds.setdefault(mutation.kind, []).append(Mutant(file, mutation))
    chosen: list[Mutant] = []
    while len(chosen) < count:
        kinds = by_room[ROOMS[len(chosen) % len(ROOMS)]]
        one = chance.choice(kinds[chance.choice(sorted(kinds))])
        if one not in chosen:
            chosen.append(one)
    return chosen


class Tests:
    """Runs test files of this checkout in a process of their own."""

    def __init__(self) -> None:
        self._times_of_files = int(time.time())
        self._passing: dict[str, bool] = {}

    @contextmanager
    def with_text(self, path: Path, text: str) -> Iterator[None]:
        """The file has this text meanwhile, and a time of its own, else Python would take the bytecode of before.

        It is put back also when the proof is ended by SIGTERM.
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        before = path.read_bytes()
        try:
            self._write(path, text.encode())
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self._times_of_files += 1
        os.utime(path, (self._times_of_files, self._times_of_files))

    def first_failure(self, what: Sequence[str], limit_s: float) -> str | None:
        """The first of these tests that fails, empty when all pass; None when they did not end within the limit.

        A test that hangs ends by its own limit. Those that fail without a mutant are left out.
        """
        left_out = [f"--deselect={test}" for test, passes in self._passing.items() if not passes]
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:xdist", "-m", "not kernel_lab"),
            *("--timeout=250", "--tb=no", *left_out, *what),
        ]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            try:
                out, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode in (0, 5):
            return ""
        found = _FAILED.search(out)
        return found[1] if found else f"pytest ended with {process.returncode}: {out[-500:]}"

    def passes_without_mutant(self, test: str) -> bool:
        """True if the test passes on the tree as it is; asked once per test."""
        if test not in self._passing:
            self._passing[test] = self.first_failure([test], _SLOWEST_S) == ""
        return self._passing[test]


def _batches(ranked: Sequence[Ranked], ran: Sequence[str], budget_s: float) -> list[list[str]]:
    """The nearest files whose recorded seconds stay within the budget, without what ran: first a few, then the rest.

    Linters are left out: they do not run the code.
    """
    room, taken = budget_s, list[str]()
    for one in ranked:
        if one.file != LINTERS and one.seconds.others <= room:
            room -= one.seconds.others
            taken.append(one.file)
    left = [file for file in taken if file not in ran]
    return [batch for batch in (left[:_FIRST_FILES], left[_FIRST_FILES:]) if batch]


def _up_to(batch: Sequence[str], last: str) -> Sequence[str]:
    return batch[: batch.index(last) + 1] if last in batch else batch


def look_at(before: Outcome, tests: Tests, ranked: Sequence[Ranked], budget_s: float) -> Outcome:
    """Put one mutant in and run tests that did not run yet until one notices it; first what noticed it before."""
    started = time.monotonic() - before.seconds
    path = ROOT / before.mutant.file
    text = mutated(path.read_text(encoding="utf-8"), before.mutant.mutation) if path.exists() else None
    if text is None:
        return replace(before, killed_by="", gone=True)
    ran = list(before.ran)
    first = before.killed_by.partition("::")[0]
    again = [[before.killed_by]] if (ROOT / first).is_file() else []
    for batch in [*again, *_batches(ranked, ran, budget_s)]:
        while True:
            with tests.with_text(path, text):
                failed = tests.first_failure(batch, _SLOWEST_S + budget_s * _LOAD)
            if failed is None:
                break
            file = failed.partition("::")[0]
            if not failed or file == failed or tests.passes_without_mutant(failed):
                ran += batch[: batch.index(file) + 1] if file in batch else batch
                break
        if failed:
            return replace(before, killed_by=failed, ran=ran, seconds=time.monotonic() - started)
    return replace(before, killed_by="", ran=ran, seconds=time.monotonic() - started)


def read_outcomes(file: Path | None) -> list[Outcome]:
    """The rows of a results file; an empty list without the file."""
    if file is None or not file.exists():
        return []
    return [Outcome.from_json(row) for row in json.loads(file.read_text(encoding="utf-8"))]


def _share(outcomes: Sequence[Outcome]) -> float:
    """The share that tests noticed, of those whose place still exists."""
    there = [one for one in outcomes if not one.gone]
    return sum(bool(one.killed_by) for one in there) / len(there) if there else 0.0


def main() -> int:
    """Run it. Returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=80, help="how many mutants; default 80")
    arguments.add_argument("--seed", type=int, default=34, help="of the choice; default 34")
    arguments.add_argument("--results", type=Path, required=True, help="where each outcome is written at once")
    arguments.add_argument("--before", type=Path, help="the results of an earlier tree, whose mutants are taken")
    arguments.add_argument(
        "--budget", type=float, default=240, help="recorded seconds of tests per mutant; default 240"
    )
    given = arguments.parse_args()
    if given.before and not given.before.exists():
        arguments.error(f"there is no {given.before}")
    before = read_outcomes(given.before)
    mutants = [one.mutant for one in before] or choose_mutants(given.count, given.seed)
    done = {one.mutant: one for one in read_outcomes(given.results)}
    killers = {one.mutant: one.killed_by for one in before}
    tests = Tests()
    ranking = Ranking(Checkout.of(ROOT), recorded(ROOT))
    for number, mutant in enumerate(mutants, 1):
        known = done.get(mutant, Outcome(mutant, killers.get(mutant, ""), False, (), 0))
        ranked = ranking.of(mutant.places, mutant.mutation.before)
        if mutant in done and (known.gone or known.killed_by or not _batches(ranked, known.ran, given.budget)):
            continue
        one = done[mutant] = look_at(known, tests, ranked, given.budget)
        given.results.write_text(json.dumps([each.to_json() for each in done.values()], indent=1) + "\n")
        verdict = "gone" if one.gone else f"killed by {one.killed_by}" if one.killed_by else "SURVIVED"
        place = f"{mutant.file}:{mutant.mutation.line}"
        print(f"{number}/{len(mutants)} {place} {mutant.mutation.kind}: {verdict}, {one.seconds:.0f} s", flush=True)
    return _report([done[mutant] for mutant in mutants], before)


def _report(done: Sequence[Outcome], before: Sequence[Outcome]) -> int:
    for one in done:
        if not one.killed_by and not one.gone:
            mutation = one.mutant.mutation
            print(f"survivor: {one.mutant.file}:{mutation.line} {mutation.before!r} -> {mutation.after!r}")
    verdicts = Counter("gone" if one.gone else "killed" if one.killed_by else "survived" for one in done)
    print(json.dumps({**verdicts, "share": round(_share(done), 3), "share_before": round(_share(before), 3)}))
    return int(_share(done) < _share(before))


if __name__ == "__main__":
    sys.exit(main())
