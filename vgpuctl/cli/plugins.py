# SPDX-License-Identifier: Apache-2.0
"""Commands that other installed packages add to `vgpuctl`, by the entry point group `vgpuctl.commands`.

An entry point's name is the command's, its value a `click.Command`. The package's summary is the command's line in
`vgpuctl --help`, so that help imports none of them.
"""

import functools
from dataclasses import dataclass
from typing import Any

GROUP = "vgpuctl.commands"

PACKAGES = {"lab": "vgpuctl-lab"}
"""The package that adds each known command, for the error when it is not installed."""


@dataclass(frozen=True)
class Plugin:
    """One added command. text: its line in the table of contents."""

    text: str
    entry_point: Any

    def load(self) -> Any:
        """Import the command."""
        return self.entry_point.load()


@functools.cache
def installed() -> dict[str, Plugin]:
    """Return the added commands by name."""
    from importlib.metadata import entry_points

    return {
        one.name: Plugin(f"{one.dist.metadata['Summary']}." if one.dist is not None else "", one)
        for one in sorted(entry_points(group=GROUP), key=lambda one: one.name)
    }
