# SPDX-License-Identifier: Apache-2.0
"""Typed access to the catalogue. The file is read on the first question (about 3 ms) and kept."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

from vgpuctl import typed_json
from vgpuctl.catalog.entries import (
    Board,
    CatalogFile,
    CatalogType,
    ComputeInstanceProfile,
    MigTable,
    PlacementTable,
)

_FILE = Path(__file__).parent / "data" / "catalog.json"
_VENDORS = ("nvidia", "amd", "intel")


@cache
def _catalog() -> CatalogFile:
    catalog: CatalogFile = typed_json.decode(_FILE.read_bytes(), CatalogFile)
    return catalog


@cache
def boards() -> Mapping[str, Board]:
    """Every known GPU model by its key (`nvidia-a40`)."""
    return {entry.key: entry for entry in _catalog().boards}


def board(key: str) -> Board:
    """The GPU model of this key. Raises KeyError."""
    return boards()[key]


@cache
@lru_cache(maxsize=512)
def board_by_pci(vendor_id: str, device_id: str, subsystem_id: str | None = None) -> Board | None:
    """The GPU model of these PCI ids, None when unknown.

    Ids with or without `0x`; subsystem_id as `vendor:device`. One device id can stand for several products (25b6
    is A2 and A16): the subsystem decides; without a match the answer is the only candidate, or None.
    """
    wanted = f"{_hex_id(vendor_id)}:{_hex_id(device_id)}"
    subsystem = None
    if subsystem_id:
        subsystem = ":".join(_hex_id(part) for part in subsystem_id.split(":"))
    candidates = [entry for entry in boards().values() if wanted == entry.pci or wanted in entry.also_pci]
    for entry in candidates:
        if subsystem in entry.subsystems:
            return entry
    return candidates[0] if len(candidates) == 1 else None


@cache
def boards_named(text: str) -> tuple[Board, ...]:
    """GPU models a user means by `A40`, `h100`, `flex-170` or `RTX 6000 Ada`, without case.

    A full key or name (with or without the vendor) means that model alone; else every model whose key or name
    has these words in a row. Empty when none has.
    """
    wanted = words_of(text)
    exact = tuple(entry for entry in boards().values() if wanted in _spellings(entry.key))
    if exact or not wanted:
        return exact
    return tuple(entry for entry in boards().values() if any(has_words(name, wanted) for name in _spellings(entry.key)))


def words_of(text: str) -> tuple[str, ...]:
    """The words and numbers of a model's name, in lower case."""
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


def has_words(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """True if `wanted` stands in `words`, in a row."""
    length = len(wanted)
    return any(words[start : start + length] == wanted for start in range(len(words) - length + 1))


def types_of(entry: Board) -> tuple[CatalogType, ...]:
    """The vGPU types of a GPU model; empty when it has none or none were found."""
    listed = _catalog().types.get(entry.types_key) if entry.types_key else None
    return listed.types if listed else ()


def type_by_name(entry: Board, name: str) -> CatalogType | None:
    """The vGPU type of this short name on this GPU model."""
    return _types_by_name(entry.key).get(name)


def type_by_id(entry: Board, type_id: str) -> CatalogType | None:
    """The vGPU type of an id as a host writes it (`558` or `nvidia-558`), also by an inferred id."""
    digits = type_id.rpartition("-")[2]
    return _types_by_id(entry.key).get(int(digits)) if digits.isdecimal() and len(digits) < 10 else None


@cache
def type_names() -> tuple[str, ...]:
    """Every short type name of the catalogue, sorted."""
    return tuple(sorted({one.name for listed in _catalog().types.values() for one in listed.types}))


@cache
def boards_with_type(name: str) -> tuple[Board, ...]:
    """The GPU models that offer a type of this short name (case counts)."""
    return tuple(entry for entry in boards().values() if type_by_name(entry, name))


def mig_table(entry: Board) -> MigTable | None:
    """The MIG profiles of a GPU model, None when it cannot be partitioned."""
    return _catalog().mig_tables[entry.mig.table] if entry.mig.table else None


def compute_instance_profiles(slices: int) -> tuple[ComputeInstanceProfile, ...]:
    """The compute-instance profiles of a GPU instance of so many compute slices; empty when none were found."""
    return _catalog().ci_profiles.get(slices, ())


def mixed_size_table(entry: Board) -> PlacementTable | None:
    """The placement ids of mixed-size mode for a GPU model, None when it has none or they were not found."""
    listed = _catalog().types.get(entry.types_key) if entry.types_key else None
    if listed is None or listed.placement_table is None:
        return None
    return _catalog().placement_tables[listed.placement_table]


@cache
def _types_by_name(key: str) -> Mapping[str, CatalogType]:
    return {one.name: one for one in types_of(board(key))}


@cache
def _types_by_id(key: str) -> Mapping[int, CatalogType]:
    known = {one.inferred_type_id: one for one in types_of(board(key)) if one.inferred_type_id is not None}
    return known | {one.type_id: one for one in types_of(board(key)) if one.type_id is not None}


@cache
def _spellings(key: str) -> tuple[tuple[str, ...], ...]:
    entry = board(key)
    both = (words_of(entry.key), words_of(entry.name))
    return both + tuple(name[1:] for name in both if name[0] in _VENDORS)


def _hex_id(text: str) -> str:
    return text.lower().removeprefix("0x").rjust(4, "0")


def sizes_differ(types: Sequence[str]) -> bool:
    """True if vGPU types are of several sizes on every board that offers them all; False for unknown types."""
    if len(types) < 2:
        return False
    offers = [[type_by_name(board, name) for name in types] for board in boards_with_type(types[0])]
    sizes = [{one.fb_mib for one in offered if one is not None} for offered in offers if None not in offered]
    return bool(sizes) and all(len(of_board) > 1 for of_board in sizes)
