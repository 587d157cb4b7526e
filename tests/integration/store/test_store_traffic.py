# SPDX-License-Identifier: Apache-2.0
"""The ledger of traffic: what readings of a host add to it, and what nobody may take from it."""

from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import bare, vm
from vgpuctl.agent.wire.readings import HostReadings, Measured, VmReadings
from vgpuctl.quota.traffic import DAY_S, TrafficCount, TrafficKind
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.traffic_record import note_traffic

WEB = vm("web")


def _reading(received: float, *, started_s: float = 5.0, uuid: str = WEB.uuid, lacks: str = "") -> HostReadings:
    names = ("network_received_bytes", "network_sent_bytes", "network_received_packets", "network_sent_packets")
    values = [(name, ("vnet0",), received) for name in names if name != lacks]
    measured = Measured((("start_since_boot_seconds", (), started_s), *values))
    return HostReadings("one", 1.0, 1.0, vms=(VmReadings(uuid, "acme.web", "umbrella", measured),))


@pytest.fixture
def counted(store: Store) -> Store:
    """A store with a VM, whose host was read when none ran there."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(WEB)
        note_traffic(session, "gpu1", HostReadings("one", 0.0, 0.0))
    return store


def _note(store: Store, *readings: HostReadings) -> None:
    for one in readings:
        with store.transaction() as session:
            note_traffic(session, "gpu1", one)


def _received(store: Store, since: float = 0.0, until: float = 9e9) -> list[int]:
    with store.reading() as session:
        return [one.received_bytes for one in session.traffic(since, until, "acme")]


def test_readings_add_to_the_day_of_the_vms_tenant(counted: Store, clock: Clock) -> None:
    _note(counted, _reading(100), _reading(250), _reading(40, started_s=99.0))
    assert _received(counted) == [290]
    clock.now += DAY_S
    _note(counted, _reading(50, started_s=99.0))
    assert _received(counted) == [290, 10]
    assert _received(counted, until=clock.now - DAY_S) == [290]
    with counted.reading() as session:
        assert session.traffic(0, 9e9, "umbrella") == []
        assert {one.kind for one in session.traffic(0, 9e9)} == {TrafficKind.VM}


def test_what_no_reading_can_count_is_not_counted(counted: Store) -> None:
    _note(
        counted,
        _reading(100),
        _reading(200, lacks="network_sent_packets"),
        replace(_reading(0), vms=()),
        _reading(9e9, uuid="99999999-2222-4333-8444-555555555555"),
        _reading(300),
    )
    assert _received(counted) == [300]


def test_a_damaged_record_begins_anew(counted: Store) -> None:
    _note(counted, _reading(100))
    with counted.transaction() as session:
        session.save_host_record("gpu1", "traffic", "{}")
    _note(counted, _reading(500), _reading(501))
    assert _received(counted) == [101]


@pytest.mark.parametrize(
    "statement",
    ["UPDATE traffic SET received_bytes = 0", "UPDATE traffic SET sent_packets = sent_packets - 1"],
)
def test_what_was_counted_only_grows(counted: Store, statement: str) -> None:
    _note(counted, _reading(100))
    with pytest.raises(DatabaseError, match="a row of traffic only grows"), bare(counted) as connection:
        connection.run(statement)


def test_large_numbers_are_kept(counted: Store, clock: Clock) -> None:
    most = TrafficCount(1 << 50, 1 << 50, 1, 1)
    with counted.transaction() as session:
        for _ in range(1440):
            session.add_traffic("acme", TrafficKind.VM, WEB.uuid, "web", most, at=clock())
    assert _received(counted) == [1440 << 50]
