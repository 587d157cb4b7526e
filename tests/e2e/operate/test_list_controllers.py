# SPDX-License-Identifier: Apache-2.0
"""The controllers of a store: one that runs, one that hangs, one that was killed."""

import contextlib
import os
import signal
import sqlite3
import subprocess
from typing import Any

from tests.e2e.operate.test_watched_hosts import HOSTS, controller, is_divided, soon
from tests.e2e.operator import Operator


def _listed(operator: Operator) -> tuple[list[dict[str, Any]], set[str]]:
    answer = operator.json("list-controllers")
    return answer["controllers"], set(answer["unwatched"])


def _stop_without_a_lock(process: "subprocess.Popen[str]", operator: Operator) -> None:
    """Stop a process while it is in no transaction: with one, nobody could write the store."""
    path = operator.database.removeprefix("sqlite:///")
    while True:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with contextlib.closing(sqlite3.connect(path, timeout=1)) as store:
            try:
                store.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
            else:
                return


def test_controllers_are_listed_with_their_hosts_and_whether_they_live(fleet_operator: Operator) -> None:
    assert _listed(fleet_operator) == ([], HOSTS)
    assert "no controller" in fleet_operator.does("list-controllers").err
    with controller(fleet_operator) as first, controller(fleet_operator) as second:
        soon(lambda: is_divided(fleet_operator))
        found, unwatched = _listed(fleet_operator)
        assert not unwatched and sorted(host for one in found for host in one["hosts"]) == sorted(HOSTS)
        assert {one["pid"]: one["state"] for one in found} == {first.pid: "running", second.pid: "running"}
        taken = {one["pid"]: set(one["hosts"]) for one in found}
        _stop_without_a_lock(second, fleet_operator)
        try:
            found, unwatched = _listed(fleet_operator)
            states = {one["pid"]: one["state"] for one in found}
            assert states[first.pid] == "running" and states.get(second.pid) == "silent"
            assert unwatched == taken[second.pid]
        finally:
            second.send_signal(signal.SIGCONT)
        first.kill()
        first.wait()
        soon(lambda: {one["pid"] for one in _listed(fleet_operator)[0]} == {second.pid})
        soon(lambda: not _listed(fleet_operator)[1])
        shown = fleet_operator.does("list-controllers")
        assert f"{second.pid}" in shown.out and "running" in shown.out
