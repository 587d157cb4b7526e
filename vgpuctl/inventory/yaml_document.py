# SPDX-License-Identifier: Apache-2.0
"""Read one YAML or JSON file, with the line of everything in it at hand for errors.

Values are what ansible's loader makes of them; its tags `!unsafe` is kept, `!vault` is refused.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import yaml

from vgpuctl.errors import InventoryError
from vgpuctl.inventory.origin import Origin, UntrustedText, malformed, read_bytes

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 1000
_VAULT_HINT = "keep secrets in the SSH agent or in files of mode 0600; vgpuctl does not read vaults"


class _Loader(_BaseLoader):  # type: ignore[misc]  # one of two classes, chosen at run time
    """The safe loader plus ansible's tags."""


class _VaultFound(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True)
class Document:
    """One file's content. data: what it holds, None when it is empty."""

    path: str
    text: str
    data: Any
    warnings: tuple[str, ...] = ()

    def origin(self, *keys: object) -> Origin:
        """Name the place of a key path in this file; its line is looked up only when it is printed."""
        return _PlaceInDocument(self.path, None, self, keys)

    def line_of(self, keys: Sequence[object]) -> int | None:
        """Find the line (from 1) of the deepest key of the path that the file holds; an index counts in a list."""
        node = self._root
        if node is None:
            return None
        line = node.start_mark.line
        for key in keys:
            found = _step_into(node, key)
            if found is None:
                break
            line, node = found
        return int(line) + 1

    @functools.cached_property
    def _root(self) -> Any:
        try:
            return yaml.compose(self.text, Loader=_BaseLoader)
        except (yaml.YAMLError, RecursionError):
            return None


@dataclass(frozen=True)
class _PlaceInDocument(Origin):
    document: Document | None = None
    keys: tuple[object, ...] = ()

    def __str__(self) -> str:
        line = self.document.line_of(self.keys) if self.document else None
        return self.path if line is None else f"{self.path}:{line}"

    def within(self, *keys: object) -> Origin:
        return replace(self, keys=(*self.keys, *keys))


def _step_into(node: Any, key: object) -> tuple[int, Any] | None:
    """Find (line from 0, value) of one key of a mapping or one index of a list, through `<<` too."""
    if isinstance(node, yaml.SequenceNode):
        if isinstance(key, int) and key < len(node.value):
            item = node.value[key]
            return item.start_mark.line, item
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    for key_node, value_node in reversed(node.value):  # of a key written twice the last one counts
        if key_node.value == str(key):
            return key_node.start_mark.line, value_node
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            merged = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for other in merged:
                found = _step_into(other, key)
                if found is not None:
                    return found
    return None


def read_document(path: str) -> Document:
    """Read a YAML or JSON file. Raises InventoryError with file, line and what is wrong."""
    return parse_document(path, decode(path, read_bytes(path)))


def decode(path: str, content: bytes) -> str:
    """Decode a file's bytes as UTF-8, without a byte order mark. Raises InventoryError with the line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise malformed(Origin(path, line), f"not UTF-8: byte 0x{content[exc.start]:02x}") from exc


def parse_document(path: str, text: str) -> Document:
    """Parse text that was read from `path`: as JSON where it is JSON, else as YAML."""
    try:
        if text.lstrip()[:1] in ("{", "["):
            try:
                return Document(path, text, json.loads(text, object_hook=_revive))
            except ValueError:
                pass
        _check_depth(text)
        loader = _Loader(text)
        loader.repeated_keys = []
        try:
            data = loader.get_single_data()
        finally:
            loader.dispose()
        warnings = (
            f"{Origin(path, line)}: key {key!r} is written twice in one mapping; the last one counts"
            for line, key in loader.repeated_keys
        )
        return Document(path, text, data, tuple(warnings))
    except _VaultFound as exc:
        origin = Origin(path, exc.line or None)
        raise malformed(origin, "the value is encrypted by ansible-vault (!vault)", hint=_VAULT_HINT) from exc
    except yaml.YAMLError as exc:
        raise _explain(path, text, exc) from exc
    except RecursionError as exc:
        raise InventoryError(f"{path}: nested too deeply") from exc
    except ValueError as exc:  # PyYAML lets a date such as 2024-99-99 through to datetime
        raise InventoryError(f"{path}: a value cannot be read: {exc}") from exc


def _check_depth(text: str) -> None:
    """Refuse what overflows the stack of the C loader; only text with very many brackets or dashes is looked at."""
    if sum(text.count(mark) for mark in ("[", "{", "- ")) < DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_BaseLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise RecursionError


def _explain(path: str, text: str, exc: yaml.YAMLError) -> InventoryError:
    if not isinstance(exc, yaml.MarkedYAMLError) or exc.problem_mark is None:
        position = getattr(exc, "position", 0)
        line = text.encode().count(b"\n", 0, position) + 1
        return malformed(Origin(path, line), f"not valid YAML: {getattr(exc, 'reason', exc)}")
    mark = exc.problem_mark
    lines = text.splitlines()
    written = lines[mark.line] if mark.line < len(lines) else ""
    context = f" ({exc.context})" if exc.context else ""
    hint = None
    if "\t" in written[: len(written) - len(written.lstrip())]:
        hint = "the line is indented with a tab; YAML wants spaces"
    elif "{{" in written:
        hint = "quote a value that begins with {{"
    return malformed(Origin(path, mark.line + 1), f"not valid YAML: {exc.problem}{context}", hint=hint)


def _revive(value: dict[str, Any]) -> Any:
    if "__ansible_vault" in value:
        raise _VaultFound(0)
    if isinstance(value.get("__ansible_unsafe"), str):
        return UntrustedText(value["__ansible_unsafe"])
    return value


def _construct_unsafe(loader: Any, node: yaml.Node) -> Any:
    plain = type(node)(
        loader.resolve(type(node), node.value, (True, False)), node.value, node.start_mark, node.end_mark
    )
    return _distrust(loader.construct_object(plain, deep=True))


def _distrust(value: Any) -> Any:
    if isinstance(value, str):
        return UntrustedText(value)
    if isinstance(value, dict):
        return {key: _distrust(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_distrust(item) for item in value]
    return value


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> Any:
    data: dict[Any, Any] = {}
    yield data
    written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len(set(written)) != len(written):
        for index, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in written[:index]:
                loader.repeated_keys.append((key.start_mark.line + 1, key.value))
    data.update(loader.construct_mapping(node))


def _refuse_vault(_loader: Any, node: yaml.Node) -> NoReturn:
    raise _VaultFound(node.start_mark.line + 1)


def _refuse_binary(_loader: Any, node: yaml.Node) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, "a binary value cannot be a variable", node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:binary", _refuse_binary)
_Loader.add_constructor("!unsafe", _construct_unsafe)
_Loader.add_constructor("!vault", _refuse_vault)
_Loader.add_constructor("!vault-encrypted", _refuse_vault)
