# SPDX-License-Identifier: Apache-2.0
"""Chooses the tests that run for a change: the nearest first, as many as the time allows."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tests.changed.checkout import Checkout
from tests.changed.seconds import Seconds, seconds_of
from tests.changed.ways import Way, is_test, shortest_ways, what_reads_what
from tests.changed.words import Similarity, words

WORKERS = 4
"""As many as scripts/test has."""
START_S = 25
"""What a run takes before its first test and after its last one."""
BOOT_S = 110
"""The boot of an emulated host."""
FARTHEST = 6.0
"""Tests that are farther from a changed page, test or data file do not notice it. Product code acts at any distance."""
_PRODUCT = ("vgpuctl/", "lab/", "templates/")
LINTERS = "tests/test_linters.py"
_DEAR_S = 5.0


@dataclass(frozen=True)
class Ranked:
    """One test file and what its turn depends on.

    distance: from the change. similarity: of their words, from 0 to 1. crowd: how many nearer tests reach the change
    through the same place of the product, such as the command that they run. is_own: the test has its name or its
    folder's name from the module through which it reaches the change.
    """

    file: str
    distance: float
    seconds: Seconds
    similarity: float = 0
    crowd: int = 0
    is_own: bool = False

    @property
    def order(self) -> tuple[bool, float, str]:
        """Changed test files first, then the nearest.

        Each doubling of what a file costs counts as half a step away, and each doubling of the crowd as one: after
        thirty tests that run `list-vms` comes one that reaches the change by another command. Words of the change
        bring a test nearer by up to one step, and the tests of the command that reaches the change are nearer by two.
        """
        away = math.log2(1 + self.seconds.others / _DEAR_S) / 2 + math.log2(1 + self.crowd)
        return self.distance > 0, self.distance + away - self.similarity - 2 * self.is_own, self.file


@dataclass(frozen=True)
class Choice:
    """The test files that run, those left out for want of time, and if tests on an emulated host run too.

    need_host: near files with tests on an emulated host, when those do not run. seconds: the estimate of the whole run
    on two idle cores.
    """

    chosen: Sequence[Ranked]
    left_out: Sequence[Ranked]
    on_emulated_host: bool
    need_host: Sequence[Ranked]
    seconds: float


class Ranking:
    """The order of a checkout's test files for one change after the other."""

    def __init__(self, checkout: Checkout, known: Mapping[str, Seconds]) -> None:
        self._tests = sorted(file for file in checkout.files if is_test(file))
        parts = {test: checkout.sources[test].parts for test in self._tests}
        self._seconds = seconds_of({test: _test_functions(parts[test]) for test in self._tests}, known)
        self._ways = what_reads_what(checkout)
        texts = {test: words((checkout.root / test).read_text(encoding="utf-8")) for test in self._tests}
        self._similarity = Similarity(texts)

    def of(self, places: Set[str], changed_text: str) -> list[Ranked]:
        """Every test file that can notice the change, nearest first.

        places: files, and parts of files. changed_text: the lines that went and came.
        """
        found = shortest_ways(self._ways, places)
        alike = self._similarity.to(words(changed_text))
        is_product = any(place.startswith(_PRODUCT) for place in places)
        is_python = any(place.endswith(".py") for place in places)
        nowhere = Way(math.inf, "")
        ranked = [
            Ranked(test, way.length, self._seconds[test], alike[test], is_own=_is_of(test, way.entry))
            for test in self._tests
            for way in [found.get(test, nowhere)]
            if (test in found and (is_product or way.length <= FARTHEST)) or (is_python and is_gate(test))
        ]
        crowds: Counter[str] = Counter()
        for place, one in enumerate(sorted(ranked, key=lambda one: one.order)):
            entry = found.get(one.file, nowhere).entry
            ranked[place] = replace(one, crowd=crowds[entry])
            crowds[entry] += bool(entry)
        return sorted(ranked, key=lambda one: one.order)


def _is_of(test: str, place: str) -> bool:
    """True if the test has its name from the place's module, or stands in a folder of the same name."""
    module, path = PurePosixPath(place.partition("::")[0]), PurePosixPath(test)
    return module.name == path.name.removeprefix("test_") or module.parent.name == path.parent.name


def _test_functions(parts: Iterable[str]) -> int:
    return sum(name.startswith("test_") for name in parts)


def is_gate(test: str) -> bool:
    """True for tests that read the whole tree: linters, and what stands directly in tests/unit."""
    return test == LINTERS or PurePosixPath(test).parent.as_posix() == "tests/unit"


def choose(ranked: Sequence[Ranked], changed: Set[str], budget_s: float) -> Choice:
    """Take the gates and then the nearest while their seconds, spread over the workers, stay within the budget.

    A file that is too long for what is left is passed over, and shorter ones behind it still run. Tests on an emulated
    host run only where the change is in a file of them.
    """
    with_host = [one for one in ranked if one.seconds.on_emulated_host]
    on_host = any(one.file in changed for one in with_host)
    chosen: list[Ranked] = []
    left_out: list[Ranked] = []
    room = (budget_s - START_S) * WORKERS - (BOOT_S if on_host else 0)
    for one in sorted(ranked, key=lambda one: not is_gate(one.file)):
        cost = one.seconds.others + (one.seconds.on_emulated_host if on_host else 0)
        if cost == 0 < one.seconds.on_emulated_host:
            continue  # all of its tests need an emulated host
        if cost <= min(room, budget_s - START_S):
            chosen.append(one)
            room -= cost
        else:
            left_out.append(one)
    need_host = [] if on_host else [one for one in with_host if one not in left_out]
    return Choice(chosen, left_out, on_host, need_host, budget_s - room / WORKERS)
