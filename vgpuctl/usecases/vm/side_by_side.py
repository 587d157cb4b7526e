# SPDX-License-Identifier: Apache-2.0
"""VMs that one command creates: each is placed in its turn, and those on different hosts are built side by side.

A VM is a run of its own, with its own undo: when one fails, it alone is rolled back, no further one is begun, and those
under way end.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.at_work import AtWork
from vgpuctl.usecases.running.services import Services

Item = TypeVar("Item")
Value = TypeVar("Value")

_USUAL_FORKS = 25
_LOOK_S = 0.2
"""A signal is handled between two waits of this length."""


class Turn:
    """One VM's turn: within the block it is placed, alone of all, until `end` says that its shares are promised."""

    def __init__(self, placing: threading.Lock, hosts: dict[str, threading.Lock], stop: threading.Event) -> None:
        self._placing = placing
        self._hosts = hosts
        self._stop = stop
        self._is_held = False
        self.is_over = threading.Event()

    def __enter__(self) -> "Turn":
        self.begin()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.end()

    def begin(self) -> None:
        """Wait until no other VM is being placed; nothing where this one is."""
        if not self._is_held:
            self._placing.acquire()
            self._is_held = True

    def end(self) -> None:
        """Let the next VM be placed; a second call does nothing."""
        if self._is_held:
            self._is_held = False
            self._placing.release()
            self.is_over.set()

    @contextlib.contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Build on a host, one VM at a time. Raises KeyboardInterrupt after an interrupt."""
        with self._hosts.setdefault(host, threading.Lock()):
            if self._stop.is_set():
                raise KeyboardInterrupt
            yield


def only_turn() -> Turn:
    """The turn of VMs that nobody creates beside."""
    return Turn(threading.Lock(), {}, threading.Event())


def in_turns(services: Services, items: Sequence[Item], work: Callable[[Item, Turn], Value], done: list[Value]) -> None:
    """Call `work(item, turn)` for each item; `done` gets the values in the order of `items`, of a failed run too.

    work: enters its turn to place, and ends it to build. At most `services.forks` are at work at the same time; one
    after the other in a dry run, whose answers build on each other. After an error or an interrupt no further one is
    begun, and those at work end; after an interrupt those that wait for their host are rolled back. Raises the first
    error in the order of `items`, or KeyboardInterrupt.
    """
    forks = services.forks or _USUAL_FORKS
    if services.rehearsal is not None or forks == 1 or len(items) < 2:
        for item in items:
            done.append(work(item, only_turn()))
        return
    services.open_for_threads()
    at_work, places = AtWork("VM", "to be built"), threading.Semaphore(forks)
    placing, hosts = threading.Lock(), dict[str, threading.Lock]()
    values: dict[int, Value] = {}
    errors: dict[int, BaseException] = {}

    def one(index: int, turn: Turn) -> None:
        try:
            with at_work.one() as is_begun:
                if is_begun:
                    values[index] = work(items[index], turn)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the command
            errors[index] = error
        finally:
            turn.is_over.set()
            places.release()

    threads = []
    interruptions.enter()
    try:
        for index in range(len(items)):
            while not places.acquire(timeout=_LOOK_S):
                pass
            if errors:
                break
            turn = Turn(placing, hosts, at_work.stop)
            threads.append(threading.Thread(target=one, args=(index, turn), daemon=True))
            threads[-1].start()
            while not turn.is_over.wait(_LOOK_S):
                pass
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_S)
    except BaseException:
        interruptions.hold()
        at_work.end(services.say)
        raise
    finally:
        interruptions.leave()
        done += [values[index] for index in sorted(values)]
    if errors:
        raise errors[min(errors)]
