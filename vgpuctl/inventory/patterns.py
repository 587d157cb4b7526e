# SPDX-License-Identifier: Apache-2.0
"""Host patterns of `--limit`: `gpu_hosts:!gpu3:&rack1`, globs, `~regex`, `group[0:2]`, `gpu[1:3]`, `@file`."""

import difflib
import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import host_names
from vgpuctl.inventory.tree import InventoryTree, TreeHost
from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded
from vgpuctl.specs.origin import Origin
from vgpuctl.trusted_files import NAMED

_SUBSCRIPT = re.compile(r"(?P<pattern>.+)\[(?:(?P<index>-?[0-9]{1,9})|(?P<start>[0-9]{1,9})[:-](?P<end>[0-9]{0,9}))\]")
_RANGE = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
"""Brackets with a colon: a glob would take it for one of several characters."""
_WRITTEN = Origin("the limit")
_LONGEST = 4096
_PART = re.compile(r"(?:[^\s:\[\]]|\[[^\]]*\])+")


def select(tree: InventoryTree, limit: str, *, option: str = "--limit") -> list[TreeHost]:
    """Hosts that fit a limit, in the inventory's order. option: where it was written, for errors.

    Names and groups are joined, then `&` intersects and `!` excludes; a limit of `&` and `!` alone starts from all
    hosts. Raises InventoryError for a pattern that fits nothing of the inventory.
    """
    try:
        return _select(tree, limit)
    except InventoryError as exc:
        raise InventoryError(f"{option} {exc.message}", hint=exc.hint) from exc


def _select(tree: InventoryTree, limit: str) -> list[TreeHost]:
    if len(limit) > _LONGEST:  # the expressions look at every bracket again and again
        raise InventoryError(f"has {len(limit)} characters", hint=f"at most {_LONGEST}; use @FILE")
    patterns = _read_limit(limit)
    if not patterns:
        raise InventoryError("is empty", hint="name hosts or groups; `all` means all hosts")
    joined = [pattern for pattern in patterns if pattern[0] not in "&!"] or ["all"]
    chosen = {host.name for pattern in joined for host in _match(tree, pattern)}
    for pattern in patterns:
        if pattern[0] == "&":
            chosen &= {host.name for host in _match(tree, pattern[1:])}
    for pattern in patterns:
        if pattern[0] == "!":
            chosen -= {host.name for host in _match(tree, pattern[1:])}
    return [host for host in tree.groups["all"].all_hosts() if host.name in chosen]


def split(text: str) -> list[str]:
    """Split a limit at commas, or at colons where they are not inside brackets or an address."""
    if "," in text:
        parts = text.split(",")
    elif host_names.looks_like_pattern_with_range(text):
        parts = [text]
    else:
        parts = _PART.findall(text) or [text]
    return [part.strip() for part in parts if part.strip()]


def _read_limit(limit: str) -> list[str]:
    patterns: list[str] = []
    for part in split(limit):
        if part.startswith("@"):
            patterns.extend(_read_file(part[1:]))
        else:
            patterns.append(part)
    return patterns


def _read_file(path: str) -> list[str]:
    try:
        lines = decode(read_bounded(Path(path), NAMED)).splitlines()
    except Malformed as exc:
        raise InventoryError(f"@{path}: {exc}", hint=exc.hint) from exc
    patterns = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not patterns:
        raise InventoryError(f"@{path}: the file names no host")
    return patterns


def _match(tree: InventoryTree, pattern: str) -> Sequence[TreeHost]:
    if pattern in tree.hosts:
        return [tree.hosts[pattern]]
    expression, subscript = pattern, None
    if not pattern.startswith("~"):
        subscript = _SUBSCRIPT.fullmatch(pattern)
        if subscript and not _fits(tree, subscript["pattern"]):
            subscript = None  # a set of characters, as in gpu-0[12], or a range of the inventory
        if subscript is None and _RANGE.search(pattern):
            return _in_range(tree, pattern)
        expression = subscript["pattern"] if subscript else pattern
    hosts = _enumerate(tree, expression, pattern)
    if subscript is None or not hosts:
        return hosts
    if subscript["index"] is None:
        end = int(subscript["end"]) + 1 if subscript["end"] else len(hosts)
        return hosts[int(subscript["start"]) : end]
    try:
        return [hosts[int(subscript["index"])]]
    except IndexError as exc:
        raise InventoryError(f"{pattern}: {expression} has {len(hosts)} hosts, counted from 0") from exc


def _fits(tree: InventoryTree, expression: str) -> bool:
    """True if a host or group has a name that fits a glob."""
    expected = re.compile(fnmatch.translate(expression))
    return any(expected.match(name) for name in (*tree.groups, *tree.hosts))


def _in_range(tree: InventoryTree, pattern: str) -> list[TreeHost]:
    """Hosts of `gpu[1:3]` and `gpu[1:9:2]*`, with ranges as the inventory writes them; globs may stand beside them.

    Ansible looks for a group `gpu` alone, and finds nothing.
    """
    try:
        names = host_names.expand(pattern, _WRITTEN)
    except InventoryError as exc:
        raise InventoryError(exc.message.removeprefix(f"{_WRITTEN}: "), hint=exc.hint) from exc
    globs = [re.compile(fnmatch.translate(name)) for name in names if set(name) & set("*?")]
    exact = set(names)
    found = [host for name, host in tree.hosts.items() if name in exact or any(glob.fullmatch(name) for glob in globs)]
    if not found:
        raise _unknown(tree, pattern, pattern)
    return found


def _enumerate(tree: InventoryTree, expression: str, pattern: str) -> list[TreeHost]:
    try:
        expected = re.compile(expression[1:] if expression.startswith("~") else fnmatch.translate(expression))
    except (re.error, RecursionError, OverflowError) as exc:
        raise InventoryError(f"{pattern}: not a regular expression: {exc}") from exc
    groups = [group for name, group in tree.groups.items() if expected.match(name)]
    found = {host.name: host for group in groups for host in group.all_hosts()}
    if not groups or expression.startswith("~") or any(special in expression for special in ".?*["):
        found.update({name: host for name, host in tree.hosts.items() if name not in found and expected.match(name)})
    if not found and not groups:
        raise _unknown(tree, pattern, expression)
    return list(found.values())


def unknown_host(tree: InventoryTree, name: str) -> InventoryError:
    """Build the error for a host the inventory does not have, with near names."""
    return InventoryError(f"host {name!r} is not in the inventory", hint=_near(name, list(tree.hosts)))


def _unknown(tree: InventoryTree, pattern: str, expression: str) -> InventoryError:
    names = [name for name in (*tree.groups, *tree.hosts) if name not in ("all", "ungrouped")]
    return InventoryError(f"{pattern}: no host or group of the inventory fits", hint=_near(expression, names))


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"the inventory has {', '.join(names[:5]) or 'no host'}{', …' if len(names) > 5 else ''}"
