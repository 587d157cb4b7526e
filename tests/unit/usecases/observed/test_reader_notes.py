# SPDX-License-Identifier: Apache-2.0
"""A reader of the fleet and a controller: who says in the store that a host gives no answer."""

import time
from pathlib import Path

import pytest

from tests.stored_fleet import fill, open_stored
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import AgentProblem, HostUnreachable, VgpuctlError
from vgpuctl.model.way import Way
from vgpuctl.usecases.observed.fleet_reader import FleetReader
from vgpuctl.usecases.observed.observations import is_watched_by_other, observed_hosts


@pytest.mark.parametrize(
    ("error", "is_watched", "state"),
    [
        (HostUnreachable("no route"), False, "unreachable"),
        (HostUnreachable("no route"), True, "up"),
        (AgentProblem(ProblemCode.NOT_FOUND, "it has no readings"), False, "up"),
    ],
    ids=["nobody else watches", "a controller has just read it", "its agent tells a problem"],
)
def test_a_failed_reading_is_in_the_store_unless_others_know_better(
    error: VgpuctlError, state: str, tmp_path: Path, *, is_watched: bool
) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fill(services, ("gpu1",), cards=1, shares=1)
        with services.store.transaction() as session:
            if is_watched:
                session.beat_controller("watch", ["gpu1"])
                session.claim_hosts("watch", ["gpu1"])
                session._update("controllers", {"id": "watch"}, pid=1, machine="another machine")
            assert is_watched_by_other(session, "gpu1") is is_watched
        services._ways["gpu1"] = Way("root@gpu1 port 22")
        FleetReader(services, interval_s=15, tell=lambda _one: None)._note_failure("gpu1", error, time.monotonic())
        with services.store.reading() as session:
            assert observed_hosts(session)["gpu1"].state == state
