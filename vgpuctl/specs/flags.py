# SPDX-License-Identifier: Apache-2.0
"""From a command's arguments and flags to the values of a table's fields."""

from collections.abc import Iterable, Mapping
from typing import Any

from vgpuctl.specs.field import Choice, Field, Text


def read_flags(fields: Iterable[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the arguments and flags that were given, by attribute. Raises UsageError."""
    values: dict[str, Any] = {}
    for field in fields:
        text = given.get(field.parameter)
        if text in (None, ()):
            continue
        if field.is_list:
            values[field.path] = tuple(dict.fromkeys(read_text(field, one) for one in text))
        elif field.parts:
            values |= zip((field.path, *field.parts), read_text(field, text), strict=True)
        else:
            values[field.path] = read_text(field, text)
    return values


def read_text(field: Field, text: Any) -> Any:
    """One value as a command gets it. Raises UsageError."""
    if isinstance(field.type, Choice):
        return field.type.members(text)
    return field.type.parse(text, what=field.flag or field.key) if isinstance(field.type, Text) else text
