# SPDX-License-Identifier: Apache-2.0
"""The undo stack, also when signals arrive while it runs."""

import subprocess
import sys

import pytest

from vgpuctl.errors import GuestError, UsageError
from vgpuctl.usecases.running.undo import Failure, Undo


def _refuse() -> None:
    raise GuestError("no")


def test_a_failure_runs_every_inverse_in_reverse_whatever_the_others_raise() -> None:
    done: list[str] = []
    said: list[str] = []

    def break_down(error: BaseException) -> None:
        raise error

    undoing = Undo(said.append, subject="acme/web-1", settle=lambda undo: done.append(f"settled {len(undo.failures)}"))
    with pytest.raises(UsageError), undoing:
        undoing.push("first", lambda: done.append("first"))
        undoing.push("second", _refuse)
        undoing.push("third", lambda: break_down(KeyError("x")))
        undoing.push("fourth", lambda: break_down(SystemExit(3)))
        undoing.push("fifth", lambda: break_down(KeyboardInterrupt()))
        undoing.push("sixth", lambda: done.append("sixth"))
        raise UsageError("wrong")
    assert done == ["sixth", "first", "settled 4"]
    assert undoing.failures == [
        Failure("fifth", "KeyboardInterrupt"),
        Failure("fourth", "SystemExit: 3"),
        Failure("third", "KeyError: 'x'"),
        Failure("second", "no"),
    ]
    assert said[0] == "acme/web-1: rolling back: sixth"
    assert said[-1].startswith("acme/web-1: rolled back in part; still there: fifth (KeyboardInterrupt), fourth")
    assert said[-1].endswith("; `vgpuctl repair` finishes it")


def test_a_complete_rollback_says_so() -> None:
    said: list[str] = []
    with pytest.raises(UsageError), Undo(said.append, subject="acme/web-1") as undoing:
        undoing.push("disk", lambda: None)
        raise UsageError("wrong")
    assert said == ["acme/web-1: rolling back: disk", "acme/web-1: rolled back completely, nothing is left"]


