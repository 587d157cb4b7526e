# SPDX-License-Identifier: Apache-2.0
"""Versions of programs as numbers that can be compared."""

import re

_PARTS = 3


def version_of(text: str | None) -> tuple[int, ...]:
    """Return the first numbers of a version, `(10, 0, 0)` for `10.0.0-2ubuntu8`; empty for an unknown one."""
    return tuple(int(part[:9]) for part in re.findall(r"\d+", text or "")[:_PARTS])
