# SPDX-License-Identifier: Apache-2.0
"""Readers of an inventory source: a file, a folder of files, or a comma list of hosts."""

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory import host_names
from vgpuctl.inventory.folder_walk import FolderWalk
from vgpuctl.inventory.ini_source import add_ini
from vgpuctl.inventory.tree import InventoryTree
from vgpuctl.inventory.yaml_source import READ_BY_ANSIBLE, add_yaml
from vgpuctl.specs.document import YamlDocument, decode, parse_document
from vgpuctl.specs.origin import Origin, malformed, read_bytes
from vgpuctl.trusted_files import NAMED, Trust, judge
from vgpuctl.user_folders import expanded, working_folder

IGNORED_FOLDERS = ("group_vars", "host_vars", "vars_plugins")
IGNORED_ENDINGS = (
    *(".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst"),
    *(".orig", ".cfg", ".retry"),
)
_SHOWN = 300
_YAML_EXTENSIONS = ("", ".yaml", ".yml", ".json")
_YAML_KEY = re.compile(r"\s*[\w\"'.\[\]-]+\s*:(?:\s|$)")


def resolve(source: str | Path) -> str:
    """Make a source's path absolute, with `~` and `$VARIABLES` filled in; a comma list stays as it is."""
    text = str(source)
    if "," in text:
        return text
    path = Path(os.path.expandvars(text))
    with contextlib.suppress(UsageError):  # no such user: then the name is meant as it is
        path = expanded(path)
    return os.path.normpath(path if path.is_absolute() else working_folder() / path)


def folder_of_sources(resolved: Sequence[str]) -> Path | None:
    """The working folder, if one of these sources lies in it or below it; else nobody has named anything of it."""
    try:
        folder = working_folder().resolve()
    except UsageError:  # it was deleted, and has nothing
        return None
    files = (Path(os.path.realpath(one)) for one in resolved if not is_comma_list(one))
    return folder if any(one.is_relative_to(folder) for one in files) else None


def folder_of(resolved: Sequence[str]) -> Path:
    """The folder of the first source that is a file or a folder; the root without one."""
    first = next((Path(one) for one in resolved if not is_comma_list(one)), Path("/"))
    return first if first.is_dir() else first.parent


def left_out(working: Path | None, names: Sequence[str], resolved: Sequence[str]) -> list[str]:
    """A warning about these files and folders of the working folder if they are there and no source is."""
    if working is not None:
        return []
    try:
        folder = working_folder()
    except UsageError:  # it was deleted, and has nothing
        return []
    found = [name for name in names if (folder / name).exists()]
    if not found:
        return []
    what = f"{' and '.join(found)} of {folder} are not used: no file of the inventory lies there"
    beside = folder_of(resolved)
    return [what if beside == Path("/") else f"{what}; move or link them to {beside}, if they are yours"]


def is_comma_list(source: str) -> bool:
    """True if a source is a list of hosts rather than a path."""
    if "," not in source:
        return False
    try:
        return not Path(source).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return True


def add_source(source: str, tree: InventoryTree) -> frozenset[int]:
    """Read one resolved source into the tree. Returns the uids whose files in its folder are trusted.

    Raises FileNotTrusted, and InventoryError with file, line and what is wrong.
    """
    if is_comma_list(source):
        _add_comma_list(source, tree)
        return frozenset()
    path = Path(source)
    missing = _why_missing(path)
    if missing is not None:
        raise InventoryError(
            f"inventory {_shortened(source)}: {missing}",
            hint="give a file, a folder, or a comma list such as `-i gpu1,`; several with -i each, or in"
            " VGPUCTL_INVENTORY with spaces between them",
        )
    trust = Trust(takes_owner=False, users=judge(path, NAMED))
    if path.is_dir():
        if not _add_folder(path, tree, trust, FolderWalk("inventory ")):
            raise InventoryError(
                f"inventory {source}: the folder holds no inventory file",
                hint=f"put hosts.yml or hosts.ini there; {', '.join(IGNORED_FOLDERS)}, hidden files and "
                f"names that end in {', '.join(IGNORED_ENDINGS)} do not count",
            )
    elif not _add_file(source, tree, trust):
        raise InventoryError(f"inventory {source}: the file is empty")
    return trust.users


