# SPDX-License-Identifier: Apache-2.0
"""Natural order: `web-2` before `web-10`. Every list of names is in it."""

import re
from typing import Any

_PARTS = re.compile(
    r"(?P<address>\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)|(?P<number>[0-9]{1,18})|(?P<text>[^0-9]+)"
)


def natural(text: str) -> tuple[Any, ...]:
    """The key of a text in natural order: its numbers are compared by size, its letters without regard to case.
    Digits stand before other characters.

    A PCI address is one part, compared as text: its digits are hexadecimal and of one width.
    """
    return tuple(
        (0, int(match[0]), "") if match.lastgroup == "number" else (1, 0, match[0])
        for match in _PARTS.finditer(text.lower())
    )


def natural_path(name: str) -> tuple[Any, ...]:
    """The key of a name of several parts, `TENANT/NAME` or `HOST/ADDRESS`: part by part in natural order."""
    return tuple(map(natural, name.split("/")))
