# SPDX-License-Identifier: Apache-2.0
"""The fields of what users write. One table per thing; flags, files, JSON schema, comparison and docs follow from it.

A table says what a field is called, what it accepts and where the model keeps it. It reads nothing itself:
`specs.reading` reads files, `specs.flags` flags, `specs.schema` writes the JSON schema, `specs.comparison` compares.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from vgpuctl.errors import UsageError
from vgpuctl.model.masking import without_passwords

if TYPE_CHECKING:
    from vgpuctl.specs.value import Value

Model = TypeVar("Model")
_hints_of: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


class Parse(Protocol):
    """Turns a text into the model's value. what: the key or flag, for errors. Raises UsageError."""

    def __call__(self, text: str, /, *, what: str) -> Any:
        """Read one text."""


def plain_text(text: str, /, *, what: str) -> str:
    """Keep a text as it is: the parser of a field that has no format of its own."""
    return text


@dataclass(frozen=True)
class Text:
    """One line of text. show: writes the model's value as a user would. takes_numbers: a file may hold `4096` as well.

    pattern: a regular expression (of JSON schema) for editors; `parse` decides. hint: of the error for a value that is
    no text. table: a file may hold a mapping of these fields as well. may_be_empty: a file may hold "".
    """

    parse: Parse = plain_text
    show: Callable[[Any], str] = str
    takes_numbers: bool = False
    pattern: str | None = None
    hint: str | None = None
    table: "Table[Any] | None" = None
    may_be_empty: bool = False


def text_like(pattern: str, meaning: str, *, hint: str | None = None) -> Text:
    """A text that fits a regular expression. meaning: of such a text, for the error: `a PCI address`."""

    def parse(text: str, /, *, what: str) -> str:
        if not re.fullmatch(pattern, text):
            raise UsageError(f"{what} is {without_passwords(text)[:80]!r}, not {meaning}", hint=hint)
        return text

    return Text(parse, pattern=f"^(?:{pattern})$")


@dataclass(frozen=True)
class Whole:
    """A whole number between two bounds, both included."""

    lowest: int
    highest: int


@dataclass(frozen=True)
class Number:
    """A number between two bounds, both included. scale: the model keeps so many times the number, as a whole one."""

    lowest: float
    highest: float
    scale: int | None = None


@dataclass(frozen=True)
class Truth:
    """True or false; its flag takes no value."""


@dataclass(frozen=True)
class Choice:
    """One member of a closed set."""

    members: type[StrEnum]


@dataclass(frozen=True)
class Document:
    """A text of several lines. Its flag names a file that holds it, and comparisons never show it."""

    parse: Parse = plain_text


@dataclass(frozen=True)
class Named:
    """A mapping of names to values, or to lists of them. keep: what the model has, from the sorted pairs.

    A flag of one takes `NAME=VALUE` several times, and needs texts as values.
    """

    names: Text
    values: "Type"
    are_lists: bool = False
    keep: Callable[[list[tuple[Any, Any]]], Any] = tuple


Type: TypeAlias = "Text | Whole | Number | Truth | Choice | Document | Named | Table[Any]"
"""A table is a mapping with fields of its own."""


class Compared(StrEnum):
    """When two specifications of one name differ in this field."""

    ALWAYS = "always"
    IF_GIVEN = "if-given"
    """A specification that leaves the field out accepts any value."""
    NEVER = "never"


class Repeated(StrEnum):
    """When a list of a file has an item twice."""

    DROPPED = "dropped"
    COUNTED = "counted"
    """An item twice means two."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Field:
    """One field.

    key: in files; `disk.size` is the key `size` of the mapping `disk`. help: one line for --help, the schema and the
    docs, without the default. attribute: where the model keeps it, for example `disk.size_mib`; the key without it.
    flag: the option, None for a field without one. metavar: its value in --help. is_list: in a file a list, on the
    command line a flag that may be given several times. flag_names_file: the flag's value is a file whose text counts,
    as always for a Document. default: as a user would write it, where the model's own default does not say it.
    example: for the docs. parts: attributes beside `attribute`, for a parser that returns one value for each.
    is_set: of a list, the order means nothing, and the model has it sorted. at_least_one: an empty list is refused.
    may_stand_alone: a file may hold one item itself in place of the list. words: values with a meaning of their own,
    such as `all` or false, and what the model keeps for them. kinds: of the entries that may have the field, in a table
    with `kinds_by`; empty for all. may_lack: of these kinds those that need no such field, where it is required.
    without_placement: why no rule of placing looks at it, so that a form which asks
    where VMs fit leaves it out; empty for a field that may matter.
    """

    key: str
    type: Type
    help: str
    attribute: str = ""
    flag: str | None = None
    metavar: str | None = None
    is_list: bool = False
    is_required: bool = False
    flag_names_file: bool = False
    default: str | None = None
    example: str = ""
    compared: Compared = Compared.ALWAYS
    parts: tuple[str, ...] = ()
    is_set: bool = False
    repeated: Repeated = Repeated.DROPPED
    at_least_one: bool = False
    may_stand_alone: bool = False
    words: Mapping[str | bool, Any] = dataclasses.field(default_factory=dict)
    kinds: tuple[StrEnum, ...] = ()
    may_lack: tuple[StrEnum, ...] = ()
    without_placement: str = ""

    @property
    def path(self) -> str:
        """The attribute of the model, through its nested values: `disk.size_mib`."""
        return self.attribute or self.key

    @property
    def parameter(self) -> str:
        """The name under which a command receives its flag: `disk_size`."""
        return self.key.replace(".", "_")

    @property
    def is_several(self) -> bool:
        """True if its flag may be given several times."""
        return self.is_list or isinstance(self.type, Named)

    @property
    def names_file(self) -> bool:
        """True if the flag's value is the name of a file."""
        return self.flag_names_file or isinstance(self.type, Document)


