# SPDX-License-Identifier: Apache-2.0
"""The budget of moves that runs of rebalance share: what counts, and that two runs do not move VMs at once."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.event import Actor
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.placement import Placement
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.store.store import open_store
from vgpuctl.usecases.maintenance.planned_moves import MoveRules
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.balance import carry_out_moves, moved_lately
from vgpuctl.wiring import Settings, open_services

NOW = 1_800_000_000.0
RULES = MoveRules("a calmer GPU")
STEPS = [
    DefragStep(name, f"acme/{name}", WayKind.LIVE, 0.0, "gpu1", ("0000:41:00.0",), Placement("gpu2", ()))
    for name in ("web", "db")
]
BEGUN, ENDED, COLD, LIVE = EventKind.MOVES_BEGUN, EventKind.MOVES_ENDED, EventKind.VM_MOVED, EventKind.VM_MOVED_LIVE


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    (tmp_path / "inventory.yml").write_text("all:\n  hosts:\n    gpu1:\n    gpu2:\n")
    settings = Settings((str(tmp_path / "inventory.yml"),), _url(tmp_path))
    with open_services(settings, lambda _text: None, clock=lambda: NOW) as opened:
        yield opened


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/store.db"


def _happened(folder: Path, minutes: Sequence[tuple[int, EventKind]], command: str = "rebalance") -> None:
    """Events of a command, each so many minutes ago."""
    with open_store(_url(folder), actor=Actor(command, "root", "admin-1")) as store, store.transaction() as session:
        for ago, kind in minutes:
            subject = "rebalance" if kind in (BEGUN, ENDED) else "acme/web"
            session.add_event(kind, subject, at=NOW - 60 * ago)


@pytest.mark.parametrize(
    ("minutes", "count"),
    [
        ((), 0),
        (((9, BEGUN), (8, COLD), (7, LIVE), (6, ENDED)), 2),
        (((9, BEGUN), (8, COLD), (7, LIVE)), 3),  # it still moves one
        (((50, BEGUN), (49, LIVE), (30, BEGUN), (29, LIVE), (28, ENDED)), 3),  # the first was killed
        (((70, BEGUN), (65, LIVE), (55, LIVE), (50, LIVE), (49, ENDED)), 2),  # begun before this hour
        (((30, BEGUN), (29, ENDED), (20, BEGUN)), 1),
        (((90, BEGUN), (89, LIVE), (88, ENDED)), 0),
    ],
)
def test_each_move_of_the_last_hour_counts_also_of_a_run_without_an_end(
    services: Services, tmp_path: Path, minutes: Sequence[tuple[int, EventKind]], count: int
) -> None:
    _happened(tmp_path, minutes)
    assert moved_lately(services) == count


def test_moves_of_other_commands_do_not_count(services: Services, tmp_path: Path) -> None:
    _happened(tmp_path, ((9, COLD), (8, LIVE)), command="move-vm")
    assert moved_lately(services) == 0


def test_moves_of_trials_count_when_they_begin_and_when_they_went_back(services: Services) -> None:
    with services.store.transaction() as session:
        for ago, kind, advice in (
            (70, EventKind.TUNING_BEGUN, "rebalance-1"),
            (50, EventKind.TUNING_ROLLED_BACK, "rebalance-1"),
            (40, EventKind.TUNING_BEGUN, "rebalance-2"),
            (20, EventKind.TUNING_KEPT, "rebalance-2"),
            (10, EventKind.TUNING_BEGUN, "power-limit-1"),
            (5, EventKind.TUNING_ROLLED_BACK, "power-limit-1"),
        ):
            session.add_event(kind, "gpu1 0000:41:00.0", at=NOW - 60 * ago, evidence={"advice": advice})
    assert moved_lately(services) == 2


def test_moves_since_the_plan_count_when_it_is_carried_out(services: Services, tmp_path: Path) -> None:
    _happened(tmp_path, ((9, BEGUN), (8, LIVE), (7, LIVE), (6, ENDED)))
    made = carry_out_moves(services, STEPS, RULES, per_hour=2)
    assert [(one.outcome, one.reason) for one in made] == [
        ("left", "the moves of this hour are used up"),
        ("left", "the run ended before it"),
    ]
    tried = carry_out_moves(services, STEPS, RULES, per_hour=3)
    assert [one.outcome for one in tried] == ["failed", "left"] and "is gone now" in tried[0].reason
    assert "is gone now" in carry_out_moves(services, STEPS, RULES)[0].reason


def test_two_runs_do_not_move_vms_at_once(services: Services, tmp_path: Path) -> None:
    with (
        open_store(_url(tmp_path)) as other,
        other.operation("rebalance", "rebalance:moves", exclusive=True),
        pytest.raises(ConcurrentChange),
    ):
        carry_out_moves(services, STEPS, RULES, per_hour=8)
    assert moved_lately(services) == 0
    assert carry_out_moves(services, STEPS, RULES, per_hour=8), "the other run has ended"
