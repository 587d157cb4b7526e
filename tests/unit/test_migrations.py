# SPDX-License-Identifier: Apache-2.0
"""The store's migrations are one chain: 0001, 0002, … in files of these numbers, and its end is the schema's version.

Two branches that each add the next number merge without a conflict in git; this tells it.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.unit.uses_of_names import PACKAGE
from vgpuctl.store.schema import SCHEMA_VERSION

VERSIONS = PACKAGE / "store" / "migrations" / "versions"
_FILE = re.compile(r"v(\d{4})_[a-z0-9_]+\.py")


@dataclass(frozen=True)
class Migration:
    """One file and what it says of itself."""

    file: str
    revision: str | None
    down_revision: str | None


def read_migrations(folder: Path) -> list[Migration]:
    """Every migration of a folder, by file, read without running it."""
    return [_read(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def _read(path: Path) -> Migration:
    values: dict[str, str | None] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            values.update(dict.fromkeys(names, value if isinstance(value, str) else None))
    return Migration(path.name, values.get("revision"), values.get("down_revision"))


def faults(migrations: Iterable[Migration], head: str) -> list[str]:
    """List the faults that keep the migrations from being one chain that ends at `head`."""
    found = []
    before = None
    for number, one in enumerate(migrations, 1):
        match = _FILE.fullmatch(one.file)
        if match is None:
            found.append(f"{one.file} is not named vNNNN_subject.py")
            continue
        if match[1] != f"{number:04}":
            found.append(f"{one.file} has another number than {number:04}: two files share one, or one is missing")
        if one.revision != match[1]:
            found.append(f"{one.file} is revision {one.revision}")
        if one.down_revision != before:
            found.append(f"{one.file} follows {one.down_revision}, not {before}")
        before = one.revision
    if before != head:
        found.append(f"the last revision is {before}, and SCHEMA_VERSION {head}")
    return found


def test_the_migrations_are_one_chain() -> None:
    assert faults(read_migrations(VERSIONS), SCHEMA_VERSION) == []


def _folder(tmp_path: Path, *files: tuple[str, str, str | None]) -> Path:
    for name, revision, below in files:
        (tmp_path / name).write_text(f"revision = {revision!r}\ndown_revision = {below!r}\n")
    return tmp_path


def test_equal_numbers_of_two_branches_are_told(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        ("v0001_first.py", "0001", None),
        ("v0002_mine.py", "0002", "0001"),
        ("v0002_yours.py", "0002", "0001"),
    )
    assert len(faults(read_migrations(folder), "0002")) == 2


def test_two_heads_a_gap_a_wrong_name_and_an_old_schema_version_are_told(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        ("v0001_first.py", "0001", None),
        ("v0002_mine.py", "0002", "0001"),
        ("v0003_yours.py", "0004", "0001"),
        ("other.py", "0005", "0004"),
    )
    said = "\n".join(faults(read_migrations(folder), "0003"))
    for part in ("other.py is not named", "is revision 0004", "follows 0001, not 0002", "SCHEMA_VERSION 0003"):
        assert part in said
