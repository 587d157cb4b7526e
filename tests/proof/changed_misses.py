# SPDX-License-Identifier: Apache-2.0
"""How often `make test-changed` would have left out a test that a past commit made fail.

Each commit is green, so its product files (vgpuctl, lab, templates) are put back to its parent's: the tests that fail
then are those that the change affects. The test files run that the commit touched, the end-to-end tests that carry the
name of a module that it touched, and all below --folders. Tests that fail in the commit itself do not count,
and neither does a commit after which the tests cannot even begin with the product of before.

The choice is asked twice: for all that the commit touched, and for its product files alone, as for somebody who has not
yet looked for tests. A miss is a failing test file that was not chosen, either because no way leads to it or because
the time was over. --mutants asks the same of the mistakes that tests/proof/mutants.py made and some test noticed.

It runs in a clone of its own with its own .venv, which it checks out again and again:

    git clone . ../past && (cd ../past && bash scripts/setup test)
    .venv/bin/python -m tests.proof.changed_misses --clone ../past --results misses.json --commits 50

A second run goes on where the first ended; what failed is kept, and the choice is asked again. The last line of stdout
is JSON. The exit code is 1 when there was a miss.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from tests.changed.checkout import Checkout
from tests.changed.choice import Ranking, choose
from tests.changed.commits import changed_lines, places
from tests.changed.seconds import recorded
from tests.changed.ways import is_test
from tests.proof.mutants import Outcome, read_outcomes

ROOT = Path(__file__).parents[2]
PRODUCT = ("vgpuctl/", "lab/", "templates/")
_CANNOT_BEGIN = 4
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s:]+)", re.MULTILINE)


@dataclass(frozen=True)
class Looked:
    """One commit: what ran with the product of before, and which test files failed."""

    commit: str
    subject: str
    ran: Sequence[str]
    failed: Sequence[str]


class Past:
    """A clone that is checked out at one commit after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, *arguments: str) -> str:
        """Run git in the clone."""
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def touched(self, commit: str) -> frozenset[str]:
        """The files that a commit touched, the new and removed ones too."""
        return frozenset(self.git("diff", "--name-only", "--no-renames", f"{commit}~1", commit).split())

    def go_to(self, commit: str) -> None:
        """Check the commit out; nothing of before is left."""
        self.git("checkout", "--quiet", "--force", commit)

    def put_back(self, commit: str, files: Set[str]) -> None:
        """Give these files the text of before the commit; those that it made are gone."""
        there = set(self.git("ls-tree", "-r", "--name-only", f"{commit}~1").split("\n"))
        for file in files:
            if file in there:
                self.git("checkout", "--quiet", f"{commit}~1", "--", file)
            else:
                (self.folder / file).unlink(missing_ok=True)

    def failing(self, what: Sequence[str], workers: int) -> set[str] | None:
        """The test files of `what` that fail, without those that an emulated host runs; None if pytest cannot begin."""
        command = [str(self.folder / ".venv/bin/python"), "-m", "pytest", "-q", "--tb=no", "-m", "not kernel_lab"]
        spread = ["-n", str(workers), "--dist", "loadgroup"] if workers > 1 else ["-p", "no:xdist"]
        done = subprocess.run([*command, *spread, *what], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode == _CANNOT_BEGIN:
            return None
        assert done.returncode in (0, 1, 2, 5), done.stdout[-2000:] + done.stderr[-2000:]
        return set(_FAILED.findall(done.stdout))


def _tests_of_names(checkout: Checkout, touched: Set[str]) -> set[str]:
    """The end-to-end tests that have the name of a touched module."""
    stems = {PurePosixPath(file).stem for file in touched if file.startswith("vgpuctl/") and file.endswith(".py")}
    return {
        test
        for test in filter(is_test, checkout.files)
        if test.startswith("tests/e2e/") and PurePosixPath(test).stem.removeprefix("test_") in stems
    }


def look_at(past: Past, commit: str, folders: Sequence[str], workers: int) -> Looked:
    """Run the tests of one commit with the product of before."""
    subject = past.git("log", "-1", "--format=%s", commit).strip()
    past.go_to(commit)
    touched = past.touched(commit)
    product = frozenset(file for file in touched if file.startswith(PRODUCT))
    checkout = Checkout.of(past.folder)
    names = {*filter(is_test, touched & checkout.files), *_tests_of_names(checkout, product)}
    ran = [*folders, *sorted(name for name in names if not any(name.startswith(f"{folder}/") for folder in folders))]
    if not product or not ran:
        return Looked(commit, subject, (), ())
    past.put_back(commit, product)
    failed = past.failing(ran, workers)
    past.go_to(commit)
    if failed is None:
        return Looked(commit, subject, (), ())
    if failed:
        failed -= past.failing(sorted(failed), 1) or set()
    return Looked(commit, subject, ran, sorted(failed))


def missed_of_commit(past: Past, looked: Looked, budget_s: float) -> dict[str, list[str]]:
    """The failed files that are not chosen, when asked for the whole commit and for its product files alone."""
    past.go_to(looked.commit)
    touched = past.touched(looked.commit)
    gone = frozenset(file for file in touched if not (past.folder / file).exists())
    ranking = Ranking(Checkout.of(past.folder, gone), recorded(ROOT))
    base = f"{looked.commit}~1"
    missed: dict[str, list[str]] = {}
    for asked, files in (
        ("commit", touched),
        ("product", frozenset(one for one in touched if one.startswith(PRODUCT))),
    ):
        ranked = ranking.of(places(past.folder, base, files), changed_lines(past.folder, base, files))
        chosen = {one.file for one in choose(ranked, files, budget_s).chosen}
        missed[asked] = sorted(set(looked.failed) - chosen)
    return missed


def missed_of_mutants(outcomes: Sequence[Outcome], budget_s: float) -> list[str]:
    """The mistakes of this checkout whose test was not chosen, each with that test."""
    ranking = Ranking(Checkout.of(ROOT), recorded(ROOT))
    missed: list[str] = []
    for one in outcomes:
        file = one.killed_by.partition("::")[0]
        if (ROOT / file).is_file():
            ranked = ranking.of(one.mutant.places, one.mutant.mutation.before)
            if file not in {each.file for each in choose(ranked, frozenset([one.mutant.file]), budget_s).chosen}:
                missed.append(f"{one.mutant.file}:{one.mutant.mutation.line}: {file}")
    return missed


def main() -> int:
    """Run it. Returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--clone", type=Path, required=True, help="a clone with its own .venv, which is changed")
    arguments.add_argument("--results", type=Path, required=True, help="where each commit is written at once")
    arguments.add_argument("--mutants", type=Path, help="a results file of tests.proof.mutants")
    arguments.add_argument("--commits", type=int, default=50, help="the last ones of the clone's main; default 50")
    arguments.add_argument(
        "--folders", nargs="*", default=["tests/unit", "tests/agent"], help="run for each commit; default %(default)s"
    )
    arguments.add_argument("--workers", type=int, default=2, help="of pytest; default 2")
    arguments.add_argument("--minutes", type=float, default=5, help="of the choice; default 5")
    given = arguments.parse_args()
    if given.clone.resolve() == ROOT or not (given.clone / ".venv/bin/python").exists():
        arguments.error(f"{given.clone} is no clone beside this one with its own .venv")
    past = Past(given.clone.resolve())
    rows = json.loads(given.results.read_text(encoding="utf-8")) if given.results.exists() else []
    done = {row["commit"]: Looked(**row) for row in rows}
    for commit in past.git("rev-list", "--no-merges", f"--max-count={given.commits}", "main").split():
        if commit in done:
            continue
        looked = done[commit] = look_at(past, commit, given.folders, given.workers)
        rows = [asdict(one) for one in done.values()]
        given.results.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"{commit[:8]} {looked.subject[:70]}: {len(looked.failed)} test files failed", flush=True)
    misses = Counter[str]()
    with_failures = [one for one in done.values() if one.failed]
    for one in with_failures:
        for asked, files in missed_of_commit(past, one, given.minutes * 60).items():
            misses[asked] += len(files)
            for file in files:
                print(f"missed: {one.commit[:8]} asked for its {asked}: {file}", flush=True)
    if given.mutants is not None:
        for line in missed_of_mutants(read_outcomes(given.mutants), given.minutes * 60):
            misses["mutants"] += 1
            print(f"missed: {line}")
    failed = sum(len(one.failed) for one in with_failures)
    ran = sum(bool(one.ran) for one in done.values())
    counts = {"commits": len(done), "ran": ran, "with_failures": len(with_failures), "failed_files": failed}
    print(json.dumps({**counts, "missed_files": misses}))
    return int(misses.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
