# SPDX-License-Identifier: Apache-2.0
"""Groups, hosts and variables of one INI inventory file.

Values are read as Python literals where they are some (`8080`, `True`, `['a']`) and are text otherwise, in host lines
and in `[group:vars]` alike.
"""

import ast
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpuctl.inventory import host_names
from vgpuctl.inventory.tree import InventoryTree
from vgpuctl.inventory.yaml_source import READ_BY_ANSIBLE
from vgpuctl.model.masking import is_secret_name
from vgpuctl.specs.document import decode
from vgpuctl.specs.origin import Origin, UntrustedText, malformed

_SECTION = re.compile(r"\[(?P<group>[^:\]\s]+)(?::(?P<kind>\w+))?\]\s*(?:#.*)?")
_GROUP_NAME = re.compile(r"(?P<group>[^:\]\s]+)\s*(?:#.*)?")
_COMMENTS = ("#", ";")
_VARIABLES = "write variables after a host's name, or under [GROUP:vars]"
_LOGIN = "ansible_"
_SETTING = (
    f"{_VARIABLES}; a host with `=` in its name has ansible_host=ADDRESS on its line; are these the settings of an"
    f" inventory script? Then name the script: {READ_BY_ANSIBLE}"
)


@dataclass
class _Expected:
    """A group that was named before its own section: by `[group:vars]`, or as a child of `parents`."""

    origin: Origin
    parents: list[str] = field(default_factory=list)


def add_ini(path: str, content: bytes, tree: InventoryTree) -> None:
    """Add a file of `[group]`, `[group:children]` and `[group:vars]` sections. Raises InventoryError with the line."""
    expected: dict[str, _Expected] = {}
    group, kind = "ungrouped", "hosts"
    for number, line in enumerate(_lines(path, content), start=1):
        line = line.strip()
        if not line or line.startswith(_COMMENTS):
            continue
        origin = Origin(path, number)
        section = _SECTION.fullmatch(line)
        if section:
            group, kind = section["group"], section["kind"] or "hosts"
            _open_section(group, kind, origin, tree, expected)
        elif line.startswith("[") and line.endswith("]"):
            raise malformed(
                origin,
                f"{line} is not a section",
                hint="write [group], [group:children] or [group:vars], without spaces",
            )
        elif kind == "hosts":
            _add_host_line(line, group, origin, tree)
        elif kind == "vars":
            name, equals, value = line.partition("=")
            if not equals:
                raise malformed(origin, f"expected name=value in [{group}:vars]; the line has no `=`")
            tree.assign(group, name.strip(), _value(value.strip(), origin), origin)
        else:
            _add_child_line(line, group, origin, tree, expected)
    for name, what in expected.items():
        if what.parents:
            raise malformed(what.origin, f"[{what.parents[-1]}:children] names {name!r}, which is not a group")
        raise malformed(what.origin, f"[{name}:vars] is for a group that has no section", hint=f"add [{name}]")


def _lines(path: str, content: bytes) -> list[str]:
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:  # comments may be in another encoding, nothing else
        kept = [b"" if line.startswith((b"#", b";")) else line for line in content.splitlines()]
        return decode(path, b"\n".join(kept)).split("\n")


def _open_section(group: str, kind: str, origin: Origin, tree: InventoryTree, expected: dict[str, _Expected]) -> None:
    if kind not in ("hosts", "children", "vars"):
        raise malformed(
            origin,
            f"[{group}:{kind}] is a section of unknown kind {kind!r}",
            hint="write [group:children] or [group:vars]",
        )
    if group not in tree.groups:
        if kind == "vars":
            expected.setdefault(group, _Expected(origin))
        tree.add_group(group)
    if kind != "vars" and group in expected:
        _link_expected(group, tree, expected)


def _link_expected(group: str, tree: InventoryTree, expected: dict[str, _Expected]) -> None:
    what = expected.pop(group)
    for parent in what.parents:
        tree.add_child(parent, group, what.origin)


def _add_child_line(line: str, group: str, origin: Origin, tree: InventoryTree, expected: dict[str, _Expected]) -> None:
    match = _GROUP_NAME.fullmatch(line)
    if match is None:
        raise malformed(origin, f"expected the name of a group in [{group}:children], found {line!r}")
    child = match["group"]
    if child in tree.groups:
        tree.add_child(group, child, origin)
    elif child in expected:
        expected[child].parents.append(group)
    else:
        expected[child] = _Expected(origin, [group])


def _is_named_with_equals(pattern: str, assignments: Sequence[str]) -> bool:
    """True if `a=b` is the name of a host. Ansible always reads it so; we do if a login follows.

    Without one the line may be a setting or a password in the wrong place.
    """
    return not pattern.startswith(_LOGIN) and any(one.startswith(_LOGIN) for one in assignments)


def _add_host_line(line: str, group: str, origin: Origin, tree: InventoryTree) -> None:
    try:
        pattern, *assignments = shlex.split(line, comments=True)
    except ValueError as exc:
        raise malformed(
            origin, f"cannot be split into words: {exc}", hint="look for a quote without its partner"
        ) from exc
    if is_secret_name(pattern.partition("=")[0]):
        raise malformed(origin, "the line begins with a variable, not with the name of a host", hint=_VARIABLES)
    if assignments[:1] == ["="] or ("=" in pattern and not _is_named_with_equals(pattern, assignments)):
        raise malformed(origin, "the line is a setting, not a host with variables", hint=_SETTING)
    if pattern.endswith(":") and assignments and "=" not in assignments[0]:
        raise malformed(origin, "the line is a setting, not a host with variables", hint=_SETTING)
    if pattern.endswith(":") or pattern == "---":
        raise malformed(origin, f"{pattern!r} is not a host name", hint="is this a YAML file? Then name it *.yml")
    variables: dict[str, Any] = {}
    for number, assignment in enumerate(assignments, start=2):
        name, equals, value = assignment.partition("=")
        if not equals:
            # The word may be a password that was written after a blank.
            raise malformed(origin, f"expected name=value after the host name; the word number {number} has no `=`")
        variables[name] = _value(value, origin)
    address, port = host_names.split_port(pattern, origin)
    for host in host_names.expand(address, origin):
        tree.add_host(host, group, port, origin)
        for name, value in variables.items():
            tree.assign(host, name, value, origin)


def _value(text: str, origin: Origin) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return _plain(ast.literal_eval(text), origin)
    except (ValueError, SyntaxError):
        return text
    except (TypeError, MemoryError, RecursionError) as exc:
        raise malformed(
            origin, f"the value cannot be read as a Python literal: {type(exc).__name__}", hint="quote it"
        ) from exc


def _plain(value: Any, origin: Origin) -> Any:
    """Turn a Python literal into what a variable can be."""
    if isinstance(value, dict):
        return {key: _plain(item, origin) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item, origin) for item in value]
    if isinstance(value, bytes):
        return UntrustedText(decode(str(origin), value))
    if value is ...:
        return "..."
    return str(value) if isinstance(value, complex) else value
