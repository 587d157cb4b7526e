# SPDX-License-Identifier: Apache-2.0
"""A finding that lasts because nobody measures its VM is not answered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fleet_factory import vm as request_of
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.quota.limits import Quota
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.usecases.operate.over_promise import answer_over_promise
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services

NOW = 1_800_000_000.0
GPU = "0000:41:00.0"
HOURS = 5 * 3600.0


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def services(tmp_path: Path, clock: Clock) -> Iterator[Services]:
    """A VM without a VF, which cannot be stopped, and a finding of it that lasts."""
    (tmp_path / "inventory.yml").write_text("all: {hosts: {gpu1: {ansible_host: 127.0.0.1, ansible_port: 1}}}")
    settings = Settings((str(tmp_path / "inventory.yml"),), f"sqlite:///{tmp_path}/store.db", None)
    with open_services(settings, lambda _text: None, clock=lambda: clock.now) as opened:
        with opened.store.transaction() as session:
            session.add_tenant("acme")
            session.add_vm(Vm("1", request_of(name="web"), "gpu1", VmState.RUNNING))
            session.set_quotas("acme", [Quota("over-promise", list(OverPromise).index(OverPromise.STOP))])
            session.add_event(
                EventKind.CONTENTION_OBSERVED,
                "acme/web",
                tenant="acme",
                host="gpu1",
                after={"state": "begun"},
                evidence={"gpu": GPU, "victims": ["acme/other"]},
            )
        yield opened


def answers(services: Services) -> int:
    with services.store.reading() as session:
        return len(session.events(None, EventFilter(kinds=("over-promise-answered",))))


@pytest.mark.parametrize(
    ("later_s", "measured", "is_answered"),
    [
        (0.0, None, True),
        (900.0, None, True),
        (901.0, None, False),
        (HOURS, None, False),
        (HOURS, ("gpu1", GPU, "web", 120.0), True),
        (HOURS, ("gpu1", GPU, "web", 3600.0), False),
        (HOURS, ("gpu1", "0000:81:00.0", "web", 120.0), False),
        (HOURS, ("gpu2", GPU, "web", 120.0), False),
        (HOURS, ("gpu1", GPU, "other", 120.0), False),
        (-60.0, None, False),
    ],
)
def test_an_old_finding_is_answered_while_its_vm_is_measured(
    tmp_path: Path,
    services: Services,
    clock: Clock,
    later_s: float,
    measured: tuple[str, str, str, float] | None,
    is_answered: bool,
) -> None:
    clock.now += later_s
    if measured is not None:
        host, gpu, vm, before_s = measured
        subject = Subject("vgpu", host, "0000:41:00.4", gpu, "acme", vm, "A40-8Q")
        with History(tmp_path / "store.db.history") as kept:
            kept.add(clock.now - before_s, [MeasuredValue(subject, "utilization_ratio", 0.9)])
    (served,) = answer_over_promise(services)
    assert answers(services) == is_answered
    assert served.outcome.startswith("failed: " if is_answered else "waits: its use of the GPU was not measured")
