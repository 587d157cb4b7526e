# SPDX-License-Identifier: Apache-2.0
"""What the pages and exports say of hosts that give no answer, to others or to the server itself."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.stored_fleet import AT, fill, open_stored, readings_of
from tests.stored_pages import Pages
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.usecases.kubernetes.export_dra import export_dra
from vgpuctl.usecases.observed.observation_record import Silence
from vgpuctl.usecases.observed.observations import read_record
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import make_application


def _silence(services: Services, host: str) -> None:
    """Record that a host has given no answer since AT."""
    with services.store.transaction() as session:
        record = read_record(session, host)
        silent = msgspec.structs.replace(record, silence=Silence(AT, f"no route to {host}", "unreachable"))
        session.save_host_record(host, "observations", msgspec.json.encode(silent).decode())


def test_nothing_of_a_host_that_gives_no_answer_counts_as_room(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1", "gpu2")) as services:
        fleet = fill(services, ("gpu1", "gpu2"), cards=2, shares=2)
        sources = PageSources(services, PastSource(tmp_path / "none"))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)

        def read(path: str) -> Any:
            client = make_application(sources, access).test_client()
            return json.loads(client.get(path, headers={"Accept": "application/json"}).text)

        def slices() -> set[str]:
            return {row.labels[0] for row in sources.states().of("slices") if row.labels[2] == "free" and row.value}

        before = read("/")["totals"]
        assert {one["hosts"] for one in read("/capacity")["free"]} >= {2} and slices() == {"gpu1", "gpu2"}
        assert {one["spec"]["pool"]["name"] for one in export_dra(services)} == {"gpu1", "gpu2"}
        _silence(services, "gpu1")
        assert {one["hosts"] for one in read("/capacity")["free"]} == {1} and slices() == {"gpu2"}
        assert read("/")["totals"]["memory_by_kind"]["free"] < before["memory_by_kind"]["free"]
        words = Pages(fleet, make_application(sources, access).test_client(), sources).words("/hosts/gpu1")
        assert "Still fits" not in words and "it is unreachable: no route to gpu1" in words
        assert {one["spec"]["pool"]["name"] for one in export_dra(services)} == {"gpu2"}
        with services.store.transaction() as session:
            session.restrict("gpu2", WHOLE_HOST, RestrictionKind.CORDON, "new cables")
        assert export_dra(services) == []


@pytest.mark.parametrize(("asked_after_s", "state"), [(-1, "unreachable"), (1, "up")])
def test_a_reading_after_the_last_failure_of_others_shows_that_a_host_is_up(
    tmp_path: Path, asked_after_s: float, state: str
) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=2, shares=2)
        _silence(services, "gpu1")
        answered = replace(readings_of(fleet)["gpu1"], at=AT + asked_after_s)
        sources = PageSources(services, PastSource(tmp_path / "none"), lambda: {"gpu1": answered})
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = make_application(sources, access).test_client()
        (host,) = json.loads(pages.get("/", headers={"Accept": "application/json"}).text)["hosts"]
        (row,) = sources.states().of("host_state")
    assert (host["state"], row.states) == (state, (state,))