def _why_missing(path: Path) -> str | None:
    try:
        path.stat()
    except OSError as exc:
        return exc.strerror or str(exc)
    except ValueError as exc:
        return str(exc)
    return None


def _shortened(source: str) -> str:
    return source if len(source) <= _SHOWN else f"{source[:_SHOWN]}…"


def _add_folder(folder: Path, tree: InventoryTree, trust: Trust, walk: FolderWalk) -> bool:
    found = False
    with walk.enter(folder) as paths:
        for path in paths:
            if path.name.startswith(".") or path.name in IGNORED_FOLDERS or path.name.endswith(IGNORED_ENDINGS):
                continue
            if path.is_dir():
                found = _add_folder(path, tree, trust, walk) or found
            else:
                _add_file(str(path), tree, trust)
                found = True
    return found


def _add_file(path: str, tree: InventoryTree, trust: Trust) -> bool:
    """Read a file in the format it has. False when it says nothing at all."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as exc:
        raise InventoryError(f"inventory {path}: cannot be read: {exc.strerror}") from exc
    if not stat.S_ISREG(mode):
        raise InventoryError(f"inventory {path}: not a regular file")
    content = read_bytes(path, trust)
    if content.startswith(b"#!") and os.access(path, os.X_OK):
        raise _needs_ansible(path, "this is an inventory script, which vgpuctl does not run")
    extension = Path(path).suffix
    if extension == ".toml":
        raise _needs_ansible(path, "TOML is not read")
    try:
        if extension in _YAML_EXTENSIONS:
            document = _try_yaml(path, content, prefers_yaml=extension != "")
            if document is not None:
                add_yaml(document, tree)
                return True
        add_ini(path, content, tree)
    except RecursionError as exc:
        raise InventoryError(f"inventory {path}: groups nested without end") from exc
    return any(line.strip()[:1] not in (b"", b"#", b";") for line in content.splitlines())


def _try_yaml(path: str, content: bytes, *, prefers_yaml: bool) -> YamlDocument | None:
    """Read as YAML, or return None for content that is an INI file under this name (plain host names, sections)."""
    is_ini = _looks_like_ini(content, prefers_yaml=prefers_yaml)
    try:
        document = parse_document(path, decode(path, content))
    except InventoryError:
        if is_ini:
            return None
        raise
    if isinstance(document.data, dict) and document.data:
        return document
    if is_ini:
        return None
    what = "empty" if not document.data else f"a {type(document.data).__name__}, not a mapping of groups"
    raise malformed(document.origin(), f"the file is {what}", hint="write for example:  all: {hosts: {gpu1: }}")


def _looks_like_ini(content: bytes, *, prefers_yaml: bool) -> bool:
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith(("#", ";"))]
    if any(re.match(r"\[[^\]\s]+\]", line) and not line.endswith(",") for line in telling[:1]):
        return True
    if any(line == "---" or _YAML_KEY.match(line) or line.startswith(("- ", "{")) for line in telling):
        return False
    return not prefers_yaml or all(re.match(r"[\w.\[\]:-]+(\s|$)|\[", line) for line in telling)


def _needs_ansible(path: str, what: str) -> InventoryError:
    return InventoryError(f"inventory {path}: {what}", hint=READ_BY_ANSIBLE)


def _add_comma_list(source: str, tree: InventoryTree) -> None:
    origin = Origin(f"-i {_shortened(source)}")
    names = [name for name in (part.strip() for part in source.split(",")) if name]
    if not names:
        raise malformed(origin, "the list names no host")
    for name in names:
        if "[" in name and not name.startswith("["):
            raise malformed(origin, f"{name!r}: a comma list takes no ranges", hint="write a file, or every host")
        address, port = host_names.split_port(name, origin)
        if address not in tree.hosts:
            tree.add_host(address, "ungrouped", port, origin)
