# SPDX-License-Identifier: Apache-2.0
"""JSON schema (draft 2020-12) of what a command prints with --json, made from the types that its module declares.

The types are those of `JsonOutput[Type]` and `Listing[Row, JsonRow]`; the rules are those of `output.plain`. The pages
of `vgpuctl serve web` have their types in web/page_types.py. Only
`show-schema`, the docs and the tests import this module: it reads source files and resolves every annotation.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import sys
import types
import typing
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any

import click

from vgpuctl.cli.frame.rehearsal import JsonRehearsal, is_rehearsed
from vgpuctl.cli.lists.listing import Listing
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def output_schema(command: click.Command) -> Schema | None:
    """The schema of one JSON document of a command; None where its module declares no type.

    With --watch, `-o json` prints one row a line: each is an item of the array that the schema describes.
    Raises TypeError for a type that has no JSON.
    """
    declared = _declared(command)
    if not declared:
        return None
    definitions = _Definitions()
    parts = [definitions.inlined(one) for one in declared]
    if is_rehearsed(command):
        parts = [*(definitions.rehearsed(part) for part in parts), definitions.inlined(JsonRehearsal)]
    body = parts[0] if len(parts) == 1 else {"anyOf": parts}
    return definitions.document(f"Output of vgpuctl {command.name} --json", body)


def schema_of(kind: Any, title: str) -> Schema:
    """The schema of one type. Raises TypeError for one that has no JSON."""
    definitions = _Definitions()
    return definitions.document(title, definitions.inlined(kind))


def _declared(command: click.Command) -> list[Any]:
    """The types of the command's documents, by the annotations of its function or its module."""
    module = sys.modules[getattr(command.callback, "__module__", "")]
    prints = getattr(command.callback, "prints", None)
    if prints is not None:
        return [prints(_resolved(command.callback.__annotations__["return"], module))]
    outputs: list[Any] = []
    lists: list[Any] = []
    for name, written in vars(module).get("__annotations__", {}).items():
        value = getattr(module, name, None)
        if isinstance(value, JsonOutput):
            if (command.name or "").startswith(tuple(value.commands)):
                (printed,) = typing.get_args(_resolved(written, module))
                outputs += _members(printed)
        elif isinstance(value, Listing):
            lists.append(list[typing.get_args(_resolved(written, module))[1]])  # type: ignore[misc]
    return outputs or lists


def _resolved(written: Any, module: types.ModuleType) -> Any:
    return eval(written, _names(module.__name__)) if isinstance(written, str) else written


@functools.cache
def _names(module: str) -> dict[str, Any]:
    """The names of a module, with those that it imports for type checking alone."""
    specification = importlib.util.find_spec(module)
    loader = None if specification is None else specification.loader
    source = loader.get_source(module) if hasattr(loader, "get_source") else None  # type: ignore[union-attr]
    names = dict(vars(importlib.import_module(module)))
    for statement in ast.parse(source or "").body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(statement.body, []), module, "exec"), names)
    return names


