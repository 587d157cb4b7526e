# SPDX-License-Identifier: Apache-2.0
"""Natural order: `web-2` before `web-10`."""

import re
from typing import Any

_DIGITS = re.compile(r"([0-9]{1,18})")


def natural(text: str) -> tuple[Any, ...]:
    """The key of a text in natural order: its numbers are compared by size, its letters without regard to case."""
    parts = _DIGITS.split(text.lower())
    return tuple((int(one), "") if index % 2 else (-1, one) for index, one in enumerate(parts))
