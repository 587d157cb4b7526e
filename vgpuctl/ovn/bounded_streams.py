# SPDX-License-Identifier: Apache-2.0
"""Streams of the ovs library that stop a database which sends too much, and the question for its schema with a limit.

The library waits for ever for an answer and takes one of any length.
"""

import errno
import math
import os
import time
from collections.abc import Sequence
from typing import Any

import ovs.stream
from ovs.jsonrpc import Connection, Message
from ovs.poller import Poller

from vgpuctl.byte_budget import ByteBudget

MOST_OF_SCHEMA = 4 * 2**20
"""OVN 24.03's northbound schema has 40 KiB."""

LONGEST_READING_S = 600.0
"""Of all rows, before anything can be changed. The library's own JSON parser reads some 0.8 MiB/s, and is quadratic in
the length of a text."""

_budgets: dict[str, ByteBudget] = {}
_deadlines: dict[str, float] = {}


class _Bounded(ovs.stream.Stream):  # type: ignore[misc]  # ovs has no types
    """A stream whose bytes are counted by the name that it was opened under, and which has an end."""

    def recv(self, size: int) -> tuple[int, Any]:
        """Receive as `Stream.recv`; EMSGSIZE once the budget is used up, ETIMEDOUT after the deadline."""
        if time.monotonic() > _deadlines.get(self.name, math.inf):
            return errno.ETIMEDOUT, ""
        error, data = super().recv(size)
        budget = _budgets.get(self.name)
        if error or budget is None:
            return error, data
        try:
            budget.take(len(data))
        except OSError:
            return errno.EMSGSIZE, ""
        return error, data


def bound(remotes: Sequence[str], budget: ByteBudget, *, within_s: float) -> None:
    """Count what comes from these remotes, over all connections from now on, against one budget.

    within_s: nothing is taken after that time, until `lift_deadline`.
    """
    if not _budgets:
        for method, kind in list(ovs.stream.Stream._SOCKET_METHODS.items()):
            bounded = type(f"Bounded{kind.__name__}", (_Bounded, kind), {})
            ovs.stream.Stream.register_method(method.rstrip(":"), bounded)
    _budgets.update(dict.fromkeys(remotes, budget))
    _deadlines.update(dict.fromkeys(remotes, time.monotonic() + within_s))


def lift_deadline(remotes: Sequence[str]) -> None:
    """Let a session that has begun last."""
    for remote in remotes:
        _deadlines.pop(remote, None)


def fetch_schema(remotes: Sequence[str], database: str, *, timeout_s: float) -> Any:
    """Ask a database for its schema, as JSON; the first server of a cluster that answers tells it.

    Raises OSError and ValueError of the last one.
    """
    failures: list[Exception] = []
    for remote in remotes:
        bound([remote], ByteBudget("it", MOST_OF_SCHEMA), within_s=timeout_s)
        try:
            return _fetch(remote, database, timeout_s)
        except (OSError, ValueError) as failure:
            failures.append(failure)
    raise failures[-1]


def _fetch(remote: str, database: str, timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    error, stream = ovs.stream.Stream.open_block(ovs.stream.Stream.open(remote), timeout=int(timeout_s * 1000))
    if error:
        raise OSError(error, os.strerror(error))
    connection = Connection(stream)
    try:
        reply = _ask(connection, Message.create_request("get_schema", [database]), deadline)
    finally:
        connection.close()
    if reply.error or not isinstance(reply.result, dict):
        raise ValueError(f"it has no schema {database}: {str(reply.error)[:200]}")
    return reply.result


def _ask(connection: Any, request: Any, deadline: float) -> Any:
    error = connection.send(request)
    while not error:
        connection.run()
        error, reply = connection.recv()
        if not error and reply.id == request.id:
            return reply
        if error == errno.EAGAIN:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            poller = Poller()
            connection.wait(poller)
            connection.recv_wait(poller)
            poller.timer_wait(left_ms)
            poller.block()
            error = 0
    if error == errno.ETIMEDOUT:
        raise TimeoutError(error, "no answer in time")
    refusal = _budgets[connection.name].refusal
    raise OSError(error, refusal or (os.strerror(error) if error > 0 else "it hung up"))
