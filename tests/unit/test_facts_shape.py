# SPDX-License-Identifier: Apache-2.0
"""Cached facts are read again when any type in them has changed, however deep it lies."""

from dataclasses import is_dataclass, make_dataclass
from typing import Any

import pytest

from vgpuctl.agent.wire import facts
from vgpuctl.agent.wire.steps import Chassis
from vgpuctl.store import codec


def _shape(kind: Any) -> str:
    found: dict[str, str] = {}
    codec._add_shape(kind, found)
    return repr(found)


def _outer(inner: Any) -> Any:
    return make_dataclass("Outer", [("parts", tuple[inner, ...]), ("name", str)])


@pytest.mark.parametrize("fields", [[("a", int), ("b", int)], [("b", int)], [("a", str)], [("a", int | None)]], ids=str)
def test_a_type_within_types_counts(fields: list[tuple[str, Any]]) -> None:
    before = _outer(make_dataclass("Inner", [("a", int)]))
    assert _shape(before) == _shape(_outer(make_dataclass("Inner", [("a", int)])))
    assert _shape(before) != _shape(_outer(make_dataclass("Inner", fields)))


def test_every_type_of_the_facts_is_in_the_fingerprint() -> None:
    found: dict[str, str] = {}
    codec._add_shape(facts.HostFacts, found)
    of_module = {name for name, kind in vars(facts).items() if isinstance(kind, type) and is_dataclass(kind)}
    assert {*of_module, Chassis.__name__} <= set(found)
