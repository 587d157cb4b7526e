# SPDX-License-Identifier: Apache-2.0
"""A table of fields as a table of the docs."""

from typing import Any

from vgpuctl.specs.field import Choice, Document, Field, Named, Number, Table, Truth, Whole


def describe_fields(table: Table[Any]) -> str:
    """A markdown table with one row per field: key, flag, kinds, value, default, meaning.

    The flags are left out if no field has one, and the kinds if all entries have the same fields.
    """
    rows = [_cells(table, field) for field in table.fields]
    heads = [head for head in rows[0] if head != "flag" or any(row["flag"] for row in rows)]
    lines = [heads, *([row[head].replace("|", "\\|") for head in heads] for row in rows)]
    first, *others = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([first, "|---" * len(heads) + "|", *others])


def _cells(table: Table[Any], field: Field) -> dict[str, str]:
    default = table.written_default(field)
    kinds = {"kinds": ", ".join(field.kinds) or "every"} if table.kinds_by else {}
    return {
        "key": f"`{field.key}`",
        "flag": "NAME" if field.key == "name" and field.flag is None else f"`{field.flag}`" if field.flag else "",
        **kinds,
        "value": _value(field),
        "default": "required" if _is_required(field) else "" if default is None else f"`{default}`",
        "meaning": field.help,
    }


def _is_required(field: Field) -> bool:
    return field.is_required and "." not in field.key


def _value(field: Field) -> str:
    kind = field.type
    if isinstance(kind, Whole | Number):
        value = f"{kind.lowest:g} to {kind.highest:g}" if kind.lowest != kind.highest else f"{kind.lowest:g}"
    elif isinstance(kind, Truth):
        value = "true or false"
    elif isinstance(kind, Choice):
        value = ", ".join(member.value for member in kind.members)
    elif isinstance(kind, Named | Table):
        value = f"mapping of {field.metavar}" if field.metavar else "mapping"
    else:
        value = "text of several lines" if isinstance(kind, Document) else (field.metavar or "text")
    if field.is_list:
        value = f"{value}, or a list" if field.may_stand_alone else f"list of {value}{'s' * isinstance(kind, Table)}"
    words = [word if isinstance(word, str) else str(word).lower() for word in field.words]
    return ", ".join([*(f"`{word}`" for word in words), f"or {value}"]) if words else value
