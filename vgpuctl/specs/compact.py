# SPDX-License-Identifier: Apache-2.0
"""One line for a mapping, so that a flag can say what a file says in several: `data,size=100GiB,bus=scsi,keep`."""

from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.specs.field import Choice, Field, Number, Table, Text, Truth, Type, Whole, show
from vgpuctl.specs.flags import collect, store_value


def compact(table: Table[Any]) -> Text:
    """The text of a table's values: its first field alone, then KEY=VALUE, or KEY alone for a field that is true.

    A list has its key several times. Texts with a comma have to be written in a file.
    """

    def parse(text: str, /, *, what: str) -> Any:
        """Read one line. Raises UsageError."""
        first, *others = table.fields
        words = [word.strip() for word in text.split(",")]
        given: dict[str, list[str]] = {first.key: [words[0]]}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            given.setdefault(key.strip(), []).append(value.strip() if equals else "true")
        values: dict[str, Any] = {}
        for key, written in given.items():
            field = next((one for one in (first, *others) if one.key == key), None)
            if field is None:
                raise UsageError(f"{what} {text!a} has the unknown key {key!a}", hint=f"keys: {_keys(table)}")
            try:
                made = [_read(field.type, one, what=f"{what} {text!a}: {key}") for one in written]
            except UsageError as error:
                if field is not first:
                    raise
                hint = f"; {error.hint}" if error.hint else ""
                raise UsageError(error.message, hint=f"write {_keys(table)}, with commas between{hint}") from error
            if len(made) > 1 and not field.is_list:
                raise UsageError(f"{what} {text!a} has {key} twice", hint="write it once")
            store_value(values, field, collect(field, made) if field.is_list else made[0])
        missing = [field.key for field in table.fields if field.is_required and field.key not in given]
        if missing or not words[0]:
            raise UsageError(
                f"{what} {text!a} has no {', '.join(missing or [first.key])}", hint=f"keys: {_keys(table)}"
            )
        return table.build(values)

    return Text(parse, lambda value: _write(table, value), table=table)


def _keys(table: Table[Any]) -> str:
    first, *others = table.fields
    return f"{first.key.upper()} first, then {', '.join(_form(field) for field in others)}"


def _form(field: Field) -> str:
    return field.key if isinstance(field.type, Truth) else f"{field.key}=…"


def _read(kind: Type, text: str, *, what: str) -> Any:
    if isinstance(kind, Text):
        return kind.parse(text, what=what)
    if isinstance(kind, Choice):
        if text not in tuple(kind.members):
            raise UsageError(f"{what} is {text!a}", hint=f"one of {', '.join(kind.members)}")
        return kind.members(text)
    if isinstance(kind, Truth) and text in ("true", "false"):
        return text == "true"
    if isinstance(kind, Whole) and text.isascii() and text.isdigit() and len(text) < 10:
        number = int(text)
        if kind.lowest <= number <= kind.highest:
            return number
    bounds = f"a number from {kind.lowest} to {kind.highest}" if isinstance(kind, Whole | Number) else "true or false"
    raise UsageError(f"{what} is {text!a}", hint=f"write {bounds}")


def _write(table: Table[Any], value: Any) -> str:
    """The shortest text that reads back as the value."""
    words = []
    for number, field in enumerate(table.fields):
        held = getattr(value, field.path)
        items = held if field.is_list else (held,)
        if number == 0:
            words.append(show(field.type, held))
        elif isinstance(field.type, Truth):
            words += [field.key] * bool(held)
        elif held not in (None, ()) and (field.is_required or show(field.type, held) != table.written_default(field)):
            words += [f"{field.key}={show(field.type, item)}" for item in items]
    return ",".join(words)
