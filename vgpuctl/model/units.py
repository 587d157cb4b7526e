# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them, in MiB."""

import re

from vgpuctl.errors import UsageError

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)")
SIZE_HINT = "write for example 512MiB or 2GiB"
_LONGEST = 40
MIB = 2**20
"""In bytes."""
_LARGEST_MIB = 1 << 40
_UNITS_MIB = {
    "": 1.0,
    "m": 1.0,
    "mb": 1e6 / 2**20,
    "mib": 1.0,
    "g": 1024.0,
    "gb": 1e9 / 2**20,
    "gib": 1024.0,
    "t": 1024.0**2,
    "tb": 1e12 / 2**20,
    "tib": 1024.0**2,
}


def parse_mib(text: str, *, what: str) -> int:
    """Read a size such as `2GiB`, `512M` or `1.5G` as whole MiB: the one reader of sizes, for every entry.

    A number alone is refused: other tools read `8` as MiB, GiB or bytes. what: the option or field, for the error.
    Raises UsageError for anything else, and for less than 1 MiB.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or match["unit"].lower() not in _UNITS_MIB:
        raise UsageError(f"{what} is {text[:_LONGEST]!r}, which is not a size", hint=SIZE_HINT)
    number = match["number"]
    if not match["unit"] and float(number):
        raise UsageError(f"{what} is {number!r}, a size without a unit", hint=f"write {number}MiB or {number}GiB")
    size = int(float(number) * _UNITS_MIB[match["unit"].lower()])
    if size < 1:
        raise UsageError(f"{what} is {text!r}, which is less than 1 MiB")
    if size > _LARGEST_MIB:
        raise UsageError(f"{what} is {text!r}, which is more than 1 EiB")
    return size


def format_mib(size_mib: int) -> str:
    """Write a size the way people read it: `512 MiB`, `2 GiB`, `1.5 GiB`."""
    if size_mib < 1024:
        return f"{size_mib} MiB"
    gib = size_mib / 1024
    return f"{gib:.0f} GiB" if gib == int(gib) else f"{gib:.1f} GiB"


def exact_mib(size_mib: int) -> str:
    """Write a size so that `parse_mib` reads the same again: `512MiB`, `2GiB`, `1500MiB`."""
    return f"{size_mib}MiB" if size_mib % 1024 else f"{size_mib // 1024}GiB"
