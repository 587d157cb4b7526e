# SPDX-License-Identifier: Apache-2.0
"""From a value of the model to an entry of a file, which `specs.reading` reads as the same value."""

from typing import Any

from vgpuctl.specs.comparison import value_at
from vgpuctl.specs.field import Field, Named, Number, Table, Type, Whole, show


def write_entry(table: Table[Any], made: Any) -> dict[str, Any]:
    """The keys of an entry, without empty ones. made: what the table makes of an entry."""
    written = made if table.unmake is None else table.unmake(made)
    if table.kinds_by is not None:
        table = table.by_kind[value_at(written, table.kinds_by)]
    entry: dict[str, Any] = {}
    for field in table.fields:
        value = value_at(written, field.path)
        if value is not None and (value != () or field.key in table.required[""]):
            section, _, key = field.key.rpartition(".")
            (entry.setdefault(section, {}) if section else entry)[key] = _plain(field, value)
    return entry


def _plain(field: Field, value: Any) -> Any:
    for word, kept in field.words.items():
        if value == kept:
            return word
    return [_one(field.type, each) for each in value] if field.is_list else _one(field.type, value)


def _one(kind: Type, value: Any) -> Any:
    if isinstance(kind, Table):
        return write_entry(kind, value)
    if isinstance(kind, Named):
        return {
            show(kind.names, name): list(each) if kind.are_lists else _one(kind.values, each) for name, each in value
        }
    if isinstance(kind, Number) and kind.scale is not None:
        whole, rest = divmod(value, kind.scale)
        return value / kind.scale if rest else whole
    return value if isinstance(value, bool) or isinstance(kind, Whole | Number) else show(kind, value)
