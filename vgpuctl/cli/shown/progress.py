# SPDX-License-Identifier: Apache-2.0
"""The progress of a run over hosts: one line that is rewritten on a terminal, else a line every five seconds."""

import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.shown.output import say, show_status
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.hosts.fleet import FleetProgress

_QUICK_S = 0.5
_NAMES_AFTER_S = 3.0
_INTERVAL_S = 5.0
_MOST_NAMES = 5
_PIPED_WIDTH = 120


class FleetLine:
    """Shows the progress of runs over hosts on stderr; hosts that are slow to answer are named.

    On a terminal the line is rewritten, and erased when the run ends. Elsewhere a run of less than five seconds is
    silent. A run in another thread than the main one, as servers have, is not shown.
    """

    def __init__(self) -> None:
        self._said_at_s = 0.0

    def __call__(self, progress: "FleetProgress") -> None:
        """Show the progress as it is now."""
        if threading.current_thread() is not threading.main_thread():
            return
        if sys.stderr.isatty():
            self._rewrite(progress)
        else:
            self._say(progress)

    def _rewrite(self, progress: "FleetProgress") -> None:
        if progress.is_over:
            show_status("")
        elif progress.elapsed_s >= _QUICK_S:
            show_status(progress_text(progress, _width()))

    def _say(self, progress: "FleetProgress") -> None:
        if progress.elapsed_s < self._said_at_s:
            self._said_at_s = 0.0
        if progress.elapsed_s - self._said_at_s < _INTERVAL_S and not (progress.is_over and self._said_at_s):
            return
        self._said_at_s = 0.0 if progress.is_over else progress.elapsed_s
        say(progress_text(progress, _PIPED_WIDTH))


def progress_text(progress: "FleetProgress", width: int) -> str:
    """`58 of 60 hosts, 1 failed, 12 s; waiting for gpu7, gpu9`, in fewer than `width` columns."""
    text = f"{progress.done} of {counted(progress.total, 'host')}"
    text += f", {progress.failed} failed" if progress.failed else ""
    text += f", {progress.elapsed_s:.0f} s"
    if progress.elapsed_s < _NAMES_AFTER_S or not progress.at_work:
        return text[: width - 1]
    for count in range(min(len(progress.at_work), _MOST_NAMES), 0, -1):
        more = len(progress.at_work) - count
        names = ", ".join(progress.at_work[:count]) + (f" and {more} more" if more else "")
        if len(whole := f"{text}; waiting for {names}") < width:
            return whole
    return whole[: width - 1]


def waiting_text(lines: Sequence[str], condition: str, elapsed_s: float) -> str:
    """`12 s; waiting for 2 VMs to be running; acme/web-1: queued: no GPU fits`, in one line of this terminal.

    lines: of what is awaited.
    """
    text = f"{elapsed_s:.0f} s; waiting for {counted(len(lines), 'VM')} to be {condition}; {lines[0]}"
    return text[: _width() - 1]


def _width() -> int:
    """Columns of the terminal that stderr is."""
    from vgpuctl.cli.shown.terminal import terminal_width

    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or terminal_width()
    except OSError:
        return terminal_width()
