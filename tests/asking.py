# SPDX-License-Identifier: Apache-2.0
"""The commands that ask before they go on, as docs/conventions.md has them with their reasons."""

import re
from functools import cache
from pathlib import Path


@cache
def asking() -> frozenset[str]:
    """The commands of the page's table."""
    page = (Path(__file__).parents[1] / "docs" / "conventions.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\| `([a-z-]+)` \| it [^|]+ \|$", page, re.M))


ASKING_FOR_SEVERAL = frozenset(
    {
        "start-vm",
        "stop-vm",
        "suspend-vm",
        "resume-vm",
        "restart-vm",
        "move-vm",
        "label-vm",
        "apply-hosts",
        "quarantine-gpu",
    }
)
"""Commands that ask only before VMs are changed that nobody named one by one, or a layout."""
