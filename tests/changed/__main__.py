# SPDX-License-Identifier: Apache-2.0
"""Run the tests that a change can break, nearest first, in about five minutes on two idle cores.

The change is what is not committed, or the last commit where all is committed; --base names another commit to compare
with. `--list` prints the choice and runs nothing. Other arguments go to pytest.

Run it with `make test-changed`, or `make test-changed BASE=main~3 MINUTES=10`.
"""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

from tests.changed.checkout import Checkout
from tests.changed.choice import Choice, Ranking, choose
from tests.changed.commits import Change, change_since, changed_lines, places
from tests.changed.seconds import recorded

ROOT = Path(__file__).parents[2]
_MOST_NAMED = 5


def _say(text: str) -> None:
    print(f"test-changed: {text}", flush=True)


def _explain(change: Change, choice: Choice, minutes: float) -> None:
    _say(f"files that differ from {change.base}: {len(change.files)}")
    _say(f"test files to run, nearest first: {len(choice.chosen)}, {choice.seconds / 60:.1f} minutes on two idle cores")
    if choice.left_out:
        _say(f"test files that do not fit into {minutes:g} minutes: {len(choice.left_out)}; to run them too:")
        _say(f"  make test-changed{f' BASE={change.base}' if change.is_given else ''} MINUTES=60")
        _say(f"  the nearest of them: {' '.join(one.file for one in choice.left_out[:_MOST_NAMED])}")
    if choice.need_host:
        nearest = " ".join(one.file for one in choice.need_host[:_MOST_NAMED])
        _say(f"test files with tests on an emulated host, left out: {len(choice.need_host)}; to run the nearest:")
        _say(f"  bash scripts/test -m kernel_lab {nearest}")
    if long := [one.file for one in choice.chosen if b"pytest.mark.long(" in (ROOT / one.file).read_bytes()]:
        _say(f"test files with long tests too, left out as in `make test`: {len(long)}; to run those of the nearest:")
        _say(f"  bash scripts/test --long {' '.join(long[:_MOST_NAMED])}")


def main() -> int:
    """Run it. Returns the exit code of pytest; 1 if no test that the change can break fits into the time."""
    arguments = argparse.ArgumentParser(prog="python -m tests.changed", description="Run the tests of a change.")
    arguments.add_argument("--base", default="", help="a commit to compare the working tree with")
    arguments.add_argument("--minutes", type=float, default=5, help="on two idle cores; default 5")
    arguments.add_argument(
        "--list", action="store_true", help="print the chosen files with their distance, run nothing"
    )
    given, for_pytest = arguments.parse_known_args()
    if not 0 < given.minutes < math.inf:
        arguments.error(f"argument --minutes: must be above 0, not {given.minutes:g}")
    change = change_since(ROOT, given.base)
    ranking = Ranking(Checkout.of(ROOT, change.gone), recorded(ROOT))
    lines = changed_lines(ROOT, change.base, change.files)
    ranked = ranking.of(places(ROOT, change.base, change.files), lines)
    choice = choose(ranked, change.files, given.minutes * 60)
    _explain(change, choice, given.minutes)
    if given.list:
        for one in choice.chosen:
            print(f"{one.distance:5.1f} {one.seconds.others:6.1f} s  {one.file}")
        return 0
    if not choice.chosen:
        return int(bool(choice.left_out))
    marker = [] if choice.on_emulated_host else ["-m", "not kernel_lab"]
    command = ["bash", "scripts/test", *marker, *for_pytest, *(one.file for one in choice.chosen)]
    os.chdir(ROOT)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
