# SPDX-License-Identifier: Apache-2.0
"""The end of a command that runs until it is told to stop."""

import signal
import threading

_LOOK_S = 1.0


def stop_on_signals() -> threading.Event:
    """The event that SIGTERM and SIGINT set from now on."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def wait_until_told(stop: threading.Event) -> None:
    """Wait, in the main thread, for an event that a signal's handler sets.

    A signal that comes just before the wait begins does not end it: Python runs handlers between two steps of the main
    thread, and a wait without an end is one step. So it looks each second.
    """
    while not stop.wait(_LOOK_S):
        pass
