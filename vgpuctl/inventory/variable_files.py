# SPDX-License-Identifier: Apache-2.0
"""`group_vars` and `host_vars` beside the inventory: which files count for a name, and what they say."""

import functools
from pathlib import Path

from vgpuctl.errors import InventoryError
from vgpuctl.inventory.folder_walk import FolderWalk
from vgpuctl.inventory.tree import VariableSet
from vgpuctl.specs.document import read_document
from vgpuctl.specs.origin import malformed
from vgpuctl.trusted_files import Trust

BESIDE = ("group_vars", "host_vars")
_EXTENSIONS = ("", ".yml", ".yaml", ".json")


class VariableFiles:
    """The variable files of one folder; every file is read once. users: by number, whose files are trusted."""

    def __init__(self, folder: Path, users: frozenset[int]) -> None:
        self._folder = folder.resolve()
        self._trust = Trust(takes_owner=False, users=users)
        self.warnings: list[str] = []
        self.group = functools.cache(functools.partial(self._read, "group_vars"))
        self.host = functools.cache(functools.partial(self._read, "host_vars"))

    def _read(self, kind: str, name: str) -> VariableSet:
        """Read what `kind` has for a name: NAME (file or folder), else NAME.yml, NAME.yaml or NAME.json.

        The files of a folder are laid over each other in name order. Raises InventoryError with file and line.
        """
        merged = VariableSet()
        folder = self._folder / kind
        if name.startswith("/") or not folder.is_dir():
            return merged
        for path in _find(folder, name):
            document = read_document(str(path), self._trust)
            self.warnings.extend(document.warnings)
            if not document.data:
                continue
            if not isinstance(document.data, dict):
                raise malformed(
                    document.origin(), f"the file is a {type(document.data).__name__}, not a mapping of variables"
                )
            for key, value in document.data.items():
                merged.assign(key, value, document.origin(key))
        return merged


def _find(folder: Path, name: str) -> list[Path]:
    for extension in _EXTENSIONS:
        path = folder / f"{name}{extension}"
        if path.is_dir():
            return _files_of(path, FolderWalk())
        if path.exists():
            return [path]
        if path.is_symlink():
            raise InventoryError(f"{path}: the link leads nowhere")
    return []


def _files_of(folder: Path, walk: FolderWalk) -> list[Path]:
    found: list[Path] = []
    with walk.enter(folder) as paths:
        for path in paths:
            if path.name.startswith(".") or path.name.endswith("~"):
                continue
            if path.is_dir() and not path.suffix:
                found.extend(_files_of(path, walk))
            elif path.is_file() and path.suffix in _EXTENSIONS:
                found.append(path)
    return found