def test_a_terminal_that_is_gone_keeps_no_inverse_from_running() -> None:
    done: list[str] = []

    def gone(_text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(UsageError), Undo(gone) as undoing:
        undoing.push("disk", lambda: done.append("disk"))
        raise UsageError("wrong")
    assert done == ["disk"]
    assert not undoing.failures


def test_rows_that_cannot_be_settled_are_a_failure_and_the_first_error_stays() -> None:
    with pytest.raises(UsageError), Undo(lambda _text: None, settle=lambda _undo: _refuse()) as undoing:
        raise UsageError("wrong")
    assert undoing.failures == [Failure("rows of the store", "no")]


def test_what_is_kept_is_not_rolled_back_and_a_second_end_does_nothing() -> None:
    done: list[str] = []
    with Undo(done.append, settle=lambda _undo: done.append("settled")) as undoing:
        undoing.push("deed", lambda: done.append("undone"))
        undoing.keep()
    undoing.finish(UsageError("later"))
    assert not done


_PROGRAM = """
import os, signal, sys
from vgpuctl.errors import UsageError
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.undo import Undo

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
interruptions.install()
number = int(sys.argv[2])

def send():
    os.kill(os.getpid(), number)

def first():
    send()
    print("first")

def second():
    send()
    send()
    print("second")

def at_work():
    print("begun")
    if "interrupted" in sys.argv[1]:
        send()
    raise UsageError("wrong")

undos = [Undo(lambda text: print(text), subject=name) for name in "ab"]
try:
    with undos[0], undos[1]:
        undos[0].push("first", first)
        undos[1].push("second", second)
        at_work()
except KeyboardInterrupt:
    print("interrupted")
except UsageError:
    print("failed")
send()
print("closing connections")
interruptions.install()
try:
    send()
except KeyboardInterrupt:
    print("another command is interruptible")
send()
send()
print("never reached")
"""


@pytest.mark.parametrize("number", [1, 2, 15])
@pytest.mark.parametrize("case", ["failed", "interrupted"])
def test_signals_while_rolling_back_are_noted_and_take_effect_afterwards(case: str, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", _PROGRAM, case, str(number)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -number, done.stderr
    lines = done.stdout.splitlines()
    said = ["a: failed before the interrupt: wrong"] if case == "failed" else []
    assert lines == [
        "begun",
        "b: rolling back: second",
        "second",
        "b: rolled back completely, nothing is left",
        "a: rolling back: first",
        "first",
        "a: rolled back completely, nothing is left",
        *said,
        "interrupted",
        "closing connections",
        "another command is interruptible",
    ]
    assert done.stderr.count("a third signal ends it at once") == 2
    assert done.stderr.count("ends first and cannot be interrupted") == 3


_DROPPED = """
import os, signal, sys, time, weakref
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.undo import Undo

interruptions.install()

def send(_reference=None):
    os.kill(os.getpid(), 15)
    time.sleep(0)

class Connection:
    if sys.argv[1] == "destructor":
        __del__ = send

def work():
    connection = Connection()
    reference = weakref.ref(connection, send if sys.argv[1] == "callback" else None)
    del connection
    time.sleep(20)

try:
    if sys.argv[2] == "block":
        with Undo(print, subject="a") as undo:
            undo.push("disk", lambda: print("undone"))
            work()
    else:
        work()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("where", ["block", "command"])
@pytest.mark.parametrize("place", ["destructor", "callback"])
def test_a_signal_where_python_drops_exceptions_interrupts_a_moment_later(place: str, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", _DROPPED, place, where], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    undone = ["a: rolling back: disk", "undone", "a: rolled back completely, nothing is left"]
    assert done.stdout.splitlines() == [*(undone if where == "block" else []), "interrupted"]


_HALF_MADE = """
import os, sys
from vgpuctl.usecases.running import interruptions

interruptions.install()

class Domain:
    def __init__(self):
        if sys.argv[1] == "interrupted":
            os.kill(os.getpid(), 15)
        raise KeyboardInterrupt

    def __del__(self):
        self.handle.close()

try:
    Domain()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("case", ["interrupted", "not interrupted"])
def test_an_object_that_an_interrupt_left_half_made_goes_without_a_traceback(case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HALF_MADE, case], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "interrupted\n"
    assert ("no attribute 'handle'" in done.stderr) == (case == "not interrupted")


_STORM = """
import os, signal
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.undo import Undo

interruptions.install()

def work(told):
    tell = lambda mark: os.write(told, mark) and sum(range(5000))
    undos = [Undo(lambda text: None, settle=lambda undo: tell(b"f" if undo.failures else b"s")) for _ in range(3)]
    try:
        with undos[0], undos[1], undos[2]:
            for undo in undos:
                for number in range(5):
                    undo.push("x", lambda: tell(b"x"))
            tell(b".")
            raise RuntimeError
    except BaseException as error:
        for undo in reversed(undos):
            undo.finish(error)
        raise

# The signals come from another process: threads and their locks do not survive an interrupt between any two steps.
# They begin after the block's end is told, or after that many of the 18 inverses and rows.
for round in range(40):
    read, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(2)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            work(told)
        finally:
            os._exit(0)
    os.close(told)
    marks = b"".join(os.read(read, 1) for _ in range(1 + round % 19))
    for _ in range(60):
        os.kill(child, signal.SIGTERM)
    while more := os.read(read, 100):
        marks += more
    os.close(read)
    os.waitpid(child, 0)
    assert sorted(marks) == sorted(b"." + b"x" * 15 + b"s" * 3), (round, marks)
print("all rolled back")
"""


def test_a_storm_of_signals_loses_no_inverse_and_settles_once() -> None:
    done = subprocess.run([sys.executable, "-c", _STORM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "all rolled back\n", done


def test_while_nobody_knows_what_is_there_nothing_is_rolled_back() -> None:
    done: list[str] = []
    undoing = Undo(done.append)
    with pytest.raises(UsageError), undoing:
        undoing.push("volume", lambda: done.append("volume"))
        with undoing.unknown():
            raise UsageError("no answer")
    assert done == []
    again = Undo(done.append)
    with pytest.raises(UsageError), again:
        again.push("volume", lambda: done.append("volume"))
        with again.unknown():
            pass
        raise UsageError("it stayed")
    assert "volume" in done
