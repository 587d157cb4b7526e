# SPDX-License-Identifier: Apache-2.0
"""The progress of a run over hosts: one line that is rewritten on a terminal, else a line every five seconds."""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.shown.output import print_line, say, show_if_silent, show_status
from vgpuctl.logs import Call, calls_under_way
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.hosts.fleet import FleetProgress

_QUICK_S = 0.5
_NAMES_AFTER_S = 3.0
_INTERVAL_S = 5.0
_MOST_NAMES = 5
_PIPED_WIDTH = 120
_SILENCE_S = 0.8
_LOOK_S = 0.25
_AWAITED: "Mapping[str, str]" = {
    "agent-call": "{host}",
    "ansible": "ansible-inventory",
    "libvirt-call": "libvirt: {action}",
    "libvirt-open": "libvirt on {host}",
    "ovn-apply": "OVN",
    "slurm": "{program} of cluster {cluster}",
    "ssh-login": "{host}",
    "ssh-run": "{host}",
    "ssh-start": "{host}",
    "store-transaction": "the store",
}
"""What is waited for during each call of the log."""


class FleetLine:
    """Shows the progress of runs over hosts on stderr; hosts that are slow to answer are named.

    On a terminal the line is rewritten, and erased when the run ends. Elsewhere a run of less than five seconds is
    silent. A run in another thread than the main one, as servers have, is not shown.
    """

    def __init__(self) -> None:
        self._said_at_s: dict[str, float] = {}

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
        said_at_s = self._said_at_s.get(progress.noun, 0.0)  # hosts are read while VMs are counted
        if progress.elapsed_s < said_at_s:
            said_at_s = 0.0
        if progress.elapsed_s - said_at_s < _INTERVAL_S and not (progress.is_over and said_at_s):
            return
        self._said_at_s[progress.noun] = 0.0 if progress.is_over else progress.elapsed_s
        say(progress_text(progress, _PIPED_WIDTH))


class SilenceLine:
    """Says on a terminal what a command waits for, once nothing was printed for nearly a second: a thread looks.

    Commands that run until they are told to stop, and whole screens, show nothing of it.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look, if stderr is a terminal; once for a command line."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._thread is None and is_main and not running().is_quiet and sys.stderr.isatty():
            show_status("")
            self._thread = threading.Thread(target=self._look, name="silence", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Erase the line; nothing is shown from here on."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._ended, self._thread = threading.Event(), None
            show_status("")

    def _look(self) -> None:
        ended, began_s = self._ended, time.monotonic()
        while not ended.wait(_LOOK_S):
            if not running().runs_until_told:
                text = silence_text(calls_under_way(), time.monotonic() - began_s, _width())
                show_if_silent(text, _SILENCE_S)


SILENCE = SilenceLine()
"""That of this process."""


def end_line() -> None:
    """End the line that an interrupt has broken off: the status, or what the terminal shows of Ctrl-C."""
    SILENCE.stop()
    print_line("", err=True)


def silence_text(calls: Sequence[Call], elapsed_s: float, width: int) -> str:
    """`12 s; waiting for gpu1, libvirt: start acme.web-1 on gpu2`, in fewer than `width` columns."""
    awaited = dict.fromkeys(_AWAITED[one.event].format_map(one.fields) for one in calls)
    text = f"{elapsed_s:.0f} s" + (f"; waiting for {', '.join(awaited)}" if awaited else "")
    return text if len(text) < width else f"{text[: max(0, width - 2)]}…"[: max(0, width - 1)]


def progress_text(progress: "FleetProgress", width: int) -> str:
    """`58 of 60 hosts, 1 failed, 12 s; waiting for gpu7, gpu9`, in fewer than `width` columns."""
    text = f"{progress.done} of {counted(progress.total, progress.noun)}"
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
