# SPDX-License-Identifier: Apache-2.0
"""JSON schemas from types: they take what `plain` makes of a value, and nothing else."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import click
import jsonschema
import pytest

from vgpuctl.cli.forms.json_schema import DRAFT, output_schema
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import plain

Held = TypeVar("Held")


class Colour(StrEnum):
    """Colours of a card."""

    RED = "red"
    GREEN = "green"


class Width(Enum):
    NARROW = 8
    WIDE = 16


@dataclass(frozen=True)
class Card:
    """A card. parent: the card that it is part of."""

    name: str
    colour: Colour
    width: Width = Width.NARROW
    memory_mib: int | None = None
    load: float = 0.0
    parent: "Card | None" = None
    pairs: Sequence[tuple[str, int]] = ()
    of_colour: Mapping[Colour, int] = field(default_factory=dict)
    mode: Literal["on", "off"] = "on"


@dataclass(frozen=True)
class Box(Generic[Held]):
    """A box."""

    held: Held
    every: Sequence[Held] = ()


class Printed(TypedDict):
    """The output of the first command."""

    box: Box[Card]
    anything: object
    remark: NotRequired[str]


class Measured(TypedDict):
    """load: measured now."""

    load: str
    watts: NotRequired[int]


_FIRST: "JsonOutput[Printed]" = JsonOutput(["first"])
_SECOND: "JsonOutput[Card | list[str]]" = JsonOutput(["second"])
_MERGED: "JsonOutput[WithFields[Card, Measured]]" = JsonOutput(["merged"])
_BAD: "JsonOutput[complex]" = JsonOutput(["bad"])


def _schema(name: str) -> Mapping[str, Any]:
    @click.command(name)
    def command() -> None:
        """A command of this module."""

    schema = output_schema(command)
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def _fits(name: str, value: object) -> bool:
    document = json.loads(json.dumps(plain(value)))
    return bool(jsonschema.Draft202012Validator(_schema(name)).is_valid(document))


CARD = Card("a", Colour.RED, Width.WIDE, 8, 1, Card("b", Colour.GREEN), (("x", 1),), {Colour.RED: 2}, "off")


def test_a_value_of_the_type_fits() -> None:
    assert _fits("first", {"box": Box(CARD, [CARD]), "anything": [1, {}]})
    assert _fits("first", {"box": Box(CARD), "anything": None, "remark": "yes"})
    assert _fits("second", CARD)
    assert _fits("second", ["a"])


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"colour": "blue"},
        {"width": 9},
        {"memory_mib": 1.5},
        {"load": "high"},
        {"parent": {}},
        {"pairs": [["x"]]},
        {"pairs": [["x", 1, 2]]},
        {"of_colour": {"blue": 1}},
        {"mode": "half"},
        {"more": 1},
    ],
)
def test_a_value_of_another_type_does_not_fit(change: Mapping[str, object]) -> None:
    assert _fits("second", plain(CARD) | change) is False


def test_a_lacking_field_does_not_fit() -> None:
    whole = plain(CARD)
    assert not [name for name in whole if _fits("second", {key: whole[key] for key in whole if key != name})]


def test_fields_of_a_second_value_are_added_and_replace_others() -> None:
    assert _fits("merged", WithFields(CARD, {"load": "high", "watts": 3}))
    assert _fits("merged", WithFields(CARD, {"load": "high"}))
    assert _fits("merged", CARD) is False


def test_the_schema_names_its_draft_and_describes_its_classes() -> None:
    schema = _schema("first")
    assert schema["$schema"] == DRAFT
    assert schema["description"] == "The output of the first command."
    assert schema["$defs"]["Card"]["description"] == "A card. parent: the card that it is part of."
    assert "description" not in schema["$defs"]["Width"]


def test_a_type_without_json_is_refused() -> None:
    with pytest.raises(TypeError, match="complex"):
        _schema("bad")
