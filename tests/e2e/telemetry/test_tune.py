# SPDX-License-Identifier: Apache-2.0
"""controller --tune power-limit: tried, watched, kept or rolled back, and left where somebody else changed the same."""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.agent.wire.boot import KEPT_LIMITS, MANIFEST
from vgpuctl.model.promise import PromiseVerdict
from vgpuctl.store.store import open_store
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.usecases.observed.tuning_record import read_tuning
from vgpuctl_lab.simulated.machine.tuning import Tuning

HOST, GPU = "sim-001", "0000:41:00.0"
BOUNDED = {"gpus": [{"match": "all", "kind": "vgpu", "tune": {"power_limit_w": "200-300"}}]}
WATCH_S = 1200.0
NOW = time.time() // 60 * 60
"""When each test begins; the same for all of them, so that they share the readings before it."""

LATER = NOW + WATCH_S + 60


@dataclass(frozen=True)
class Tuned:
    """One host with an A40 whose limit holds it back, and two VMs on it. history: its file. after: the last event
    before the test."""

    fleet: LayoutFleet
    history: Path
    leases: tuple[dict[str, Any], ...]
    after: int = 0

    def at(self, now: float) -> Operator:
        return self.fleet.operator.at(now)

    def round(self, now: float, *options: str) -> list[str]:
        """The lines of one round of a controller about tuning."""
        done = self.at(now).json("controller", "--once", "--history", str(self.history), *options)
        return [one["outcome"] for one in done if one["name"] in (f"{HOST} {GPU}", "tune")]

    def tries(self, now: float = NOW) -> list[str]:
        return self.round(now, *TUNE)

    def measures(self, first: float, last: float, *, watts: float = 0.0, steal: float = 0.0) -> None:
        """Keep minutes. watts: of the card, 0 for none. steal: what the VM `victim` loses."""
        with History(self.history) as kept:
            for minute in range(int(first // 60), int(last // 60)):
                values = [MeasuredValue(Subject("gpu", HOST, GPU, GPU), "power_watts", watts)] if watts else []
                for one in self.leases:
                    share, name = one["share"], one["vm_name"]
                    device = share["mdev_uuid"] or share["function"]
                    subject = Subject("vgpu", HOST, device, GPU, "acme", name, share["profile"])
                    measured = {"utilization_ratio": 0.4, "share_utilization_ratio": 0.8}
                    measured["steal_ratio"] = steal if name == "victim" else 0.0
                    values += [MeasuredValue(subject, *value) for value in measured.items()]
                kept.add(60.0 * minute, values)

    @property
    def watts(self) -> float | None:
        """The limit that somebody has set, None for the board's own."""
        found = self.fleet.machine(HOST).state().tunings.get(GPU)
        return None if found is None or found.power_mw is None else found.power_mw / 1000

    def sets(self, watts: float) -> None:
        """Set the limit as somebody else does."""
        with self.fleet.machine(HOST).change() as state:
            state.tunings[GPU] = Tuning(round(1000 * watts))

    @property
    def kept(self) -> list[int]:
        """The limits in milliwatts that the boot sets."""
        file = self.fleet.machine(HOST).root / KEPT_LIMITS.lstrip("/")
        return [one["limit_mw"] for one in json.loads(file.read_text())["limits"]] if file.exists() else []

    def events(self) -> list[dict[str, Any]]:
        """The events of tuning since the test began, the oldest first."""
        every = self.fleet.operator.json("list-events", "--kind", "tuning-*", "--limit", "1000")
        return sorted((one for one in every if one["id"] > self.after), key=lambda one: one["id"])


TUNE = ("--tune", "power-limit", "--tune-watch", "20m")


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    need_simulated()
    home: Path = tmp_path_factory.mktemp("tuned")
    fleet = layout_fleet(home, 1, "a40:1")
    fleet.declare(sim_001=BOUNDED)
    fleet.operator.does("apply-hosts")
    fleet.operator.does("create-tenant", "acme")
    for name in ("busy", "victim"):
        fleet.operator.does("create-vm", name, *ACME, *SIZE, "--gpu", "A40-24Q")
    leases = tuple(lease for one in fleet.operator.json("list-vms") for lease in one["leases"])
    tuned = Tuned(fleet, home / "readings", leases)
    tuned.measures(NOW - 90 * 60, NOW, watts=249.0)
    yield tuned
    lab.simulated.down(folder=fleet.folder)


@pytest.fixture
def tuned(one_host: Tuned, tmp_path: Path) -> Tuned:
    """The host at 250 W, with the layout's bounds, of which nothing was tried."""
    one_host.fleet.declare(sim_001=BOUNDED)
    one_host.sets(250)
    (one_host.fleet.machine(HOST).root / KEPT_LIMITS.lstrip("/")).unlink(missing_ok=True)
    with open_store(one_host.fleet.operator.database) as store, store.transaction() as session:
        session.drop_host_record(HOST, "tuning")
    one_host.at(NOW).does("list-gpus", "--refresh")
    after = max((one["id"] for one in one_host.events()), default=0)
    history = Path(shutil.copy(one_host.history, tmp_path / "readings"))
    return replace(one_host, history=history, after=after)


def test_a_limit_that_holds_a_gpu_back_is_raised_watched_and_kept(tuned: Tuned) -> None:
    advised = tuned.at(NOW).does("advise", "--history", str(tuned.history)).out
    assert "controller: `vgpuctl controller --tune power-limit` may try it" in advised
    assert tuned.round(NOW) == [] and tuned.watts == 250
    (begun,) = tuned.tries()
    assert begun == f"in trial: {HOST} {GPU} drew its limit of 250 W in 90 of 90 measured minutes"
    assert tuned.watts == 275
    (trial,) = tuned.at(NOW).json("advise", "--history", str(tuned.history))["trials"]
    assert (trial["state"], trial["ends_at"]) == ("watched", NOW + WATCH_S)
    assert trial["vms"] == ["acme/busy", "acme/victim"]
    shown = tuned.at(NOW).does("advise", "--history", str(tuned.history)).out
    assert f"{trial['advice']} is in trial on {HOST} since" in shown
    assert tuned.tries(NOW + 600) == [], "one change at a time"
    tuned.measures(NOW, LATER)
    (kept,) = tuned.round(LATER)
    assert kept.startswith("kept: acme/busy: ") and tuned.watts == 275
    first, last = tuned.events()
    assert (first["kind"], last["kind"]) == ("tuning-begun", "tuning-kept")
    key = f"{HOST} vgpu: all GPUs, power_limit_w"
    assert (last["before"], last["after"]) == ({key: "250 W, not declared"}, {key: "275 W"})
    assert first["evidence"]["vms"] == ["acme/busy", "acme/victim"] and len(last["evidence"]["seen"]) == 2
    assert tuned.at(LATER).json("advise", "--history", str(tuned.history))["trials"] == []
    assert "power" not in tuned.at(LATER).does("plan-hosts").out, "what is left to a controller is as declared"
    assert tuned.kept == [275_000]
    tuned.fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu"}]})
    dropped = tuned.at(LATER).does("plan-hosts").out
    assert "have the tuned power limit of 0000:41:00.0, 275 W, set at boot no more" in dropped
    tuned.at(LATER).does("apply-hosts")
    assert (tuned.kept, tuned.watts) == ([], 275)


def test_a_record_that_cannot_be_read_hides_no_advice(tuned: Tuned) -> None:
    with open_store(tuned.fleet.operator.database) as store, store.transaction() as session:
        session.save_host_record("gone", "tuning", '{"trial": 1}')
    try:
        shown = tuned.at(NOW).does("advise", "--history", str(tuned.history))
        assert "drew its limit of 250 W" in shown.out and "controller: not tried: gone: " in shown.out
        assert "what controllers have in trial is not known: gone: " in shown.err
        assert tuned.tries()[0].startswith("nothing is tuned: gone: ") and tuned.watts == 250
    finally:
        with open_store(tuned.fleet.operator.database) as store, store.transaction() as session:
            session.drop_host_record("gone", "tuning")


def test_a_change_that_nobody_can_vouch_for_is_rolled_back_and_not_tried_again(tuned: Tuned) -> None:
    tuned.tries()
    tuned.measures(NOW, LATER, steal=0.3)
    (worse,) = tuned.round(NOW + 660)
    assert worse == (
        "rolled back: it made VMs worse: acme/victim: loses 30% of the GPU's time to neighbours instead of 0%"
    )
    assert tuned.watts == 250
    tuned.at(NOW + 690).does("list-gpus", "--refresh")  # of two readings by a clock that stands, the first counts
    assert tuned.tries(NOW + 700) == []
    kinds = [one["kind"] for one in tuned.events()]
    assert kinds == ["tuning-begun", "tuning-rolled-back", "tuning-refused"]
    assert tuned.tries(NOW + 720) == []
    assert [one["kind"] for one in tuned.events()] == kinds, "the same reason is told once"
    assert (
        "not tried: it was tried, and rolled back" in tuned.at(NOW).does("advise", "--history", str(tuned.history)).out
    )


def test_nothing_is_tried_whose_vms_were_not_measured_lately(tuned: Tuned) -> None:
    assert tuned.tries(NOW + 600) == [] and tuned.watts == 250, "five of the last fifteen minutes were measured"
    (refused,) = tuned.events()
    assert refused["kind"] == "tuning-refused"
    assert "acme/busy has no readings of 8 of the last 15 minutes" in refused["detail"]


def test_without_readings_since_the_change_it_is_rolled_back(tuned: Tuned) -> None:
    tuned.measures(NOW, LATER)
    tuned.tries()
    tuned.history.rename(tuned.history.with_suffix(".away"))
    try:
        (unknown,) = tuned.round(LATER)
    finally:
        tuned.history.with_suffix(".away").rename(tuned.history)
    assert unknown.startswith("rolled back: nobody knows that its VMs are as before: acme/busy: 0 minutes of readings")
    assert tuned.watts == 250


@pytest.mark.long(
    "tests/e2e/telemetry/test_tune.py::"
    "test_a_controller_that_was_killed_while_it_kept_a_limit_leaves_nothing_at_boot_that_is_rolled_back"
)
def test_a_controller_that_was_killed_leaves_a_trial_or_nothing(tuned: Tuned) -> None:
    command = ("controller", "--once", "--history", str(tuned.history), *TUNE)
    kill_after(tuned.at(NOW), "apply", *command)
    assert tuned.watts == 275
    assert tuned.round(NOW + 5) == []
    with open_store(tuned.fleet.operator.database) as store, store.reading() as session:
        trial = read_tuning(session, HOST).trial
    assert trial is not None and trial.watched_since == NOW + 5, "another controller goes on with it"
    assert PromiseVerdict.KEPT in trial.before[next(iter(trial.before))].rows.values()
    tuned.measures(NOW, LATER)
    assert tuned.round(NOW + 5 + WATCH_S)[0].startswith("kept: ")
    # Killed before the host took it: the host is as before.
    with open_store(tuned.fleet.operator.database) as store, store.transaction() as session:
        session.drop_host_record(HOST, "tuning")
    tuned.sets(250)
    tuned.at(NOW).does("list-gpus", "--refresh")
    kill_after(tuned.at(NOW), "apply", *command)
    tuned.sets(250)
    (ended,) = tuned.round(NOW + 5)
    assert ended.startswith("not tried: it was not made")
    assert tuned.tries(NOW + 10)[0].startswith("in trial"), "nothing was said against the advice"
    # Killed while it was rolled back.
    tuned.measures(LATER, LATER + 1800, steal=0.3)
    kill_after(tuned.at(LATER + 1800), "apply", *command)
    assert tuned.watts == 250
    assert tuned.round(LATER + 1805)[0].startswith("rolled back: it made VMs worse")


def test_a_controller_that_was_killed_while_it_kept_a_limit_leaves_nothing_at_boot_that_is_rolled_back(
    tuned: Tuned,
) -> None:
    tuned.tries()
    tuned.measures(NOW, LATER)
    kill_after(tuned.at(LATER), "apply", "controller", "--once", "--history", str(tuned.history))
    assert (tuned.kept, tuned.watts) == ([275_000], 275)
    tuned.measures(LATER, LATER + 1800, steal=0.3)
    assert tuned.round(LATER + 1800)[0].startswith("rolled back: it made VMs worse")
    assert (tuned.kept, tuned.watts) == ([250_000], 250)


def test_a_limit_that_no_unit_restores_is_said_to_end_with_the_boot(tuned: Tuned) -> None:
    tuned.tries()
    tuned.measures(NOW, LATER)
    manifest = tuned.fleet.machine(HOST).root / MANIFEST.lstrip("/")
    manifest.rename(manifest.with_suffix(".away"))
    try:
        (kept,) = tuned.round(LATER)
    finally:
        manifest.with_suffix(".away").rename(manifest)
    assert kept.startswith("kept: ") and "a reboot ends it, since no unit restores sim-001" in kept, kept
    assert tuned.kept == [] and tuned.events()[-1]["detail"] in kept


def test_the_controller_lets_go_of_what_others_change(tuned: Tuned) -> None:
    tuned.tries()
    tuned.sets(280)
    (left,) = tuned.round(NOW + 60)
    assert left == "its trial ended: somebody else, or the driver, set it to 280 W" and tuned.watts == 280
    tuned.sets(250)
    tuned.at(NOW).does("list-gpus", "--refresh")
    assert tuned.tries(NOW + 90) == [], "an operator who sets the old value again is not overruled"
    assert "it was tried, and left: somebody else, or the driver, set it" in tuned.events()[-1]["detail"]


LAYOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "declared": ({"power_limit_w": 250}, "the layout declares its power_limit_w"),
    "no-bounds": ({}, "its layout has no tune.power_limit_w"),
    "excluded": (
        {"tune": {"power_limit_w": "260-300"}},
        "its power limit is 250 W, outside of tune.power_limit_w, 260 W to 300 W",
    ),
}


def test_what_a_layout_declares_stays(tuned: Tuned) -> None:
    for keys, reason in LAYOUTS.values():
        tuned.fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", **keys}]})
        assert tuned.tries() == [] and tuned.watts == 250
        assert reason in tuned.events()[-1]["detail"]
    refused = tuned.at(NOW).run("plan-hosts")
    assert refused.code != 0 and LAYOUTS["excluded"][1] in refused.out + refused.err
    tuned.fleet.declare(sim_001=BOUNDED)
    tuned.tries()
    tuned.fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", "power_limit_w": 260}]})
    (left,) = tuned.round(NOW + 60)
    assert left.startswith("its trial ended: the layout declares it now (") and tuned.watts == 275
    assert tuned.at(NOW).is_refused("controller", "--once", "--tune", "scheduler")["reference"] == "usage"


def test_a_reboot_ends_the_trial_says_nothing_against_the_advice_and_brings_back_what_was_kept(tuned: Tuned) -> None:
    tuned.tries()
    tuned.measures(NOW, LATER)
    assert tuned.round(LATER)[0].startswith("kept: ") and tuned.watts == 275
    second = LATER + 90 * 60
    tuned.measures(LATER, second, watts=274.0)
    assert tuned.tries(second)[0].startswith("in trial") and tuned.watts != 275, "300 W, the board's own"
    lab.simulated.reboot(HOST, folder=tuned.fleet.folder)
    (ended,) = tuned.round(second + 60)
    assert ended.startswith("its trial ended: the host was booted") and tuned.watts == 275
    with open_store(tuned.fleet.operator.database) as store, store.reading() as session:
        assert read_tuning(session, HOST).tried == ()
