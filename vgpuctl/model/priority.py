# SPDX-License-Identifier: Apache-2.0
"""Priorities: a number from 0 to 1000, or the name of a class."""

from enum import IntEnum

from vgpuctl.errors import UsageError

HIGHEST = 1000


class PriorityClass(IntEnum):
    """The classes that have names."""

    LOW = 100
    NORMAL = 500
    HIGH = 700
    CRITICAL = 900


def parse_priority(text: str, *, what: str) -> int:
    """Read `low`, `normal`, `high`, `critical` or a number from 0 to 1000. Raises UsageError."""
    written = text.strip().lower()
    if written.upper() in PriorityClass.__members__:
        return int(PriorityClass[written.upper()])
    if written.isascii() and written.isdigit() and len(written) <= 4 and int(written) <= HIGHEST:
        return int(written)
    names = ", ".join(f"{one.name.lower()} ({one.value})" for one in PriorityClass)
    raise UsageError(f"{what} {text!a} is no priority", hint=f"use {names} or a number from 0 to {HIGHEST}")


def format_priority(priority: int) -> str:
    """Write a priority as `parse_priority` reads it: `normal`, or `501`."""
    known = {int(one): one.name.lower() for one in PriorityClass}
    return known.get(priority, str(priority))
