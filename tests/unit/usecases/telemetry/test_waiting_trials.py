# SPDX-License-Identifier: Apache-2.0
"""Trials that cannot go on: how often they are tried, what is said of them, and when they end."""

from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.fleet_factory import lease
from tests.unit.fleet_factory import vm as request_of
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Share
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.scheduler.advice.advice import AdviceKind
from vgpuctl.scheduler.advice.trial import Evidence, SeenVm
from vgpuctl.usecases.observed.tuning_record import (
    MoveChange,
    Trial,
    TrialState,
    TuningRecord,
    read_tuning,
    save_tuning,
)
from vgpuctl.usecases.observed.unlisted_hosts import forget_readings
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.tune import GO_ON_S, Tuner
from vgpuctl.usecases.telemetry.tuning_trial import MOVE_AGAIN_S, MOVING_BACK_S
from vgpuctl.usecases.telemetry.tuning_watch import failures_since
from vgpuctl.wiring import Settings, open_services

NOW = 1_800_000_000.0
GPU = "0000:41:00.0"
INVENTORY = """
all:
  vars: {ansible_host: 127.0.0.1, ansible_port: 1}
  hosts: {gpu1: , gpu2: }
"""


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opens(tmp_path: Path, clock: Clock) -> Callable[..., Any]:
    """Services of hosts that do not answer. hosts: of the inventory. limit: as of --limit."""

    def opened(text: str = INVENTORY, limit: str | None = None) -> Any:
        (tmp_path / "inventory.yml").write_text(text)
        settings = Settings((str(tmp_path / "inventory.yml"),), f"sqlite:///{tmp_path}/store.db", limit)
        return open_services(settings, lambda _text: None, clock=lambda: clock.now)

    return opened


@pytest.fixture
def services(opens: Callable[..., Any]) -> Iterator[Services]:
    with opens() as opened:
        yield opened


def begin(services: Services, **changes: Any) -> Trial:
    """A VM that was moved to gpu2, and the trial of that."""
    vm = Vm("1", request_of(name="web"), "gpu2", VmState.RUNNING)
    trial = Trial(
        advice="rebalance-1",
        kind=AdviceKind.REBALANCE,
        text="it loses time",
        host="gpu1",
        gpu=GPU,
        tenant="acme",
        change=MoveChange("1", "acme/web", "gpu1", GPU, "gpu2", GPU),
        evidence=Evidence({"place": "gpu1"}, {"place": "gpu2"}, ("1",), 1.0),
        watch_s=1200.0,
        begun_at=NOW,
        before={"1": SeenVm("acme/web")},
        state=TrialState.ROLLING_BACK,
        rolls_back_since=NOW,
        why="it made VMs worse",
    )
    trial = replace(trial, **changes)
    share = Share(GPU, Sharing.VF_PROFILE, "A40-24Q", "0000:41:00.4", "558")
    with services.store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(vm)
        session.reserve("gpu2", 0, [changed(lease("gpu2", share, vm_name="web"), vm_uuid="1")])
        save_tuning(session, "gpu1", TuningRecord(trial))
    return trial


def record(services: Services) -> TuningRecord:
    with services.store.reading() as session:
        return read_tuning(session, "gpu1")


def outcomes(services: Services, tuner: Tuner) -> list[str]:
    return [one.outcome for one in tuner.round(services)]


def events(services: Services) -> list[Event]:
    with services.store.reading() as session:
        return session.events(None, EventFilter(kinds=("tuning-ended", "tuning-rolled-back")))


def test_a_vm_that_cannot_move_back_is_tried_every_five_minutes_and_then_left(services: Services, clock: Clock) -> None:
    begin(services)
    tuner = Tuner()
    (told,) = outcomes(services, tuner)
    assert told.startswith("its trial waits: ")
    tried_at: list[float] = []
    while (trial := record(services).trial) is not None:
        assert trial.moved_back_at is not None
        tried_at += [trial.moved_back_at] if trial.moved_back_at not in tried_at else []
        clock.now += 10
        said = outcomes(services, tuner)
        assert said == [] or record(services).trial is None
    steps = {later - earlier for earlier, later in pairwise(tried_at)}
    assert tried_at[0] == NOW and min(steps) >= MOVE_AGAIN_S and max(steps) < MOVE_AGAIN_S + GO_ON_S + 10
    assert MOVING_BACK_S <= clock.now - NOW < MOVING_BACK_S + MOVE_AGAIN_S + GO_ON_S
    (ended,) = events(services)
    assert "it stays on gpu2, since it cannot move back" in ended.detail


WITHOUT_GPU1 = INVENTORY.replace("gpu1: , ", "")


