# SPDX-License-Identifier: Apache-2.0
"""The files of a checkout, and what a name or a text in one of them stands for."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from tests.changed.sources import Imported, Source

_CODE_ROOTS = ("", "lab/")
"""Folders from which modules are imported."""
_LIKE_A_FILE = re.compile(r"[\w./-]*[\w-]")
_MOST_FILES_OF_A_NAME = 8


@dataclass(frozen=True)
class Checkout:
    """The files of a checkout, by their paths below its root.

    gone: files that a change removed; who reads them is still asked for.
    """

    root: Path
    files: Set[str]
    gone: Set[str] = frozenset()
    by_name: Mapping[str, list[str]] = field(init=False, default_factory=lambda: defaultdict(list))
    folders: Mapping[str, list[str]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for file in sorted(self.files | self.gone):
            path = PurePosixPath(file)
            self.by_name[path.name].append(file)
            for parent in path.parents:
                self.folders[parent.as_posix()].append(file)

    @classmethod
    def of(cls, root: Path, gone: Set[str] = frozenset()) -> "Checkout":
        """The files that git tracks or could track."""
        names = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(names, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        return cls(root, frozenset(name for name in listed if name and (root / name).is_file()), gone)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Every Python file, parsed once."""
        return {
            file: Source.of((self.root / file).read_text(encoding="utf-8"), _package(file))
            for file in sorted(self.files)
            if file.endswith(".py")
        }

    def exists(self, file: str) -> bool:
        """True if the file is there, or was before the change."""
        return file in self.files or file in self.gone

    def module(self, name: str) -> str | None:
        """The file of a module or a package; None when it is not of this checkout."""
        path = name.replace(".", "/")
        files = [f"{root}{path}{end}" for root in _CODE_ROOTS for end in (".py", "/__init__.py")]
        return next((file for file in files if self.exists(file)), None)

    def place(self, one: Imported) -> str | None:
        """The part `file::name` that an import takes, also through a package that imports it; else the file."""
        inner = self.module(f"{one.module}.{one.name}") if one.name else None
        file = inner or self.module(one.module)
        if file is None or inner or not one.name:
            return file
        return self.part(file, one.name)

    def part(self, file: str, name: str) -> str:
        """The part of a file with this name, or of the file from which it imports the name; else the file."""
        source = self.sources.get(file)
        if source is None:
            return file
        if name in source.parts:
            return f"{file}::{name}"
        again = source.imports.get(name)
        found = self.place(again) if again and again != Imported(_module(file), name) else None
        return found or file

    def named(self, text: str, reader: str) -> list[str]:
        """The files that a string in `reader` names: by path from the root or from a folder above, or by a name.

        A folder stands for all files in it; one word is a folder only in a path such as "./docs".
        """
        is_path, text = text.startswith("./"), text.removeprefix("./").strip("/")
        if is_path and "*" in text:
            return self._matching(text, reader)
        if not text or len(text) > 200 or not _LIKE_A_FILE.fullmatch(text):
            return []
        for above in PurePosixPath(reader).parents:
            path = (above / text).as_posix()
            if self.exists(path):
                return [path]
            if path in self.folders and (is_path or "/" in text):
                return self.folders[path]
        name = text.rpartition("/")[2]
        found = [file for file in self.by_name.get(name, ()) if f"/{file}".endswith(f"/{text}")] if "." in name else []
        return found if len(found) <= _MOST_FILES_OF_A_NAME else []

    def _matching(self, pattern: str, reader: str) -> list[str]:
        """The files that a pattern of Path.glob means, from the nearest folder above that has any."""
        for above in PurePosixPath(reader).parents:
            whole = (above / pattern).as_posix()
            folder = PurePosixPath(f"{whole.partition('*')[0]}*").parent.as_posix()
            fits = re.compile(re.escape(whole).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*"))
            found = [file for file in self.folders.get(folder, ()) if fits.fullmatch(file)]
            if found:
                return found
        return []


def _package(file: str) -> str:
    return ".".join(PurePosixPath(file).parent.parts).removeprefix("lab.")


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("lab.")
