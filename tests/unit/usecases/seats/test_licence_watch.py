# SPDX-License-Identifier: Apache-2.0
"""An event when a running guest loses its licence and when it has one again, each written once."""

from pathlib import Path

import pytest

from tests.unit.usecases.seats.licensed_share import licensed_share
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.model.event import EventFilter
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.seats.licence_watch import LicenceWatch

LEASE, VGPU = licensed_share("gpu1")


def _readings(state: str) -> dict[str, HostReadings]:
    return {"gpu1": HostReadings("boot-1", 0.0, 0.0, vgpus=(VGPU(state),))}


def _written(store: Store) -> list[tuple[object, object]]:
    with store.reading() as session:
        found = session.events(None, EventFilter(kinds=("licence-observed",)))
    return [(one.after["licence"], one.evidence["state"]) for one in found]


def test_a_loss_and_a_return_are_events_and_a_boot_is_not(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_tenant("acme")
        watch = LicenceWatch()
        for state in ("uninitialized", "unlicensed-unrestricted", "licensed", "licensed"):
            watch.look(store, _readings(state), [LEASE])
        assert _written(store) == []
        for state in ("unlicensed-unrestricted", "unlicensed-restricted"):
            watch.look(store, _readings(state), [LEASE])
        watch.look(store, {}, [LEASE])
        lost = [("unlicensed", "unlicensed-unrestricted")]
        assert _written(store) == lost
        # A second process, or one that was started again, tells it once.
        other = LicenceWatch()
        other.look(store, _readings("unlicensed"), [LEASE])
        other.look(store, _readings("licensed"), [LEASE])
        watch.look(store, _readings("licensed"), [LEASE])
        assert _written(store) == [*lost, ("licensed", "licensed")]


def test_an_event_that_was_not_written_is_written_at_the_next_look(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_tenant("acme")
        exporter, controller = LicenceWatch(), LicenceWatch()
        for watch in (exporter, controller):
            watch.look(store, _readings("licensed"), [LEASE])
        with pytest.raises(RuntimeError), store.transaction() as session:
            controller.note(session, _readings("unlicensed"), [LEASE])
            raise RuntimeError("the store went away")
        assert _written(store) == []
        with store.transaction() as session:
            controller.note(session, _readings("unlicensed"), [LEASE])
        controller.keep()
        exporter.look(store, _readings("unlicensed"), [LEASE])
        with store.transaction() as session:
            controller.note(session, _readings("unlicensed"), [LEASE])
        assert _written(store) == [("unlicensed", "unlicensed")], "once, by whichever of both is first"
