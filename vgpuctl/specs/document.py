# SPDX-License-Identifier: Apache-2.0
"""Read YAML and JSON files, with the line of everything in them at hand for errors.

Values are what ansible's loader makes of them; its tags `!unsafe` is kept, `!vault` is refused.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import yaml

from vgpuctl.agent.wire.strict_json import NotJson
from vgpuctl.specs import bounded_reader
from vgpuctl.specs.lines import line_in, root_node
from vgpuctl.specs.origin import EncryptedText, Origin, UntrustedText, located, malformed, read_bytes
from vgpuctl.trusted_files import Trust

_VAULT_HINT = "keep secrets in the SSH agent or in files of mode 0600; vgpuctl does not read vaults"


_VAULT_IN_JSON = "__ansible_vault"


class _Loader(bounded_reader.BoundedLoader):
    """The bounded loader plus ansible's tags. repeated_keys: line and key of each that a mapping has twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated_keys: list[tuple[int, str]] = []


class _VaultFound(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True)
class YamlDocument:
    """One YAML document of a file. data: what it holds, None when it is empty. number: which document, from 0."""

    path: str
    text: str
    data: Any
    warnings: tuple[str, ...] = ()
    number: int = 0

    def origin(self, *keys: object) -> Origin:
        """Name the place of a key path in this file; its line is looked up only when it is printed."""
        return _PlaceInDocument(self.path, document=self, keys=keys)

    def line_of(self, keys: Sequence[object]) -> int | None:
        """Find the line (from 1) of the deepest key of the path that the file holds; an index counts in a list."""
        return line_in(self._root, keys) or (1 if self.data is None else None)

    @functools.cached_property
    def _root(self) -> Any:
        return root_node(self.text, document=self.number)


@dataclass(frozen=True)
class _PlaceInDocument(Origin):
    document: YamlDocument | None = None
    keys: tuple[object, ...] = ()

    def __str__(self) -> str:
        line = self.document.line_of(self.keys) if self.document else None
        return str(Origin(self.path, line))

    def within(self, *keys: object) -> Origin:
        return replace(self, keys=(*self.keys, *keys))


def read_document(path: str, trust: Trust) -> YamlDocument:
    """Read a YAML or JSON file; `-` is standard input. trust: whose it may be.

    Raises FileNotTrusted, and InventoryError with file, line and what is wrong.
    """
    return parse_document(bounded_reader.shown_name(path), decode(path, read_bytes(path, trust)))


def read_documents(path: str, trust: Trust) -> list[YamlDocument]:
    """Read every document of a YAML or JSON file, also empty ones. Parameters and errors as of `read_document`."""
    return _parse(bounded_reader.shown_name(path), decode(path, read_bytes(path, trust)), single=False)


def decode(path: str, content: bytes) -> str:
    """Decode a file's bytes as UTF-8, without a byte order mark. Raises InventoryError with the line."""
    with located(path):
        return bounded_reader.decode(content)


def parse_document(path: str, text: str, *, may_be_encrypted: bool = False) -> YamlDocument:
    """Parse text that was read from `path`: as JSON where it is JSON, else as YAML. Raises InventoryError.

    may_be_encrypted: values of a vault in JSON become EncryptedText in place of an error.
    """
    (document,) = _parse(path, text, single=True, revive=_keep_encrypted if may_be_encrypted else _revive)
    return document


def _parse(
    path: str, text: str, *, single: bool, revive: Callable[[dict[str, Any]], Any] | None = None
) -> list[YamlDocument]:
    with located(path):
        try:
            if text.lstrip()[:1] in ("{", "["):
                try:
                    return [YamlDocument(path, text, bounded_reader.read_json(text, hook=revive or _revive))]
                except NotJson as exc:
                    if path.endswith(".json") and exc.line is not None:
                        raise bounded_reader.Malformed(str(exc), exc.line, column=exc.column) from exc
            with bounded_reader.yaml_errors(text):
                bounded_reader.check(text)
                loader = _Loader(text)
                contents = bounded_reader.read_yaml(loader, single=single)
        except _VaultFound as exc:
            origin = Origin(path, exc.line or _line_with(text, _VAULT_IN_JSON))
            raise malformed(origin, "the value is encrypted by ansible-vault (!vault)", hint=_VAULT_HINT) from exc
    warnings = tuple(
        f"{Origin(path, line)}: key {key!r} is written twice in one mapping; the last one counts"
        for line, key in loader.repeated_keys
    )
    return [YamlDocument(path, text, data, warnings, number) for number, data in enumerate(contents)]


def _line_with(text: str, word: str) -> int:
    return text.count("\n", 0, max(text.find(word), 0)) + 1


def _revive(value: dict[str, Any]) -> Any:
    if _VAULT_IN_JSON in value:
        raise _VaultFound(0)
    if isinstance(value.get("__ansible_unsafe"), str):
        return UntrustedText(value["__ansible_unsafe"])
    return value


def _keep_encrypted(value: dict[str, Any]) -> Any:
    if isinstance(value.get(_VAULT_IN_JSON), str):
        return EncryptedText(value[_VAULT_IN_JSON])
    return _revive(value)


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
