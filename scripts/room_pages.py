# SPDX-License-Identifier: Apache-2.0
"""The picture of the rooms in docs/architecture.md: the layers of pyproject.toml, each room with its docstring."""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator
from typing import Any

from page_parts import ROOT, between

_WIDTH = 17


def with_rooms(page: str) -> str:
    """The page with the picture of the rooms and the orders inside them, each between its two marks."""
    page = between(page, "rooms", "rooms", _picture())
    return between(page, "orders", "orders", _orders())


def _contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == kind]


def _layers(container: str) -> list[list[str]]:
    """The layers inside a package, the highest first; each has the names that share it."""
    [contract] = [one for one in _contracts("layers") if one["containers"] == [container]]
    return [re.split(r" [|:] ", layer) for layer in contract["layers"]]


def _picture() -> Iterator[str]:
    yield "```text"
    for number, layer in enumerate(_layers("vgpuctl")):
        yield from ["   │"] * bool(number)
        for room in layer:
            libraries = _libraries(room)
            text = f"  {room.ljust(_WIDTH)}{_sentence(room)}{f' [{libraries}]' * bool(libraries)}"
            yield from textwrap.wrap(text, 110, subsequent_indent=" " * (_WIDTH + 2), break_on_hyphens=False)
    yield "```"


def _orders() -> Iterator[str]:
    for name in ("usecases", "guests", "agent"):
        yield f"- `{name}/`: " + " > ".join(", ".join(layer) for layer in _layers(f"vgpuctl.{name}"))


def _libraries(room: str) -> str:
    """The libraries that few rooms may import, this one among them."""
    found = [
        library
        for one in _contracts("protected")
        if any(f"{importer}.".startswith(f"vgpuctl.{room}.") for importer in one["allowed_importers"])
        for library in one["protected_modules"]
        if not library.startswith("vgpuctl")
    ]
    return ", ".join(sorted(found, key=str.lower))


def _sentence(room: str) -> str:
    """The first sentence of a room's docstring. Raises ValueError for one without."""
    place = ROOT / "vgpuctl" / room
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"{module.relative_to(ROOT)} has no docstring, which docs/architecture.md shows")
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
