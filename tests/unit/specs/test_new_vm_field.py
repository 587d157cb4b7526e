# SPDX-License-Identifier: Apache-2.0
"""The cost of a new field of a VM: one row of the table. Flag, file, schema, comparison and docs follow from it."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import click
import pytest
from click.testing import CliRunner

from vgpuctl.cli.options.field_options import field_options
from vgpuctl.errors import InventoryError
from vgpuctl.model.vm import VmRequest
from vgpuctl.specs.comparison import list_differences
from vgpuctl.specs.differing import differing_fields
from vgpuctl.specs.document import parse_document
from vgpuctl.specs.field import Choice, Field, class_of
from vgpuctl.specs.fields_page import describe_fields
from vgpuctl.specs.flags import read_flags
from vgpuctl.specs.reading import read_file_entry
from vgpuctl.specs.schema import schema_of
from vgpuctl.specs.value import Value
from vgpuctl.specs.vm import ALL_FIELDS, VM


class Watchdog(StrEnum):
    """The action of a watchdog on the guest."""

    RESET = "reset"
    POWEROFF = "poweroff"


@dataclass(frozen=True)
class WatchedRequest(VmRequest):
    """The model with one more attribute."""

    watchdog: Watchdog | None = None


ROW = Field("watchdog", Choice(Watchdog), "Action when the guest hangs", flag="--watchdog")
TABLE = replace(VM, model=WatchedRequest, fields=(*VM.fields, ROW))


def _read(text: str) -> VmRequest:
    document = parse_document("vm.yml", text)
    return TABLE.build(
        {"tenant": "acme"} | read_file_entry(TABLE, Value(document.data, document.origin(), "", name="vm"))
    )


def test_the_field_is_a_flag() -> None:
    given: dict[str, Any] = {}

    @click.command()
    @field_options(TABLE)
    def command(**options: Any) -> None:
        given.update(options)

    done = CliRunner().invoke(command, ["--watchdog", "reset"])
    assert done.exit_code == 0, done.output
    assert read_flags(TABLE.fields, given) == {"watchdog": Watchdog.RESET}
    assert "Action when the guest hangs." in CliRunner().invoke(command, ["--help"]).output


def test_the_field_is_a_key_of_a_file() -> None:
    assert _read("name: web-1\nwatchdog: reset\n") == WatchedRequest("web-1", "acme", watchdog=Watchdog.RESET)
    with pytest.raises(InventoryError, match=r"vm\.yml:2: vm\.watchdgo is not a key") as refused:
        _read("name: web-1\nwatchdgo: reset\n")
    assert refused.value.hint == "did you mean watchdog?"
    with pytest.raises(InventoryError, match=r"vm\.yml:2: vm\.watchdog is 'power'"):
        _read("name: web-1\nwatchdog: power\n")


def test_the_field_is_a_property_of_the_schema() -> None:
    assert schema_of(TABLE)["properties"]["watchdog"] == {
        "description": "Action when the guest hangs",
        "enum": ["reset", "poweroff", None],
    }


def test_the_field_is_compared_and_in_the_docs() -> None:
    plain, watched = WatchedRequest("web-1", "acme"), WatchedRequest("web-1", "acme", watchdog=Watchdog.RESET)
    assert list_differences(TABLE, plain, watched) == ["watchdog: none there, reset wanted"]
    assert "| `watchdog` | `--watchdog` | reset, poweroff |  | Action when the guest hangs |" in describe_fields(TABLE)


def test_a_field_with_its_default_changes_no_metadata() -> None:
    assert differing_fields(WatchedRequest("web-1", "acme")) == {"name": "web-1", "tenant": "acme"}
    assert differing_fields(WatchedRequest("web-1", "acme", watchdog=Watchdog.RESET))["watchdog"] == "reset"


def test_every_attribute_of_the_model_has_one_row() -> None:
    written = [path for field in ALL_FIELDS.fields for path in _paths_of(field)]
    assert sorted(written) == sorted(set(_leaves(VmRequest)) - {"domain"}), (
        "domain: of an adopted VM, not written by users"
    )


def _paths_of(field: Field) -> list[str]:
    way, dot, _ = field.path.rpartition(".")
    return [field.path, *(f"{way}{dot}{part}" for part in field.parts)]


def _leaves(model: type[Any], prefix: str = "") -> list[str]:
    sections = {section.path for section in VM.sections} | {"constraints"}
    found = []
    for one in fields(model):
        path = f"{prefix}{one.name}"
        if path in sections:
            found += _leaves(class_of(model, one.name), f"{path}.")
        else:
            found.append(path)
    return found
