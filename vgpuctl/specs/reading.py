# SPDX-License-Identifier: Apache-2.0
"""From an entry of a file to the values of a table's fields, by attribute; what was not given is left out."""

from collections.abc import Sequence
from typing import Any

from vgpuctl.specs.field import Choice, Document, Field, Table, Truth, Type, Whole, default_at, is_optional
from vgpuctl.specs.flags import collect, store_value
from vgpuctl.specs.value import Value


def read_file_entry(table: Table[Any], entry: Value, *, beside: Sequence[str] = ()) -> dict[str, Any]:
    """Read one entry of a file. beside: further keys that it may have and that are read elsewhere.

    Raises InventoryError with file, line and key; an unknown key names the nearest.
    """
    values: dict[str, Any] = {}
    sections = {section.key: section for section in table.sections}
    for key, value in entry.fields((*table.keys, *beside), required=_required(table, "")).items():
        if key in beside:
            continue
        if key not in sections:
            _put(values, table, table.field(key), value)
        elif value.content is not None:
            section = sections[key]
            values.setdefault(section.path, {})
            known = [field.key.removeprefix(f"{key}.") for field in table.inside(section)]
            for inner, inner_value in value.fields(known, required=_required(table, f"{key}.")).items():
                _put(values, table, table.field(f"{key}.{inner}"), inner_value)
    return values


def _put(values: dict[str, Any], table: Table[Any], field: Field, value: Value) -> None:
    path = field.path.split(".")
    if value.content is None and not field.is_required and is_optional(table.model, path):
        store_value(values, field, None)
    elif value.content == "" and default_at(table.model, path) == "":
        store_value(values, field, "")
    elif field.is_list:
        store_value(values, field, collect(field, [read_value(field.type, item) for item in value.items()]))
    else:
        store_value(values, field, read_value(field.type, value))


def read_value(kind: Type, value: Value) -> Any:
    """Read one value of a file. Raises InventoryError with file, line and key."""
    if isinstance(kind, Whole):
        return value.whole(kind.lowest, kind.highest)
    if isinstance(kind, Truth):
        return value.truth()
    if isinstance(kind, Choice):
        return value.choice(kind.members)
    if isinstance(kind, Document):
        text = value.document()
    elif kind.takes_numbers and isinstance(value.content, int | float) and not isinstance(value.content, bool):
        text = str(value.content)
    else:
        text = value.text()
    with value.located():
        return kind.parse(text, what=value.name)


def _required(table: Table[Any], prefix: str) -> list[str]:
    return [
        field.key.removeprefix(prefix)
        for field in table.fields
        if field.is_required and field.key.startswith(prefix) and "." not in field.key.removeprefix(prefix)
    ]
