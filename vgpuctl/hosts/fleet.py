# SPDX-License-Identifier: Apache-2.0
"""The same work on many hosts at once; one host's failure is a value, the others go on."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vgpuctl.errors import Unexpected, VgpuctlError

Value = TypeVar("Value")
_INTERRUPT_SLICE_S = 0.2
_LOGGER = logging.getLogger("vgpuctl.hosts")


@dataclass(frozen=True)
class HostResult(Generic[Value]):
    """The result of the work on one host: `value`, or `error`."""

    name: str
    value: Value | None = None
    error: VgpuctlError | None = None

    def get(self) -> Value | None:
        """Return the value, or raise this host's error."""
        if self.error is not None:
            raise self.error
        return self.value


def run_on_hosts(
    names: Sequence[str],
    work: Callable[[str], Value],
    *,
    forks: int,
    tell: Callable[[HostResult[Value]], None] | None = None,
) -> list[HostResult[Value]]:
    """Call `work(name)` for every host, at most `forks` at a time; results come in the order of `names`.

    tell: called in the caller's thread with each result as it comes.
    An error that is not a VgpuctlError becomes an Unexpected that names it. On KeyboardInterrupt no further host
    is begun and the interrupt is raised at once; what is under way ends with the process, or when its
    connection is closed.
    """
    results: list[HostResult[Value] | None] = [None] * len(names)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(names)):
        waiting.put(index)
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            results[index] = _run_one(names[index], work)
            finished.put(index)

    # Daemon threads: a host that hangs must not keep an interrupted process alive.
    threads = [
        threading.Thread(target=serve, name=f"host-worker-{number}", daemon=True)
        for number in range(max(1, min(forks, len(names))))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in names:
            result = results[_wait(finished)]
            if tell is not None and result is not None:
                tell(result)
    except BaseException:
        _drain(waiting)
        raise
    for thread in threads:
        thread.join()
    return [result for result in results if result is not None]


def _run_one(name: str, work: Callable[[str], Value]) -> HostResult[Value]:
    try:
        return HostResult(name, value=work(name))
    except VgpuctlError as exc:
        return HostResult(name, error=exc)
    except Exception as exc:
        _LOGGER.error("unexpected error", extra={"fields": {"host": name}}, exc_info=True)
        return HostResult(name, error=Unexpected.of(exc, where=f"{name}: "))


def _wait(finished: "queue.SimpleQueue[int]") -> int:
    while True:
        try:
            # A time-out, because a signal that comes just before a lock is waited for does not end the wait.
            return finished.get(timeout=_INTERRUPT_SLICE_S)
        except queue.Empty:
            continue


def _drain(waiting: "queue.SimpleQueue[int]") -> None:
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            return
