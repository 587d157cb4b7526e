# SPDX-License-Identifier: Apache-2.0
"""A table of fields as a table of the docs."""

from typing import Any

from vgpuctl.specs.field import Choice, Document, Field, Table, Truth, Whole


def describe_fields(table: Table[Any]) -> str:
    """A markdown table with one row per field: key, flag, value, default, meaning."""
    rows = [_row(table, field) for field in table.fields]
    return "\n".join(["| key | flag | value | default | meaning |", "|---|---|---|---|---|", *rows])


def _row(table: Table[Any], field: Field) -> str:
    default = table.written_default(field)
    value = _value(field)
    cells = (
        f"`{field.key}`",
        "NAME" if field.key == "name" and field.flag is None else f"`{field.flag}`" if field.flag else "",
        f"list of {value}" if field.is_list else value,
        "required" if field.is_required and "." not in field.key else "" if default is None else f"`{default}`",
        field.help,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(field: Field) -> str:
    kind = field.type
    if isinstance(kind, Whole):
        return f"{kind.lowest} to {kind.highest}"
    if isinstance(kind, Truth):
        return "true or false"
    if isinstance(kind, Choice):
        return ", ".join(member.value for member in kind.members)
    return "text of several lines" if isinstance(kind, Document) else (field.metavar or "text")
