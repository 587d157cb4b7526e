# SPDX-License-Identifier: Apache-2.0
"""The same work on many hosts at once; one host's failure is a value, the others go on."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vgpuctl.errors import Unexpected, VgpuctlError
from vgpuctl.model.rehearsal import RehearsalEnds

Value = TypeVar("Value")
_USUAL_FORKS = 25
"""Measured in docs/performance.md: more threads wait for this process, fewer for the hosts."""
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


@dataclass(frozen=True)
class FleetProgress:
    """The progress of a run over hosts: how many there are, are done, and failed of those.

    at_work: hosts that were begun and have not answered, the longest first. elapsed_s: since the run began.
    is_over: True once, when the run has ended or was interrupted. noun: what is counted, where these are no hosts.
    """

    total: int
    done: int
    failed: int
    at_work: tuple[str, ...]
    elapsed_s: float
    is_over: bool = False
    noun: str = "host"


def run_on_hosts(
    names: Sequence[str],
    work: Callable[[str], Value],
    *,
    forks: int | None = None,
    watch: Callable[[FleetProgress], None] | None = None,
) -> list[HostResult[Value]]:
    """Call `work(name)` for every host, at most `forks` at a time; results come in the order of `names`.

    forks: None for as many as there are hosts, but 25 at most. watch: called in the caller's thread about five times a
    second, and at the end.
    An error that is not a VgpuctlError becomes an Unexpected that names it; RehearsalEnds is raised to the caller. On
    KeyboardInterrupt no further host is begun and the interrupt is raised at once; what is under way ends with the
    process, or when its connection is closed.
    """
    results: list[HostResult[Value] | None] = [None] * len(names)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(names)):
        waiting.put(index)
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()
    begun: list[int] = []
    began, watched = time.monotonic(), 0.0
    cut: list[RehearsalEnds] = []
    done = failed = 0

    def progress(*, is_over: bool) -> FleetProgress:
        at_work = tuple(names[index] for index in begun[:] if results[index] is None)
        return FleetProgress(len(names), done, failed, at_work, time.monotonic() - began, is_over)

    def serve() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            begun.append(index)
            try:
                results[index] = _run_one(names[index], work)
            except RehearsalEnds as end:
                cut.append(end)
            finished.put(index)

    # Daemon threads: a host that hangs must not keep an interrupted process alive.
    threads = [
        threading.Thread(target=serve, name=f"host-worker-{number}", daemon=True)
        for number in range(max(1, min(forks or _USUAL_FORKS, len(names))))
    ]
    try:
        for thread in threads:
            thread.start()
        while done < len(names):
            ended = _wait(finished)
            if ended is not None:
                result = results[ended]
                done += 1
                failed += result is not None and result.error is not None
            if watch is not None and time.monotonic() - watched >= _INTERRUPT_SLICE_S:
                watched = time.monotonic()
                watch(progress(is_over=False))
    except BaseException:
        _drain(waiting)
        raise
    finally:
        if watch is not None and names:
            watch(progress(is_over=True))
    for thread in threads:
        thread.join()
    if cut:
        raise cut[0]
    return [result for result in results if result is not None]


def _run_one(name: str, work: Callable[[str], Value]) -> HostResult[Value]:
    try:
        return HostResult(name, value=work(name))
    except VgpuctlError as exc:
        return HostResult(name, error=exc)
    except RehearsalEnds:
        raise
    except Exception as exc:
        _LOGGER.error("unexpected error", extra={"fields": {"host": name}}, exc_info=True)
        return HostResult(name, error=Unexpected.of(exc, where=f"{name}: "))


def _wait(finished: "queue.SimpleQueue[int]") -> int | None:
    """The next host that is done; None after a while, as a signal just before the wait for a lock does not end it."""
    try:
        return finished.get(timeout=_INTERRUPT_SLICE_S)
    except queue.Empty:
        return None


def _drain(waiting: "queue.SimpleQueue[int]") -> None:
    while True:
        try:
            waiting.get_nowait()
        except queue.Empty:
            return