@dataclass(frozen=True)
class Section:
    """A mapping inside a file (`disk:`), whose fields the model keeps in a value of its own.

    opened_by: keys; one of them must be given on the command line before the section's other flags mean anything.
    """

    key: str
    help: str
    attribute: str = ""
    opened_by: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The attribute of the model."""
        return self.attribute or self.key


@dataclass(frozen=True)
class Table(Generic[Model]):
    """All fields of one thing that users write.

    name: of the thing, for the docs: `a VM`. model: the frozen dataclass that it becomes. exactly_one: of the keys is
    given. kinds_by: the key whose value says which other keys an entry may have. make: the value of an entry of a
    file, from its fields' values, where it takes more than the model; raises InventoryError for fields that contradict
    each other. unmake: the model again, where `make` makes another value of it.
    """

    name: str
    model: type[Model]
    fields: tuple[Field, ...]
    sections: tuple[Section, ...] = ()
    exactly_one: bool = False
    kinds_by: str | None = None
    make: "Callable[[dict[str, Any], Value], Any] | None" = None
    unmake: Callable[[Any], Model] | None = None

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the outer mapping, in the table's order."""
        return tuple(dict.fromkeys(field.key.partition(".")[0] for field in self.fields))

    def field(self, key: str) -> Field:
        """The field of a key. Raises KeyError."""
        return self._fields_by_key[key]

    @cached_property
    def _fields_by_key(self) -> dict[str, Field]:
        return {field.key: field for field in self.fields}

    def inside(self, section: Section) -> tuple[Field, ...]:
        """The fields of a section."""
        return tuple(field for field in self.fields if field.key.startswith(f"{section.key}."))

    @cached_property
    def required(self) -> dict[str, tuple[str, ...]]:
        """The required keys of the outer mapping, at "", and of each section, at its key."""
        found: dict[str, tuple[str, ...]] = dict.fromkeys(("", *(section.key for section in self.sections)), ())
        for field in self.fields:
            section, _, key = field.key.rpartition(".")
            found[section] += (key,) * field.is_required
        return found

    def kinds_of(self, key: str) -> tuple[StrEnum, ...]:
        """The kinds of entries that may have a key of the outer mapping; empty for all."""
        return next(field.kinds for field in self.fields if field.key.partition(".")[0] == key)

    @cached_property
    def by_kind(self) -> "Mapping[StrEnum, Table[Model]]":
        """The table of each kind of entry; empty where all entries have the same fields."""
        by = self.field(self.kinds_by).type if self.kinds_by is not None else None
        return {kind: self._of_kind(kind) for kind in by.members} if isinstance(by, Choice) else {}

    def _of_kind(self, kind: StrEnum) -> "Table[Model]":
        own = (field for field in self.fields if not field.kinds or kind in field.kinds)
        fields = tuple(
            dataclasses.replace(field, is_required=field.is_required and kind not in field.may_lack) for field in own
        )
        return dataclasses.replace(self, fields=fields, kinds_by=None)

    def may_be_empty(self, field: Field) -> bool:
        """True if a key without a value means None. A word for None has to be written."""
        if field.is_required or self.exactly_one or None in field.words.values():
            return False
        return is_optional(self.model, field.path.split("."))

    def written_default(self, field: Field) -> str | None:
        """The default as a user would write it; None where leaving the field out means none."""
        if field.default is not None or field.is_required or field.is_list:
            return field.default
        value = default_at(self.model, field.path.split("."))
        return None if value in (None, (), "", frozenset()) else show(field.type, value)

    def build(self, values: Mapping[str, Any]) -> Model:
        """Make the model's value. values: by attribute, nested as the model is; what is missing has its default."""
        return _build(self.model, values)


def show(kind: Type, value: Any) -> str:
    """Write one value of the model as a user would."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, Named):
        return "=".join(map(str, value))
    return kind.show(value) if isinstance(kind, Text) else str(value)


def default_at(model: type[Any], path: list[str]) -> Any:
    """The default of an attribute of a dataclass, through nested dataclasses; None where it has none."""
    for field in dataclasses.fields(model):
        if field.name != path[0]:
            continue
        if path[1:]:
            return default_at(class_of(model, field.name), path[1:])
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return None if field.default is dataclasses.MISSING else field.default
    raise KeyError(f"{model.__name__} has no attribute {path[0]}")


def is_optional(model: type[Any], path: list[str]) -> bool:
    """True if an attribute of a dataclass may be None, through nested dataclasses."""
    for name in path[:-1]:
        model = class_of(model, name)
    return type(None) in typing.get_args(_hints_of(model)[path[-1]])


def class_of(model: type[Any], attribute: str) -> type[Any]:
    """The dataclass of an attribute that holds one, or one or None. Raises KeyError for another attribute."""
    hint = _hints_of(model)[attribute]
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for member in members:
        if dataclasses.is_dataclass(member) and isinstance(member, type):
            return member
    raise KeyError(f"{model.__name__}.{attribute} is no dataclass")


def _build(model: type[Model], values: Mapping[str, Any]) -> Model:
    made = {
        name: _build(class_of(model, name), value) if isinstance(value, dict) else value
        for name, value in values.items()
    }
    return model(**made)
