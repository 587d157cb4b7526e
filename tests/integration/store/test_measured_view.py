# SPDX-License-Identifier: Apache-2.0
"""A reading has seen a share if its VM was running long enough by then."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.integration.store import samples
from tests.integration.store.conftest import Clock
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.lease import LeaseState
from vgpuctl.scheduler.rolling import RollingLoad
from vgpuctl.scheduler.unmeasured import SETTLED_S
from vgpuctl.store.store import Store
from vgpuctl.usecases.measured.measured_view import PlacingMeasurements

BUILT, RUNNING, BROKEN = LeaseState.BUILT, LeaseState.RUNNING, LeaseState.BROKEN
DAY_S = 86_400.0
CASES: list[tuple[Sequence[tuple[LeaseState, float]], float]] = [
    ([(RUNNING, 0)], 0),
    ([(RUNNING, SETTLED_S)], 1),
    ([(RUNNING, DAY_S), (BUILT, DAY_S), (RUNNING, 0)], 0),
    ([(RUNNING, DAY_S), (BUILT, DAY_S), (RUNNING, SETTLED_S - 1)], 0),
    ([(RUNNING, DAY_S), (BUILT, DAY_S), (RUNNING, SETTLED_S)], 1),
    ([(RUNNING, DAY_S), (BUILT, 10), (RUNNING, 20)], 0),
    ([(BUILT, 600), (RUNNING, 0)], 0),
    ([(RUNNING, DAY_S), (BUILT, DAY_S)], 1),
    ([(RUNNING, DAY_S), (BROKEN, DAY_S), (RUNNING, 0)], 0),
    ([(BUILT, DAY_S), (RUNNING, DAY_S), (BUILT, DAY_S), (RUNNING, DAY_S), (BUILT, 1), (RUNNING, 1)], 0),
]


def reads(percent: int | None, now: float) -> HostFacts:
    """A reading of the host with the use of its GPUs; None: nobody tells it."""
    facts = samples.host_facts()
    gpus = tuple(replace(one, utilisation_percent=percent) for one in facts.gpus)
    return replace(facts, gpus=gpus, read_at=now)


@pytest.mark.parametrize(("states", "seen"), CASES)
def test_a_reading_has_seen_a_share_since_its_vm_runs(
    states: Sequence[tuple[LeaseState, float]], seen: float, store: Store, clock: Clock
) -> None:
    lease = samples.lease()
    with store.transaction() as session:
        session.add_tenant("acme")
        samples.reserve(session, lease)
    for state, seconds in states:
        with store.transaction() as session:
            session.set_lease_state(lease.id, state)
        clock.now += seconds
    with store.transaction() as session:
        session.save_facts("gpu1", reads(0, clock.now), at=clock.now)
        assert PlacingMeasurements(kinds={}).seen(session).get(lease.id, 0) == seen
        session.save_facts("gpu1", reads(None, clock.now), at=clock.now)
        assert PlacingMeasurements(kinds={}).seen(session) == {}, "a reading without the use has seen no share"


def test_of_the_last_hour_a_share_has_the_part_since_its_vm_runs(store: Store, clock: Clock) -> None:
    lease = samples.lease()
    with store.transaction() as session:
        session.add_tenant("acme")
        samples.reserve(session, lease)
        session.set_lease_state(lease.id, RUNNING)
    clock.now += DAY_S
    loads = {("gpu1", lease.share.gpu): RollingLoad(0.1, 0.1, 60, 0)}
    measured = PlacingMeasurements(loads, {})
    with store.transaction() as session:
        assert measured.seen(session)[lease.id] == 1
        session.set_lease_state(lease.id, BUILT)
        session.set_lease_state(lease.id, RUNNING)
        assert measured.seen(session) == {}
    clock.now += 1200
    with store.reading() as session:
        assert 0 < measured.seen(session)[lease.id] < 1
