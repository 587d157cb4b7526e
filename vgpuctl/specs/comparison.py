# SPDX-License-Identifier: Apache-2.0
"""Compares two specifications field by field, in the words of the file that a user writes."""

from collections.abc import Iterator
from typing import Any

from vgpuctl.model.masking import without_passwords
from vgpuctl.specs.field import Compared, Document, Field, Table, show


def list_differences(table: Table[Any], there: Any, wanted: Any) -> list[str]:
    """One line per field that differs: `memory: 2GiB there, 4GiB wanted`. Contents of documents are not shown."""
    return [line for field in table.fields for line in _compare(field, there, wanted)]


def _compare(field: Field, there: Any, wanted: Any) -> Iterator[str]:
    before, after = value_at(there, field.path), value_at(wanted, field.path)
    if (
        before == after
        or field.compared is Compared.NEVER
        or (field.compared is Compared.IF_GIVEN and after in (None, ()))
    ):
        return
    if isinstance(field.type, Document) or field.names_file:
        yield f"{field.key}: differs"
    elif (one := _words(field, before)) != (other := _words(field, after)):
        yield f"{field.key}: {one} there, {other} wanted"


def value_at(value: Any, path: str) -> Any:
    """The attribute at a path; None below a value that is None."""
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _words(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return without_passwords(", ".join(show(field.type, one) for one in value)) or "none"
    return "none" if value in (None, "") else without_passwords(show(field.type, value))
