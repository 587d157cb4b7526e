# SPDX-License-Identifier: Apache-2.0
"""From an entry of a file to the values of a table's fields, by attribute; what was not given is left out."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.specs.field import (
    Choice,
    Document,
    Field,
    Named,
    Number,
    Repeated,
    Table,
    Text,
    Truth,
    Type,
    Whole,
    default_at,
)
from vgpuctl.specs.flags import collect, store_value
from vgpuctl.specs.keys import fields_by_flag, suggest_key
from vgpuctl.specs.value import Value


def check_version(root: Value, version: int) -> None:
    """Refuse a file of another schema before any of its keys."""
    entries = root.named(("version",))
    if "version" not in entries:
        raise root.refuse("has no 'version'", hint=f"begin it with `version: {version}`")
    found = entries["version"].whole(0, 1 << 31)
    if found != version:
        raise entries["version"].refuse(f"is {found}", hint=f"this vgpuctl reads version {version}")


def read_entry(table: Table[Any], entry: Value) -> Any:
    """Read one entry of a file into what the table makes of it. Raises InventoryError with file, line and key."""
    values = read_file_entry(table, entry)
    if table.make is not None:
        return table.make(values, entry)
    with entry.located():
        return table.build(values)


def read_file_entry(table: Table[Any], entry: Value, *, beside: Sequence[str] = ()) -> dict[str, Any]:
    """Read one entry of a file. beside: further keys that it may have and that are read elsewhere.

    Raises InventoryError with file, line and key; an unknown key names the nearest.
    """
    known, by_flag = (*table.keys, *beside), fields_by_flag(table)
    suggest = functools.partial(suggest_key, known=known, table=table)
    if table.kinds_by is not None:
        entry.fields((*known, *by_flag), suggest=suggest)  # a misspelled key may be the one that says the kind
        table = _table_of_kind(table, table.field(table.kinds_by), entry)
        known, by_flag = (*table.keys, *beside), fields_by_flag(table)
        suggest = functools.partial(suggest_key, known=known, table=table)
    values: dict[str, Any] = {}
    entries = entry.fields((*known, *by_flag), required=table.required[""], suggest=suggest)
    if table.exactly_one and len(entries) != 1:
        raise entry.refuse(f"has {' and '.join(entries) or 'no key'}", hint=f"give one of {', '.join(table.keys)}")
    given: dict[str, Value] = {}
    for key, value in entries.items():
        if key in beside:
            continue
        for field, written in _fields_of(table, by_flag, key, value, values):
            if field.key in given:
                raise written.refuse(f"says the same as {given[field.key].name}", hint="write one of them")
            given[field.key] = written
            store_value(values, field, read_field(table, field, written))
    for section in table.sections:
        lacking = [key for key in table.required[section.key] if f"{section.key}.{key}" not in given]
        if lacking and any(key.startswith(f"{section.key}.") for key in given):
            raise entry.refuse(f"has no '{section.key}.{lacking[0]}'")
    return values


def _fields_of(
    table: Table[Any], by_flag: Mapping[str, Field], key: str, value: Value, values: dict[str, Any]
) -> Iterator[tuple[Field, Value]]:
    """The fields that one key gives, each with its value: those of a section, or one by its key or its flag's name."""
    section = next((one for one in table.sections if one.key == key), None)
    flagged = by_flag.get(key)
    if flagged is not None and (section is None or not isinstance(value.content, dict | NoneType)):
        yield dataclasses.replace(flagged, may_stand_alone=True), value
    elif section is None:
        yield table.field(key), value
    elif value.content is not None:
        values.setdefault(section.path, {})
        known = [field.key.removeprefix(f"{key}.") for field in table.inside(section)]
        suggest = functools.partial(suggest_key, known=known, table=table, section=key)
        for inner, one in value.fields(known, required=table.required[key], suggest=suggest).items():
            yield table.field(f"{key}.{inner}"), one


