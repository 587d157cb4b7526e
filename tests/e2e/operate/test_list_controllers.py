# SPDX-License-Identifier: Apache-2.0
"""The controllers of a store: one that runs, one that hangs, one that was killed."""

import signal
from typing import Any

from tests.e2e.operate.test_watched_hosts import controller, soon
from tests.e2e.operator import Operator
from vgpuctl.store.store import open_store
from vgpuctl.usecases.operate.division import owner

HOSTS = {f"sim-{number:03}" for number in range(1, 5)}


def _listed(operator: Operator) -> tuple[list[dict[str, Any]], set[str]]:
    answer = operator.json("list-controllers")
    return answer["controllers"], set(answer["unwatched"])


def _is_divided(operator: Operator) -> bool:
    """True once each of two controllers has the hosts that it keeps: before, one that began alone has all of them."""
    with open_store(operator.database) as store, store.reading() as session:
        both = session.controllers()
    return len(both) == 2 and all(one.hosts == {host for host in HOSTS if owner(host, both) == one.id} for one in both)


def test_controllers_are_listed_with_their_hosts_and_whether_they_live(fleet_operator: Operator) -> None:
    assert _listed(fleet_operator) == ([], HOSTS)
    assert "no controller" in fleet_operator.does("list-controllers").err
    with controller(fleet_operator) as first, controller(fleet_operator) as second:
        soon(lambda: _is_divided(fleet_operator))
        found, unwatched = _listed(fleet_operator)
        assert not unwatched and sorted(host for one in found for host in one["hosts"]) == sorted(HOSTS)
        assert {one["pid"]: one["state"] for one in found} == {first.pid: "running", second.pid: "running"}
        taken = {one["pid"]: set(one["hosts"]) for one in found}
        second.send_signal(signal.SIGSTOP)
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
