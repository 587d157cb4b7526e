# SPDX-License-Identifier: Apache-2.0
"""Finds in the code, without running it, which files and parts of files read which others, and how near they are.

A part reads what it names, the methods that it calls where few classes have one of that name, the files and folders
that it names in strings, and in tests the fixtures, the commands and the operations of the agent. A test file also
reads the module that it has its name from, and is near to what uses the same values of the product as it does.
"""

import heapq
import math
import re
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.changed.checkout import Checkout
from tests.changed.sources import REST, Part, Source
from vgpuctl.cli.contents import FOLDERS, MADE_BY

LONGEST_SPREAD = 4.0
"""What is added to a way at most because its reader reads many: a sweep over all files looks at each one by itself."""
_OPERATION = re.compile(r"([a-z-]+)\.[a-z-]+")
"""Such as `vf-profile.set`."""
_MOST_DEFINERS = 3
_MOST_USERS = 64
_BUILT_IN = (bytes, dict, list, set, str, re.Match, subprocess.Popen, Path, threading.Thread)
_NAMES_OF_PYTHON = frozenset(name for kind in _BUILT_IN for name in dir(kind))

Ways = dict[str, dict[str, float]]
"""Each reader → what it reads → the length of the way between them. Both are files or parts, `file::name`."""


def is_test(file: str) -> bool:
    """True for a file that pytest collects."""
    return file.startswith("tests/") and PurePosixPath(file).name.startswith("test_") and file.endswith(".py")


def what_reads_what(checkout: Checkout) -> Ways:
    """All ways of a checkout.

    A way is the longer the more the reader reads by the same means, as in a random walk: a function that calls one
    other is nearer to it than one that calls thirty, and a test of a whole folder is far from each file in it.
    """
    ways = _Ways(checkout)
    for file, source in checkout.sources.items():
        ways.add_file(file, source)
    ways.add_shared_values()
    ways.add_data()
    return ways.found


class _Ways:
    def __init__(self, checkout: Checkout) -> None:
        self.found: Ways = defaultdict(dict)
        self._checkout = checkout
        self._definers = _definers(checkout)
        self._operations = _operations(checkout)

    def _add(self, reader: str, read: Iterable[str], steps: float = 1) -> None:
        others = {one for one in read if one != reader}
        length = steps + min(math.log2(max(len(others), 1)) / 2, LONGEST_SPREAD)
        mine = self.found[reader]
        for one in others:
            mine[one] = min(mine.get(one, math.inf), length)

    def add_file(self, file: str, source: Source) -> None:
        """Add what a file and each of its parts reads."""
        methods: dict[str, list[str]] = defaultdict(list)
        for name, part in source.parts.items():
            place = f"{file}::{name}"
            self.found[file][place] = 0
            if name != REST and REST in source.parts:
                self.found[place][f"{file}::{REST}"] = 0.5
            owner, _, method = name.partition(".")
            if method:
                methods[owner].append(place)
                self.found[place][f"{file}::{owner}"] = 0.5
            self._add_part(file, source, place, part, owner if method else "")
        for owner, places in methods.items():
            self._add(f"{file}::{owner}", places, 0.5)
        below = file.replace("vgpuctl/cli/", "vgpuctl/usecases/", 1)
        if below != file and below in self._checkout.files:
            self._add(file, [below], 0.5)
        if is_test(file):
            self._add(file, _namesakes(self._checkout, file), 0.5)

    def _add_part(self, file: str, source: Source, place: str, part: Part, owner: str) -> None:
        checkout = self._checkout
        names = part.names | part.texts  # a type in quotes is a text
        read = {f"{file}::{name}" for name in names if name in source.parts}
        read |= {found for name in names if name in source.imports and (found := checkout.place(source.imports[name]))}
        for before, after in part.attributes:
            if before == "self" and f"{owner}.{after}" in source.parts:
                read.add(f"{file}::{owner}.{after}")
            elif before in source.imports and (module := checkout.place(source.imports[before])) and "::" not in module:
                read.add(checkout.part(module, after))
        self._add(place, read)
        self._add(place, (one for name in part.called & self._definers.keys() for one in self._definers[name]))
        for pattern in part.patterns:
            path = pattern.replace(".", "/") + ".py"
            self._add(place, (one for one in checkout.files if PurePosixPath(one).match(path)))
        for text in part.texts:
            self._add(place, checkout.named(text, file))
            if "." in text and text.replace(".", "").replace("_", "").isalnum() and (module := checkout.module(text)):
                self._add(place, [module])
        if file.startswith("tests/"):
            self._add(place, (one for text in part.texts for one in _commands(checkout, text)))
            named = (_OPERATION.fullmatch(text) for text in part.texts)
            self._add(place, {self._operations[one[1]] for one in named if one and one[1] in self._operations})
            self._add(place, _fixtures(checkout, file, part.parameters))

    def add_shared_values(self) -> None:
        """A test that builds values of the product is near to the product's parts that use the same few values."""
        users: dict[str, set[str]] = defaultdict(set)
        for reader, read in self.found.items():
            if reader.startswith("vgpuctl/") and "::" in reader:
                for one in read:
                    if "::" in one:
                        users[one].add(reader)
        for reader in [one for one in self.found if one.startswith("tests/") and "::" in one]:
            for one in [one for one in self.found[reader] if one.startswith("vgpuctl/")]:
                if 0 < len(users[one]) <= _MOST_USERS:
                    self._add(reader, users[one], 2)

    def add_data(self) -> None:
        """Files that nobody names are read by the modules of their folder, or of the nearest one above that has any."""
        checkout = self._checkout
        read = {one for mine in self.found.values() for one in mine}
        for file in sorted((checkout.files | checkout.gone) - read - set(checkout.sources)):
            for above in PurePosixPath(file).parents[:-1]:
                readers = [one for one in checkout.folders[above.as_posix()] if one in checkout.sources]
                readers = [one for one in readers if PurePosixPath(one).parent == above] or readers
                if readers:
                    for reader in readers:
                        self.found[reader].setdefault(file, 1 + math.log2(len(readers)))
                    break


