# SPDX-License-Identifier: Apache-2.0
"""show-reservation: one reservation with its place, time and user, on simulated hosts."""

import time
from datetime import UTC, datetime

from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="seconds")


def test_a_reservation_is_shown_with_its_place_time_and_user(fleet_operator: Operator) -> None:
    fleet = fleet_operator
    fleet.does("create-tenant", "acme")
    fleet.does("list-gpus", "--refresh")
    fleet.does("reserve", "later", "-t", "acme", "--gpu", "A40-4Q", "--from", _at(7200), "--until", _at(10800))
    times = ("--from", _at(-60), "--until", _at(3600), "--every", "1d")
    fleet.does("reserve", "now", "-t", "acme", "--gpu", "A40-8Q", *times)
    fleet.does("create-vm", "mine", "-t", "acme", "--reservation", "now", *SMALL)

    later, now = fleet.json("show-reservation", "acme/later"), fleet.json("show-reservation", "now", "-t", "acme")
    listed = {one["name"]: one for one in fleet.json("list-reservations")}
    assert (later["reservation"], now["reservation"]) == (listed["later"], listed["now"])
    assert (later["state"], later["used_by"]) == ("upcoming", None)
    assert (now["state"], now["used_by"]["name"]) == ("current", "acme/mine")
    assert now["window"] == [listed["now"]["begin"], listed["now"]["end"]]
    assert [one["kind"] for one in later["events"]] == ["reservation-created"]

    text = fleet.does("show-reservation", "acme/now").out
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("name      acme/now, current\nGPU       A40-8Q\nheld on   ")
    assert "every     1d since " in text
    assert "used by   acme/mine, running on " in text


def test_an_unknown_reservation_is_refused(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "acme")
    assert fleet_operator.is_refused("show-reservation", "acme/none")["reference"] == "not-found"
