# SPDX-License-Identifier: Apache-2.0
"""The time at which an operator wants a GPU attached or detached."""

from enum import Enum

from vgpuctl.sharing.hot_plug import HotPlug, PlugTime


class PlugWish(Enum):
    """as it goes: while the guest runs where the kind does that by itself, else at the next start."""

    AS_IT_GOES = "as it goes"
    NOW = "--live"
    AT_NEXT_START = "--next-start"

    def refuses(self, answer: HotPlug) -> str | None:
        """Say why it is not tried while the guest runs; None when it is."""
        if self is PlugWish.AT_NEXT_START:
            return "--next-start was given"
        if answer.time is PlugTime.NOW or (answer.time is PlugTime.ON_REQUEST and self is PlugWish.NOW):
            return None
        also = "; --live tries it" if answer.time is PlugTime.ON_REQUEST else ""
        return f"{answer.reason}{also}"
