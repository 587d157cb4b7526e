# SPDX-License-Identifier: Apache-2.0
"""Objects that a command line names, looked up one by one."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from vgpuctl.cli.support.output import say
from vgpuctl.errors import NotFound

Found = TypeVar("Found")


def find_each(
    tenant: str, names: Sequence[str], find: Callable[[str], Found], *, what: str, if_exists: bool
) -> list[Found]:
    """Look up each name once. Raises NotFound; with if_exists a missing one is a remark."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(find(name))
        except NotFound:
            if not if_exists:
                raise
            say(f"{tenant}/{name}: no such {what}, nothing to delete")
    return found
