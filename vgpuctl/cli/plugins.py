# SPDX-License-Identifier: Apache-2.0
"""Commands that other installed packages add to `vgpuctl`, by the entry point group `vgpuctl.commands`.

An entry point's name is the command's, its value a `click.Command`. The package's summary is the command's line in
`vgpuctl --help`, so that help imports none of them. The files of the installed packages are read here and not by
importlib.metadata, whose import takes as long as the rest of `--help`.
Source: PyPA specifications "Entry points" and "Core metadata".
"""

import functools
import importlib
import os
import sys
from typing import Any, NamedTuple

GROUP = "vgpuctl.commands"

PACKAGES = {"lab": "vgpuctl-lab"}
"""The package that adds each known command, for the error when it is not installed."""


class Plugin(NamedTuple):
    """One added command. text: its line in `vgpuctl help`. target: `MODULE:ATTRIBUTE`. source: the file that has it."""

    text: str
    target: str
    source: str

    def load(self) -> Any:
        """Import the command. Raises FileNotTrusted for a package that others could have put there, or changed."""
        from importlib.util import find_spec

        from vgpuctl.trusted_files import FOUND, judge
        from vgpuctl.trusted_trees import judge_tree

        judge(self.source, FOUND)
        module, _, name = self.target.partition(":")
        code = find_spec(module.partition(".")[0])  # which imports nothing yet
        if code is not None:
            for place in code.submodule_search_locations or (code.cached, code.origin):
                if place is not None and os.path.exists(place):  # noqa: PTH110 - as in _content
                    judge_tree(place, FOUND)
        return getattr(importlib.import_module(module), name)


@functools.cache
def installed() -> dict[str, Plugin]:
    """Return the added commands by name. Of a package that stands twice on sys.path the first counts."""
    found: dict[str, Plugin] = {}
    for folder in sys.path:
        for package in _packages(folder):
            source = f"{package}/entry_points.txt"
            targets = _entry_points(source)
            text = f"{_summary(package)}." if targets else ""
            for name, target in targets.items():
                found.setdefault(name, Plugin(text, target, source))
    return dict(sorted(found.items()))


def _packages(folder: str) -> list[str]:
    try:
        with os.scandir(folder or ".") as entries:
            return [entry.path for entry in entries if entry.name.endswith(".dist-info")]
    except OSError:
        return []


def _entry_points(path: str) -> dict[str, str]:
    """Read the group's `name = module:attribute` lines."""
    content = _content(path)
    if f"[{GROUP}]".encode() not in content:  # as in nearly all packages: nothing is decoded
        return {}
    lines = content.decode().splitlines()
    targets: dict[str, str] = {}
    for line in lines[lines.index(f"[{GROUP}]") + 1 :]:
        if line.startswith("["):
            break
        name, is_given, target = line.partition("=")
        if is_given:
            targets[name.strip()] = target.strip()
    return targets


def _summary(package: str) -> str:
    lines = _content(f"{package}/METADATA").decode().splitlines()
    return next((line.removeprefix("Summary: ") for line in lines if line.startswith("Summary: ")), "")


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost an import of its own
            return file.read()
    except OSError:
        return b""