def _members(kind: Any) -> Sequence[Any]:
    """The types of a union; any other type alone."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else [kind]


class _Definitions:
    """The schemas of classes by name, each made once."""

    def __init__(self) -> None:
        self._kinds: dict[str, Any] = {}
        self._made: dict[str, Schema] = {}

    def inlined(self, kind: Any) -> Schema:
        """The schema of a type, written out instead of a `$ref`."""
        return self._resolved(self.schema(kind))

    def _resolved(self, made: Schema) -> Schema:
        return dict(self._made[made["$ref"].rpartition("/")[2]]) if "$ref" in made else made

    def rehearsed(self, part: Schema) -> Schema:
        """The schema of a command's document with what `print_json` adds in a dry run."""
        if part.get("type") == "array":
            return {**part, "items": self.rehearsed(self._resolved(part["items"]))}
        if part.get("type") != "object" or "properties" not in part:
            return part
        added = self.inlined(JsonRehearsal)["properties"]
        return {**part, "properties": {**{name: added[name] for name in ("dry_run", "steps")}, **part["properties"]}}

    def document(self, title: str, body: Schema) -> Schema:
        """A schema with the definitions that it refers to."""
        schema: Schema = {"$schema": DRAFT, "title": title, **body}
        if used := self.used(schema):
            schema["$defs"] = used
        return schema

    def used(self, schema: Schema) -> dict[str, Schema]:
        """The definitions that a schema refers to, by name."""
        found: dict[str, Schema] = {}
        waiting = list(_references(schema))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self._made[name]
                waiting += _references(found[name])
        return dict(sorted(found.items()))

    def schema(self, kind: Any) -> Schema:
        """The schema of a type, which may refer to a definition. Raises TypeError for one that has no JSON."""
        if kind is Any or kind is object:
            return {}
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, typing.NewType):
            return self.schema(kind.__supertype__)
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is tuple and arguments[-1:] != (...,):
            items = [self.schema(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        if isinstance(origin or kind, type):
            return self._of_class(kind, origin or kind, arguments)
        raise TypeError(f"{kind!r} has no JSON schema")

    def _of_class(self, kind: Any, of: type, arguments: tuple[Any, ...]) -> Schema:
        if of is WithFields:
            return self._with_fields(*arguments)
        if dataclasses.is_dataclass(of) or typing.is_typeddict(of):
            return self._reference(kind, of, arguments)
        if issubclass(of, Enum):
            return self._reference(kind, of, ())
        for simple, name in _SIMPLE.items():
            if issubclass(of, simple):
                return {"type": name}
        if issubclass(of, Mapping):
            key, value = arguments or (str, object)
            names = self.schema(key)
            of_names = {} if names.get("type") else {"propertyNames": names}
            return {"type": "object", **of_names, "additionalProperties": self.schema(value)}
        if issubclass(of, Sequence | Set):
            return {"type": "array", "items": self.schema(arguments[0] if arguments else object)}
        raise TypeError(f"{kind!r} has no JSON schema")

    def _with_fields(self, base: Any, more: Any) -> Schema:
        """One object with the fields of two; those of the second replace others."""
        added = self.inlined(more)
        made = self._object(typing.get_origin(base) or base, typing.get_args(base), without=added["properties"])
        lines = [one["description"] for one in (made, added) if "description" in one]
        described = {"description": " ".join(lines)} if lines else {}
        properties = made["properties"] | added["properties"]
        return {**made, **described, "properties": properties, "required": made["required"] + added["required"]}

    def _union(self, members: Sequence[Any]) -> Schema:
        parts: list[Schema] = []
        for part in map(self.schema, members):
            if part not in parts:
                parts.append(part)
        names = [one["type"] for one in parts if one.keys() == {"type"}]
        if len(names) == len(parts):
            return {"type": names if len(names) > 1 else names[0]}
        return {"anyOf": parts}

    def _reference(self, kind: Any, of: type, arguments: tuple[Any, ...]) -> Schema:
        name = of.__name__ + "".join(f"_{getattr(one, '__name__', 'any')}" for one in arguments)
        if self._kinds.setdefault(name, kind) != kind:
            name = f"{of.__module__.rpartition('.')[2]}.{name}"
            self._kinds[name] = kind
        if name not in self._made:
            self._made[name] = {}
            self._made[name].update(_enum(of) if issubclass(of, Enum) else self._object(of, arguments))
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, of: type, arguments: tuple[Any, ...], without: Container[str] = ()) -> Schema:
        """The schema of a dataclass or a typed dict. without: names of fields that are left out."""
        bound = dict(zip(getattr(of, "__parameters__", ()), arguments, strict=True))
        hints = _hints(of)
        if typing.is_typeddict(of):
            required = [name for name in hints if name in of.__required_keys__]  # type: ignore[attr-defined]
        else:
            required = [one.name for one in dataclasses.fields(of)]
            hints = {name: hints[name] for name in required}
        properties = {name: self.schema(_bound(one, bound)) for name, one in hints.items() if name not in without}
        return {
            **_described(of),
            "type": "object",
            "properties": properties,
            "required": [name for name in required if name not in without],
            "additionalProperties": False,
        }


def _hints(of: type) -> dict[str, Any]:
    """The types of a class's fields, resolved with what the modules of its bases import for type checking."""
    names: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        names.update(_names(base.__module__))
    return typing.get_type_hints(of, localns=names)


def _bound(kind: Any, bound: Mapping[Any, Any]) -> Any:
    """A type with the parameters of its generic class put in."""
    if isinstance(kind, typing.TypeVar):
        return bound.get(kind, object)
    parameters = getattr(kind, "__parameters__", ())
    return kind[tuple(bound.get(one, object) for one in parameters)] if parameters else kind


def _enum(of: type[Enum]) -> Schema:
    return {**_described(of), "enum": [one.value for one in of]}


def _described(of: type) -> Schema:
    """The class's docstring, unless dataclasses made it."""
    text = of.__doc__ or ""
    is_made = not text or text.startswith(f"{of.__name__}(")
    return {} if is_made else {"description": " ".join(text.split())}


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(found := schema.get("$ref"), str):
            yield found.rpartition("/")[2]
        for one in schema.values():
            yield from _references(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _references(one)
