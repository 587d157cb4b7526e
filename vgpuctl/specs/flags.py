# SPDX-License-Identifier: Apache-2.0
"""From a command's arguments and flags to the values of a table's fields."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.specs.field import Choice, Document, Field, Named, Repeated, Table, Text
from vgpuctl.specs.ssh_keys import lines_of_keys


def read_flags(
    fields: Iterable[Field], given: Mapping[str, Any], read_file: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """The values of the arguments and flags that were given, by attribute. Raises UsageError.

    given: by `Field.parameter`; None and () are not given. read_file: the text of a file that a flag names.
    """
    values: dict[str, Any] = {}
    for field in fields:
        written = given.get(field.parameter)
        if written in (None, ()):
            continue
        if isinstance(field.type, Named):
            store_value(values, field, _read_pairs(field, field.type, written))
            continue
        texts = [written] if not field.is_list else written
        if field.names_file and read_file is not None:
            texts = [read_file(path) for path in texts]
            if field.is_list:  # of public keys, the only such list
                texts = [line for text in texts for line in lines_of_keys(text)]
        made = [read_text(field, text) for text in texts]
        store_value(values, field, collect(field, made) if field.is_list else made[0])
    return values


def read_text(field: Field, text: Any) -> Any:
    """One value as a command gets it. Raises UsageError."""
    if isinstance(field.type, Choice):
        return _read_choice(field, field.type, text)
    if not isinstance(field.type, Text | Document):
        return text
    one = text.strip() if field.names_file and isinstance(field.type, Text) else text
    return field.type.parse(one, what=field.flag or field.key)


def _read_choice(field: Field, kind: Choice, text: str) -> Any:
    try:
        return kind.members(text)
    except ValueError as error:  # of an argument: click knows what a flag accepts
        raise UsageError(
            f"{field.flag or field.key} is {text[:80]!a}", hint=f"it can be {', '.join(kind.members)}"
        ) from error


def _read_pairs(field: Field, kind: Named, texts: Iterable[str]) -> Any:
    """The mapping of a flag `NAME=VALUE` that was given several times."""
    found: dict[Any, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not isinstance(kind.values, Text):
            raise UsageError(f"{field.flag}: {text[:80]!a} is no {field.metavar}", hint=f"write {field.metavar}")
        key = kind.names.parse(name, what=str(field.flag))
        made = kind.values.parse(value, what=str(field.flag))
        if found.setdefault(key, made) != made:
            raise UsageError(f"{field.flag}: {name} is given twice, with two values", hint="give each key once")
    return kind.keep(sorted(found.items()))


def refuse_lone_flags(table: Table[Any], given: Mapping[str, Any]) -> None:
    """Raise UsageError for a flag that means nothing without another: `--initrd` needs `--kernel`."""
    found = [field for field in table.fields if given.get(field.parameter) not in (None, ())]
    for section in table.sections:
        inside = [field for field in table.inside(section) if field in found]
        openers = [table.field(f"{section.key}.{key}") for key in section.opened_by]
        if inside and openers and not any(field in found for field in openers):
            flags = " or ".join(str(field.flag) for field in openers)
            raise UsageError(f"{inside[0].flag} needs {flags}", hint=f"give {flags} as well")


def collect(field: Field, made: list[Any]) -> tuple[Any, ...]:
    """The values of a list: each once, unless a repetition means something."""
    if field.repeated is Repeated.COUNTED:
        return tuple(made)
    return tuple(sorted(set(made)) if field.is_set else dict.fromkeys(made))


def store_value(values: dict[str, Any], field: Field, value: Any) -> None:
    """Put a value at its attribute; a field with parts has one value for each."""
    way, _, last = field.path.rpartition(".")
    inner = values.setdefault(way, {}) if way else values
    if field.parts and value is not None:
        inner.update(zip((last, *field.parts), value, strict=True))
    else:
        inner[last] = value
