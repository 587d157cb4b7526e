# SPDX-License-Identifier: Apache-2.0
"""A table of fields knows its defaults from the model and builds the model's values."""

from dataclasses import dataclass

import pytest

from vgpuctl.model.units import format_mib, parse_mib
from vgpuctl.specs.field import Field, Section, Table, Text, Truth, Whole


@dataclass(frozen=True)
class Shelf:
    """The base of a box."""

    size_mib: int = 1024
    colour: str | None = None


@dataclass(frozen=True)
class Box:
    """A thing that a test describes with a table."""

    name: str
    count: int = 3
    is_open: bool = False
    shelf: Shelf | None = None


BOX = Table(
    "box",
    Box,
    (
        Field("name", Text(), "Name of the box", is_required=True),
        Field("count", Whole(1, 9), "Number of boxes", flag="--count"),
        Field("open", Truth(), "Open the box", attribute="is_open", flag="--open"),
        Field("shelf.size", Text(parse_mib, format_mib), "Size of the shelf", attribute="shelf.size_mib"),
        Field("shelf.colour", Text(), "Colour of the shelf"),
    ),
    (Section("shelf", "The shelf under the box", opened_by=("size",)),),
)


def test_keys_and_sections_come_from_the_fields() -> None:
    assert BOX.keys == ("name", "count", "open", "shelf")
    assert [field.key for field in BOX.inside(BOX.sections[0])] == ["shelf.size", "shelf.colour"]
    assert BOX.field("shelf.size").parameter == "shelf_size"


@pytest.mark.parametrize(
    ("key", "default"),
    [("name", None), ("count", "3"), ("open", "false"), ("shelf.size", "1 GiB"), ("shelf.colour", None)],
)
def test_defaults_are_the_models_as_a_user_would_write_them(key: str, default: str | None) -> None:
    assert BOX.written_default(BOX.field(key)) == default


def test_nested_values_become_nested_dataclasses() -> None:
    assert BOX.build({"name": "a"}) == Box("a")
    assert BOX.build({"name": "a", "shelf": {}}) == Box("a", shelf=Shelf())
    assert BOX.build({"name": "a", "is_open": True, "shelf": {"size_mib": 5}}) == Box("a", 3, True, Shelf(5))
