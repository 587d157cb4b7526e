# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP: the first interrupts the command, none the rollback, and the third ends the process.

Python runs signal handlers in the main thread, between any two of its instructions. So the handlers themselves decide
whether a signal raises: the first one does; later ones are noted, also while connections are closed at the end.

Where Python drops exceptions, in destructors and callbacks of weak references, it would drop the interrupt too and
print its traceback: there the signal is sent again a moment later. An interrupt within the making of an object leaves
it half made, and its destructor may fail for what it lacks: that is logged and not shown.
"""

import _thread
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import ClassVar, TypeAlias

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GOES_ON = b"\nwhat is under way or rolled back ends first and cannot be interrupted; the command ends after it\n"
_ENDS = b"\nthe command is ending and closes its connections; a third signal ends it at once\n"
_AGAIN_S = 0.01
_LOGGER = logging.getLogger("vgpuctl.interruptions")
_Handler = Callable[[int, FrameType | None], object] | int | None
_Dropped: TypeAlias = "sys.UnraisableHookArgs"


class _Interrupt(KeyboardInterrupt):
    """The interrupt by one signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Guard:
    """The state of the main thread. depth: blocks under way, nested or side by side."""

    def __init__(self) -> None:
        self.depth = 0
        self.is_rolling_back = False
        self.has_raised = False
        self.is_noted = False
        self.before: dict[int, _Handler] = {}

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt for the first signal while there is nothing to roll back yet, else note it."""
        if _DroppedHook.is_at_work:
            return
        if self.is_rolling_back or self.has_raised:
            self.is_noted = True
            with contextlib.suppress(OSError):
                os.write(2, _GOES_ON)
            return
        self.has_raised = True
        raise _Interrupt(number)


class _Command:
    """The signals that a command got outside of such blocks, or that a block passed on."""

    def __init__(self) -> None:
        self.seen = 0
        self.is_over = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt for the first signal, note the second and let the third end the process.

        When the command is over, the first one ends the process.
        """
        if _DroppedHook.is_at_work:
            return
        self.seen += 1
        if self.seen == 1 and not self.is_over:
            raise _Interrupt(number)
        if self.seen == 2 and not self.is_over:
            with contextlib.suppress(OSError):
                os.write(2, _ENDS)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_guard = _Guard()
_command = _Command()
_handle_command = _command.handle


class _DroppedHook:
    """A `sys.unraisablehook` that sends a signal again whose interrupt Python has just dropped.

    After an interrupt it says nothing of destructors that miss an attribute. is_at_work: an interrupt would be raised
    within it, where Python drops it as well; the signal that it is about to send stands for all that come meanwhile.
    """

    is_at_work: ClassVar[bool] = False

    def __init__(self, before: Callable[[_Dropped], object]) -> None:
        self._before = before

    def __call__(self, dropped: _Dropped) -> None:
        error = dropped.exc_value
        if not isinstance(error, _Interrupt):
            is_interrupted = _command.seen > 0 or _guard.has_raised
            if is_interrupted and isinstance(error, AttributeError) and _is_destructor(dropped.object):
                _LOGGER.debug("half made when the command was interrupted", exc_info=error)
            else:
                self._before(dropped)
            return
        _DroppedHook.is_at_work = True
        try:
            _guard.has_raised = False
            _command.seen = 0
            _thread.start_new_thread(_send_again, (error.number,))
        finally:
            # The last step: Python runs no handler between it and the end of the hook.
            _DroppedHook.is_at_work = False


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    while _DroppedHook.is_at_work:
        time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)


def _is_destructor(called: object) -> bool:
    return getattr(called, "__name__", "") == "__del__"


def install() -> None:
    """Have each of the signals interrupt the command once; a signal that is ignored (nohup) stays so."""
    _command.seen, _command.is_over = 0, False
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _handle_command)
    if not isinstance(sys.unraisablehook, _DroppedHook):
        sys.unraisablehook = _DroppedHook(sys.unraisablehook)


def end() -> None:
    """Say that the command is over and its output written: nothing is left to interrupt."""
    _command.is_over = True


def enter() -> None:
    """Begin a block whose failure is rolled back. Handlers other than Python's own stay: the controller has some."""
    if threading.current_thread() is not threading.main_thread():
        return
    _guard.depth += 1
    if _guard.depth > 1:
        return
    _guard.has_raised = _guard.is_rolling_back = _guard.is_noted = False
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler in (signal.default_int_handler, _handle_command):
            _guard.before[number] = handler
            signal.signal(number, _guard.handle)


def hold(*, only_outermost: bool = False) -> None:
    """From here to the end of the outermost block, signals are noted only. only_outermost: unless within another."""
    if threading.current_thread() is threading.main_thread() and not (only_outermost and _guard.depth > 1):
        _guard.is_rolling_back = True


def leave() -> bool:
    """End a block. Returns True if the outermost one ended and a signal came that did not raise."""
    if threading.current_thread() is not threading.main_thread():
        return False
    _guard.depth -= 1
    if _guard.depth > 0:
        return False
    for number, handler in _guard.before.items():
        signal.signal(number, handler)
    _guard.before.clear()
    is_noted, _guard.is_noted = _guard.is_noted, False
    if is_noted or _guard.has_raised:
        _command.seen = max(_command.seen, 1)
    _guard.is_rolling_back = _guard.has_raised = False
    return is_noted