def _definers(checkout: Checkout) -> dict[str, list[str]]:
    """The functions and methods of a name, for the names that only few have."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, source in checkout.sources.items():
        if not file.startswith("tests/"):
            for name in source.parts:
                found[name.rpartition(".")[2]].append(f"{file}::{name}")
    return {
        name: places for name, places in found.items() if len(places) <= _MOST_DEFINERS and name not in _NAMES_OF_PYTHON
    }


def _operations(checkout: Checkout) -> dict[str, str]:
    """The first word of an operation such as `vf-profile.set` → the agent's module that import_module finds by it."""
    parts = (part for source in checkout.sources.values() for part in source.parts.values())
    patterns = {one.replace(".", "/") + ".py" for part in parts for one in part.patterns}
    return {
        PurePosixPath(file).stem.replace("_", "-"): file
        for pattern in patterns
        for file in sorted(checkout.files)
        if pattern.startswith("vgpuctl/agent/") and PurePosixPath(file).match(pattern)
    }


def _commands(checkout: Checkout, text: str) -> Iterator[str]:
    """The files of the commands that a string names: alone, first in a line, or after `vgpuctl`."""
    words = text.split()
    for at, word in enumerate(words):
        if word in FOLDERS and (at == 0 or words[at - 1].endswith("vgpuctl")):
            stem = MADE_BY.get(word, word.replace("-", "_"))
            found = checkout.module(f"vgpuctl.cli.{FOLDERS[word]}.{stem}")
            if found:
                yield found


def _fixtures(checkout: Checkout, file: str, parameters: Set[str]) -> Iterator[str]:
    """The fixtures that a test's parameters name: of its own file, or of a conftest.py above."""
    places = [file, *(f"{parent}/conftest.py" for parent in PurePosixPath(file).parents)]
    for name in parameters:
        for place in places:
            source = checkout.sources.get(place)
            if source and (name in source.parts or name in source.imports):
                yield checkout.part(place, name)
                break


def _namesakes(checkout: Checkout, test: str) -> set[str]:
    """The modules that a test has its name from: test_create_vm.py or test_create_vm_again.py of create_vm.py."""
    words = PurePosixPath(test).stem.removeprefix("test_").split("_")
    folder = PurePosixPath(test).parent.name
    for count in range(len(words), 0, -1):
        named = checkout.by_name.get("_".join(words[:count]) + ".py", ())
        found = {one for one in named if not one.startswith("tests/")}
        same = {one for one in found if PurePosixPath(one).parent.name == folder}
        if same or (len(found) in (1, 2) and count > 1):
            return same or found
    return set()


@dataclass(frozen=True)
class Way:
    """The shortest way from one reader to a change. entry: the first place on it outside tests/, empty for none."""

    length: float
    entry: str


def shortest_ways(ways: Mapping[str, Mapping[str, float]], changed: Iterable[str]) -> dict[str, Way]:
    """The shortest way (Dijkstra's) from each reader to any changed place, where there is one."""
    readers: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for reader, read in ways.items():
        for place, length in read.items():
            readers[place].append((reader, length))
    found: dict[str, Way] = {}
    waiting = [(0.0, place, "") for place in sorted(changed)]
    while waiting:
        length, place, entry = heapq.heappop(waiting)
        if place in found:
            continue
        found[place] = Way(length, entry)
        here = entry if place.startswith("tests/") else place
        for reader, more in readers[place]:
            if reader not in found:
                heapq.heappush(waiting, (length + more, reader, here))
    return found
