# SPDX-License-Identifier: Apache-2.0
"""Drivers that guests were seen with: kept for the VMs of the host that tells them, and only if they are versions.

tests/e2e/vm/test_guest_driver_check.py has a command that keeps one, and those that judge by it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guests.cases import REQUEST, vm
from vgpuctl.agent.wire.readings import HostReadings, Measured, VgpuReadings
from vgpuctl.store.store import open_store
from vgpuctl.usecases.observed.guest_driver import keep_seen_drivers
from vgpuctl.usecases.running.services import Openers, Services

OWN, FOREIGN = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"


def _readings(uuid: str | None, driver: str) -> HostReadings:
    told = Measured((("guest_driver_info", (driver,), 1.0),))
    return HostReadings("boot-1", 0.0, 0.0, vgpus=(VgpuReadings("0000:41:00.0", None, uuid, "A40-8Q", None, told),))


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    unused: Any = None
    with Services(
        Openers(
            inventory=unused,
            store=lambda: open_store(f"sqlite:///{tmp_path}/store.db"),
            store_place=unused,
            session=unused,
        ),
        forks=1,
        say=unused,
    ) as made:
        with made.store.transaction() as session:
            session.add_tenant(REQUEST.tenant)
            for name, uuid, host in (("own", OWN, "gpu1"), ("foreign", FOREIGN, "gpu2")):
                session.add_vm(replace(vm(replace(REQUEST, name=name)), uuid=uuid, host=host))
        yield made


def _kept(services: Services) -> dict[str, str | None]:
    with services.store.reading() as session:
        return {one.uuid: one.guest_driver for one in session.vms()}


def test_a_host_tells_versions_of_its_own_guests_and_the_last_one_counts(services: Services) -> None:
    for uuid, driver in (
        (OWN, "580.95.05\n"),
        (OWN, "\x1b[2J"),
        (OWN, ""),
        (None, "580.95.05"),
        (FOREIGN, "580.95.05"),
        ("33333333-0000-4000-8000-000000000000", "580.95.05"),
    ):
        both = {"gpu1": _readings(uuid, driver), "gpu2": HostReadings("boot-2", 0.0, 0.0)}
        for readings in ({"gpu1": both["gpu1"]}, both):
            keep_seen_drivers(services, readings)
        assert _kept(services) == {OWN: None, FOREIGN: None}, (uuid, driver)
    for uuid, driver in ((OWN, "570.133.20"), (OWN.upper(), "580.95.05"), (FOREIGN, "595.45.04")):
        keep_seen_drivers(services, {"gpu1": _readings(uuid, driver)})
    keep_seen_drivers(services, {"gpu1": HostReadings("boot-1", 0.0, 0.0)})
    assert _kept(services) == {OWN: "580.95.05", FOREIGN: None}
