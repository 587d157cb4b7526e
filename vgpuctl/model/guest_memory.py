# SPDX-License-Identifier: Apache-2.0
"""The memory of guests: how much, and whether it is made of huge pages."""

import re
from typing import NamedTuple

from vgpuctl.errors import UsageError
from vgpuctl.model.units import exact_mib, format_mib, parse_mib

_KIB = re.compile(r"(?P<number>[0-9]{1,12})\s*k(?:i?b)?", re.IGNORECASE)


class GuestMemory(NamedTuple):
    """page_kib: size of the huge pages that it is made of, None for ordinary memory."""

    mib: int = 0
    page_kib: int | None = None


NO_MEMORY = GuestMemory()


def parse_page_size(text: str, *, what: str) -> int:
    """Read the size of a huge page, such as `2MiB`, `1GiB` or `64KiB`, in KiB. Raises UsageError."""
    match = _KIB.fullmatch(text.strip())
    size_kib = int(match["number"]) if match is not None else parse_mib(text, what=what) * 1024
    if not size_kib or size_kib & (size_kib - 1):
        raise UsageError(f"{what} is {text!r}", hint="a page size is a power of two: 2MiB or 1GiB")
    return size_kib


def format_page_size(size_kib: int) -> str:
    """`2 MiB`, `1 GiB`, `64 KiB`."""
    return f"{size_kib} KiB" if size_kib % 1024 else format_mib(size_kib // 1024)


def exact_page_size(size_kib: int) -> str:
    """Write a page size so that `parse_page_size` reads the same again: `2MiB`, `1GiB`, `64KiB`."""
    return f"{size_kib}KiB" if size_kib % 1024 else exact_mib(size_kib // 1024)
