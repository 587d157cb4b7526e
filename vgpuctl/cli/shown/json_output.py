# SPDX-License-Identifier: Apache-2.0
"""The JSON of a command, by its declared type.

A module of a command has `_JSON: "JsonOutput[Type]"`, or a `Listing` whose last type is that of a row. mypy checks that
the command prints that type, and `vgpuctl.cli.forms.json_schema` makes the command's schema from the same words.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from vgpuctl.cli.shown.output import plain, print_json

if TYPE_CHECKING:
    from vgpuctl.errors import VgpuctlError

Printed_contra = TypeVar("Printed_contra", contravariant=True)
Base = TypeVar("Base")
More = TypeVar("More")
JsonStep = Mapping[str, object]
"""A step: its kind as `op`, and the values that this kind has."""


class JsonOutput(Generic[Printed_contra]):
    """Prints values of one type as JSON, or YAML where `-o yaml` was given.

    commands: beginnings of the names of those commands of the module that print it.
    """

    def __init__(self, commands: Sequence[str] = ("",)) -> None:
        self.commands = commands

    def print(self, value: Printed_contra, *, indent: int | None = 2) -> None:
        """Print the value; indent None for one line."""
        print_json(value, indent=indent)


class WithFields(dict[str, Any], Generic[Base, More]):
    """The fields of one value, and those of another, which also replace fields of the same name."""

    def __init__(self, base: Base, more: More) -> None:
        super().__init__({**plain(base), **plain(more)})


class JsonFailure(TypedDict):
    """A host that gave no answer, and why."""

    host: str
    message: str


class JsonError(TypedDict):
    """An error. reference: its stable name (docs/errors.md). hint: what to do, where that is known."""

    reference: str
    message: str
    context: Sequence[str]
    hint: str | None


def failures_json(failures: "Iterable[tuple[str, VgpuctlError]]") -> list[JsonFailure]:
    """Hosts that gave no answer, as --json has them."""
    return [{"host": name, "message": error.message} for name, error in failures]


def error_json(error: "VgpuctlError | None") -> JsonError | None:
    """An error as --json has it."""
    if error is None:
        return None
    return {
        "reference": error.reference,
        "message": error.message,
        "context": list(error.context),
        "hint": error.hint,
    }