def test_a_trial_with_a_host_outside_of_the_limit_is_awaited(opens: Callable[..., Any]) -> None:
    with opens(limit="gpu2") as services:
        trial = begin(services)
        tuner = Tuner()
        waits = f"the trial on gpu1 {GPU} waits for a controller that serves gpu1, which --limit leaves out here"
        assert outcomes(services, tuner) == [waits]
        assert outcomes(services, tuner) == [], "it is said once"
        assert record(services).trial == trial and events(services) == []


def test_a_trial_with_a_host_of_no_inventory_ends_an_hour_after_it_was_read(
    opens: Callable[..., Any], clock: Clock
) -> None:
    with opens(WITHOUT_GPU1) as services:
        begin(services)
        clock.now += 3599
        (said,) = outcomes(services, Tuner())
        assert "waits: the inventory does not list gpu1 any more" in said and record(services).trial is not None
        clock.now += 1
        why = "it made VMs worse; no inventory lists gpu1 any more"
        assert outcomes(services, Tuner()) == [f"its trial ended: {why}"]
        (ended,) = events(services)
        assert (ended.kind, ended.host) == ("tuning-ended", "gpu1") and ended.detail.startswith(why)
        assert record(services).trial is None and [one.advice for one in record(services).tried] == ["rebalance-1"]


def test_a_vm_that_is_gone_ends_its_trial_without_the_hosts(opens: Callable[..., Any]) -> None:
    with opens(limit="gpu2") as services:
        begin(services)
        with services.store.transaction() as session:
            session.set_vm_state("1", VmState.STOPPED)
        (ended,) = outcomes(services, Tuner())
        assert ended == "its trial ended: it made VMs worse; it is stopped" and record(services).trial is None


def test_forgetting_a_host_ends_its_trial_with_an_event(services: Services) -> None:
    begin(services)
    with services.store.transaction() as session:
        forget_readings(session, "gpu1")
    (ended,) = events(services)
    assert "the host was forgotten" in ended.detail and ended.evidence["vms"] == ["acme/web"]
    assert record(services) == TuningRecord()
    with services.store.transaction() as session:
        session.save_host_record("gpu1", "tuning", "{")
        forget_readings(session, "gpu1")
        forget_readings(session, "gpu1")
    (_first, unreadable) = events(services)
    assert "cannot be read" in unreadable.detail


def test_a_vm_does_not_move_back_while_rebalance_moves_vms(services: Services, clock: Clock) -> None:
    begin(services)
    tuner = Tuner()
    with services.store.operation("rebalance", "rebalance:moves", "the moves of its plan", exclusive=True):
        (told,) = outcomes(services, tuner)
        assert told.startswith("its trial waits: rebalance is at work on the moves of its plan")
    left = record(services).trial
    assert left is not None and left.moved_back_at is None, "that was no try"
    clock.now += GO_ON_S
    assert outcomes(services, tuner) != [told]
    left = record(services).trial
    assert left is not None and left.moved_back_at == clock.now


def test_a_trial_whose_problem_was_told_is_not_looked_at_in_every_round(services: Services, clock: Clock) -> None:
    trial = begin(services)
    tuner = Tuner()
    assert outcomes(services, tuner) != []
    again = replace(trial, told="its hosts give no answer")
    for passed_s, is_tried in ((GO_ON_S - 1, False), (1, True)):
        with services.store.transaction() as session:
            save_tuning(session, "gpu1", TuningRecord(again))
        clock.now += passed_s
        outcomes(services, tuner)
        left = record(services).trial
        assert left is not None and (left.moved_back_at == clock.now) is is_tried


def test_what_failed_in_a_watch_is_told_also_of_a_vm_that_runs_again(services: Services, clock: Clock) -> None:
    begin(services)
    places = [("gpu2", GPU)]

    def note(kind: EventKind, subject: str, *, failed: bool = False, finding: str = "") -> None:
        with services.store.transaction() as session:
            session.add_event(kind, subject, after={"failed": True} if failed else {}, evidence={"finding": finding})

    note(EventKind.VM_OBSERVED, "acme/web", failed=True)
    clock.now += 60
    since = clock.now
    for subject in ("acme/web", "acme/other"):
        note(EventKind.VM_OBSERVED, subject)
    note(EventKind.VM_OBSERVED, "acme/other", failed=True)
    note(EventKind.GPU_HEALTH, f"gpu2 {GPU}", finding="xid-restart-app")
    note(EventKind.GPU_HEALTH, f"gpu1 {GPU}", finding="off-the-bus")
    assert failures_since(services, ["acme/web"], places, since) == []
    note(EventKind.VM_OBSERVED, "acme/web", failed=True)
    note(EventKind.GPU_HEALTH, f"gpu2 {GPU}", finding="ecc-uncorrected")
    assert failures_since(services, ["acme/web"], places, since) == [
        "acme/web failed: nobody ended it",
        f"gpu2 {GPU}: ecc-uncorrected",
    ]
