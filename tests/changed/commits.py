# SPDX-License-Identifier: Apache-2.0
"""The files of the checkout that a change touches, as git sees it."""

import subprocess
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from tests.changed.sources import differing_parts


@dataclass(frozen=True)
class Change:
    """The files that differ from a commit, by their paths below the root; the new ones and `gone` ones too.

    is_given: somebody named the commit.
    """

    base: str
    is_given: bool
    files: Set[str]
    gone: Set[str]


def require_commit(root: Path, name: str) -> None:
    """End the program with an error if git has no commit of this name in the checkout."""
    words = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    if subprocess.run(words, cwd=root, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(f"git has no commit {name!r} in {root}: fetch it, or give another one with --base")


def _lines(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments, "-z"], cwd=root, capture_output=True, check=True)
    return [one for one in done.stdout.decode().split("\0") if one]


def _differing(root: Path, base: str) -> Change:
    """A rename is a file that is gone and one that is new."""
    require_commit(root, base)
    changed = _lines(root, "diff", "--name-only", "--no-renames", base)
    new = _lines(root, "ls-files", "--others", "--exclude-standard")
    files = frozenset([*changed, *new])
    return Change(base, False, files, frozenset(one for one in files if not (root / one).exists()))


def places(root: Path, base: str, files: Set[str]) -> frozenset[str]:
    """The changed files, and of Python files the parts `file::name` whose code differs from the commit `base`."""
    found = set(files)
    for file in files:
        if file.endswith(".py"):
            shown = subprocess.run(["git", "show", f"{base}:{file}"], cwd=root, capture_output=True, check=False)
            path = root / file
            now = path.read_text(encoding="utf-8") if path.exists() else ""
            found |= {f"{file}::{name}" for name in differing_parts(shown.stdout.decode(), now)}
    return frozenset(found)


def changed_lines(root: Path, base: str, files: Set[str]) -> str:
    """The lines that went and came in these files since the commit `base`."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", base, "--", *sorted(files)]
    shown = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode(errors="replace")
    lines = shown.splitlines() if files else []
    return "\n".join(line[1:] for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def change_since(root: Path, base: str) -> Change:
    """The working tree against `base`; where that is empty, what is not committed, or else the last commit."""
    if base:
        given = _differing(root, base)
        return Change(base, True, given.files, given.gone)
    uncommitted = _differing(root, "HEAD")
    return uncommitted if uncommitted.files else _differing(root, "HEAD~1")
