# SPDX-License-Identifier: Apache-2.0
"""The end of a command that runs until it is told to stop."""

import _thread
import signal
import threading
from typing import TYPE_CHECKING

from vgpuctl.cli.frame.command_line import running

if TYPE_CHECKING:
    from vgpuctl.store.store import Store

_LOOK_S = 1.0
_ASK_S = 5.0


def stop_on_signals() -> threading.Event:
    """The event that SIGTERM and SIGINT set from now on.

    A thread sets it, begun without a lock of `threading`: Python runs the handler between two steps of the main thread,
    and if those are steps of the event's own `wait`, the main thread has the lock that `set` waits for.
    """
    stop = threading.Event()
    running().runs_until_told = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: _thread.start_new_thread(stop.set, ()))
    return stop


def wait_until_told(stop: threading.Event) -> None:
    """Wait, in the main thread, for an event that a signal's handler sets.

    A signal that comes just before the wait begins does not end it: Python runs handlers between two steps of the main
    thread, and a wait without an end is one step. So it looks each second.
    """
    while not stop.wait(_LOOK_S):
        pass


def serve_until_told(stop: threading.Event, store: "Store") -> None:
    """Wait as `wait_until_told` does, in a server that uses the store.

    Raises StoreNotTheSame as soon as another store is in its place, or a newer vgpuctl has upgraded it; one that cannot
    be asked is asked again.
    """
    from vgpuctl.errors import StoreNotTheSame, StoreUnusable

    refusals: list[StoreNotTheSame] = []

    def ask() -> None:
        while not stop.wait(_ASK_S):
            try:
                store.require_same()
            except StoreNotTheSame as refusal:
                refusals.append(refusal)
                stop.set()
            except StoreUnusable:
                continue

    # A call of an unreachable database takes half a minute; an interrupt does not wait for it.
    asking = threading.Thread(target=ask, name="identity of the store", daemon=True)
    asking.start()
    wait_until_told(stop)
    asking.join(_LOOK_S)
    if refusals:
        raise refusals[0]
