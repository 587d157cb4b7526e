# SPDX-License-Identifier: Apache-2.0
"""Reservations as an operator meets them, on a simulated host with one A40."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator

SMALL = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--limit", "sim-001")
WHERE = ("--tenant", "umbrella", "--gpu", "A40-48Q", "--limit", "sim-001")


@pytest.fixture
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-tenant", "umbrella")
    fleet_operator.does("list-gpus", "--refresh")
    yield fleet_operator
    for one in fleet_operator.json("list-reservations"):
        fleet_operator.does("cancel-reservation", "--yes", one["name"], "--tenant", one["tenant"])
    for vm in fleet_operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        fleet_operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="seconds")


def test_what_is_reserved_is_backfilled_with_short_vms_only_and_given_to_its_tenant_in_time(operator: Operator) -> None:
    later = ("reserve", "training", *WHERE, "--from", _at(7200), "--until", _at(10800))
    assert operator.json(*later)["changed"]
    assert not operator.json(*later)["changed"]
    endless = operator.is_refused("create-vm", "endless", "--gpu", "A40-24Q", *SMALL)
    assert (endless["reference"], "give --for 1h" in endless["hint"]) == ("no-capacity", True), endless
    (explained,) = operator.json("explain-vm", "endless", "--gpu", "A40-24Q", *SMALL)
    codes = {one["code"] for one in explained["answers"]}
    assert (explained["fits"], codes) == (False, {"reserved-in-calendar"})
    in_time = [one["text"] for one in explained["changes"] if "reservation training of umbrella" in one["text"]]
    assert [text[:11] for text in in_time] == ["it began at", "it ran for "]
    more = operator.json("capacity", "--gpu", "A40-24Q", *SMALL[2:6], "--limit", "sim-001")
    assert (more["now"], more["backfill"], more["hosts"][0]["backfill_until"] is not None) == (0, 2, True)
    assert operator.json("capacity", "--gpu", "A40-24Q", "--for", "1h", *SMALL[2:6], "--limit", "sim-001")["now"] == 2
    operator.does("create-vm", "short", "--gpu", "A40-24Q", "--for", "1h", *SMALL)
    overlap = operator.is_refused("reserve", "other", *WHERE, "--from", _at(9000), "--until", _at(12600))
    assert overlap["reference"] == "no-capacity"
    assert "the first time it would fit is from" in overlap["hint"]
    mine = ("create-vm", "mine", "--tenant", "umbrella", "--reservation", "training", *SMALL[2:])
    early = operator.is_refused(*mine)
    assert (early["reference"], "begins at" in early["message"]) == ("state", True)
    assert [one["name"] for one in operator.json("list-reservations")] == ["training"]
    operator.does("cancel-reservation", "--yes", "training", "--tenant", "umbrella")
    assert (
        operator.is_refused("cancel-reservation", "--yes", "training", "--tenant", "umbrella")["reference"]
        == "not-found"
    )
    operator.does("delete-vm", "short", "--tenant", "acme", "--yes", "--timeout", "0")

    operator.does("reserve", "now", *WHERE, "--from", "now", "--until", "1h", "--every", "1d")
    assert operator.is_refused("create-vm", "endless", "--gpu", "A40-24Q", *SMALL)["reference"] == "no-capacity"
    used = ("create-vm", "mine", "--tenant", "umbrella", "--reservation", "now", *SMALL[2:])
    (created,) = operator.json(*used)
    assert created["vm"]["request"]["duration_s"] == pytest.approx(3600, abs=400)
    assert [one["share"]["profile"] for one in created["leases"]] == ["A40-48Q"]
    assert not operator.json(*used)[0]["changed"]
    second = ("create-vm", "second", *used[2:])
    assert "uses reservation now already" in operator.is_refused(*second)["message"]
    operator.does("cancel-reservation", "--yes", "now", "--tenant", "umbrella")


NO_TIMES: Sequence[tuple[tuple[str, ...], str]] = (
    (("--from", "2001-01-01", "--until", "2001-01-02"), "past"),
    (("--from", "2091-01-02", "--until", "2091-01-01"), "before it begins"),
    (("--from", "2091-01-01", "--until", "2091-01-03", "--every", "1d"), "before it ended"),
    (("--from", "soon", "--until", "2091-01-03"), "no time"),
    (("--from", "now", "--until", "soon"), "no time"),
    (("--from", "now", "--until", "0h"), ""),
)


def test_times_that_make_no_sense_are_refused(operator: Operator) -> None:
    for arguments, said in NO_TIMES:
        refused = operator.is_refused("reserve", "x", *WHERE, *arguments)
        assert (refused["reference"], said in refused["message"]) == ("usage", True), (arguments, refused)


def test_a_reservation_on_a_silent_host_says_so(operator: Operator, fleet: lab.LabFolder) -> None:
    times = ("--from", "2091-01-01", "--until", "2091-01-02", "--limit", "sim-001")
    assert "gave no answer" not in operator.does("reserve", "heard", *WHERE, *times).err
    operator.does("cancel-reservation", "--yes", "heard", *WHERE[:2])
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    try:
        operator.run("list-hosts", "--limit", "sim-001")
        said = operator.does("reserve", "unheard", *WHERE, *times).err
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    assert "warning: sim-001 gave no answer when it was last asked (unreachable)" in said
    operator.does("cancel-reservation", "--yes", "unheard", *WHERE[:2])
    operator.does("list-hosts", "--limit", "sim-001")


def test_an_offboarded_tenant_keeps_no_reservation(operator: Operator) -> None:
    operator.does("create-tenant", "leaver")
    whole = ("--tenant", "leaver", "--gpu", "A40-48Q", "--limit", "sim-001")
    operator.does("reserve", "later", *whole, "--from", _at(7200), "--until", _at(10800))
    operator.does("reserve", "daily", *whole, "--from", _at(-60), "--until", _at(3600), "--every", "1d")
    operator.does("create-vm", "user", "--tenant", "leaver", "--reservation", "daily", *SMALL[2:])
    endless = ("create-vm", "endless", "--gpu", "A40-48Q", *SMALL)
    assert operator.is_refused(*endless)["reference"] == "no-capacity"
    listed = operator.does("offboard-tenant", "leaver", "--dry-run").err
    assert "reservation later on sim-001: A40-48Q from" in listed
    assert len(operator.json("list-reservations")) == 2, "a dry run cancels nothing"
    operator.does("offboard-tenant", "leaver", "--yes", "--timeout", "0")
    assert operator.json("list-reservations", "--all") == []
    operator.does(*endless)