def _table_of_kind(table: Table[Any], by: Field, entry: Value) -> Table[Any]:
    """The table of the entry's kind. Refuses keys that belong to other kinds, and a missing one of this kind."""
    entries = entry.named(table.keys)
    if by.key not in entries:
        raise entry.refuse(f"has no {by.key!r}")
    kind = read_field(table, by, entries[by.key])
    own = table.by_kind[kind]
    for key, value in entries.items():
        if key in table.keys and key not in own.keys:
            listed = ", ".join(one for one in own.keys if table.kinds_of(one)) or "no keys of its own"
            raise value.refuse(
                f"contradicts {by.key} {kind}: {key!r} belongs to {' and '.join(table.kinds_of(key))}",
                hint=f"{kind} can have {listed}; or change the {by.key}",
            )
    for key in own.required[""]:
        if table.kinds_of(key) and key not in entries:
            raise entry.refuse(f"is of {by.key} {kind} and has no {key!r}")
    return own


def read_field(table: Table[Any], field: Field, value: Value) -> Any:
    """Read the value of one field. Raises InventoryError with file, line and key."""
    for word, kept in field.words.items():
        if isinstance(value.content, type(word)) and value.content == word:
            return kept
    if value.content is None and table.may_be_empty(field):
        return None
    if value.content == "" and not field.is_required and default_at(table.model, field.path.split(".")) == "":
        return ""
    if field.is_list:
        return _read_list(field, value)
    if isinstance(field.type, Table) and field.words and isinstance(value.content, str):
        forms = (f"{{{one.key}: {one.example}}}" for one in field.type.fields)
        words = (f"`{word}`" for word in field.words)
        raise value.refuse(f"is {value.content!r}", hint=f"write {' or '.join((*words, *forms))}")
    return read_value(field.type, value)


def _read_list(field: Field, value: Value) -> tuple[Any, ...]:
    is_alone = field.may_stand_alone and not isinstance(value.content, list)
    items = [value] if is_alone else value.items()
    if field.at_least_one and not items:
        raise value.refuse("is an empty list", hint="give one item" if field.is_required else "leave it out")
    made: list[Any] = []
    for item in items:
        one = read_value(field.type, item)
        if field.repeated is Repeated.REFUSED and one in made:
            raise item.refuse(f"is {one!r} a second time")
        made.append(one)
    return collect(field, made)


def read_value(kind: Type, value: Value) -> Any:
    """Read one value of a file. Raises InventoryError with file, line and key."""
    if isinstance(kind, Text | Document):
        return _read_text(kind, value)
    if isinstance(kind, Whole):
        return value.whole(kind.lowest, kind.highest)
    if isinstance(kind, Number):
        number = value.number(kind.lowest, kind.highest)
        return number if kind.scale is None else round(number * kind.scale)
    if isinstance(kind, Truth):
        return value.truth()
    if isinstance(kind, Choice):
        return value.choice(kind.members)
    return _read_named(kind, value) if isinstance(kind, Named) else read_entry(kind, value)


def _read_text(kind: Text | Document, value: Value) -> Any:
    if isinstance(kind, Document):
        text = value.document()
    elif kind.table is not None and isinstance(value.content, dict):
        return read_entry(kind.table, value)
    elif kind.takes_numbers and isinstance(value.content, int | float) and not isinstance(value.content, bool):
        text = str(value.content)
    elif kind.may_be_empty and value.content == "":
        text = ""
    else:
        text = value.text(hint=_hint_for(kind, value))
    with value.located():
        return kind.parse(text, what=value.words)


def _hint_for(kind: Text, value: Value) -> str | None:
    """The hint for a value that is not a text. A number that is refused as a text too is not to be quoted."""
    if kind.hint is None and isinstance(value.content, int | float) and not isinstance(value.content, bool):
        try:
            kind.parse(str(value.content), what=value.words)
        except UsageError as error:
            return error.hint or error.message
    return kind.hint


def _read_named(kind: Named, value: Value) -> Any:
    found: dict[Any, Any] = {}
    for name, one in value.mapping().items():
        with one.located():
            key = kind.names.parse(name, what=one.words)
        if key in found:
            raise one.refuse("means the same as another key")
        if kind.are_lists:
            found[key] = tuple(read_value(kind.values, item) for item in one.items())
        else:
            found[key] = read_value(kind.values, one)
    return kind.keep(sorted(found.items()))
