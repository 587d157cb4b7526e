# SPDX-License-Identifier: Apache-2.0
"""advise: scenarios that simulated hosts play are read by the real agent, and the VM that causes them is named."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.telemetry.running_exporter import running_exporter, values
from tests.lab.simulated_fixtures import machine
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.telemetry.host_page import kept_values
from vgpuctl.usecases.observed.fleet_reader import read_fleet
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.machine.curves import CURVES
from vgpuctl_lab.simulated.machine.distribution import DOMAINS
from vgpuctl_lab.simulated.machine.tree import POOL_FOLDER

SMALL = ("--tenant", "advised", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
MINUTES = 9
GIB = float(1 << 30)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    """noisy and victim share a GPU; leaks and small have one for themselves."""
    fleet_operator.does("create-tenant", "advised")
    fleet_operator.does("create-vm", "noisy", "--gpu", "A40-24Q", "--limit", "sim-001", *SMALL)
    fleet_operator.does("create-vm", "victim", "--gpu", "A40-24Q", "--limit", "sim-001", *SMALL)
    fleet_operator.does("create-vm", "leaks", "--gpu", "A40-24Q", "--limit", "sim-002", "--disk", "64MiB", *SMALL)
    fleet_operator.does("create-vm", "small", "--gpu", "T4-16Q", "--limit", "sim-003", *SMALL)
    yield fleet_operator
    for name in ("noisy", "victim", "leaks"):
        fleet_operator.does("delete-vm", name, "--tenant", "advised", "--yes", "--timeout", "0")


@pytest.fixture(scope="module")
def places(operator: Operator) -> dict[str, tuple[str, str, str]]:
    """Host, GPU and device of each VM."""
    found = {}
    for one in operator.json("list-vms", "--tenant", "advised"):
        share = one["leases"][0]["share"]
        found[one["vm"]["request"]["name"]] = (one["vm"]["host"], share["gpu"], share["mdev_uuid"] or share["function"])
    return found


@pytest.fixture(scope="module")
def history(operator: Operator, fleet: lab.LabFolder) -> Path:
    """Nine minutes of the lab's scenarios, which ended just now: each is read by the real agents and kept."""
    files = {}
    for host, scenario in (("sim-001", "noisy-neighbour"), ("sim-002", "memory-leak")):
        lab.playing.play(host, lab.scenarios.read_scenario(scenario), folder=fleet)
        path = machine(fleet, host).root / CURVES.lstrip("/")
        files[path] = path.read_text().splitlines()[1:]
    # The disk of leaks takes four fifths of what goes from the pool of its host.
    (domain,) = (machine(fleet, "sim-002").root / DOMAINS).glob("advised.leaks.xml")
    (disk,) = re.findall(r"<source file='([^']+qcow2)'", domain.read_text())
    files[path] += [
        f"host disk_free_bytes/{POOL_FOLDER} 0 0:600e9 600:100e9",
        f"host disk_allocated_bytes/{disk} 0 0:10e9 600:410e9",
    ]
    path = Path(operator.database.removeprefix("sqlite:///") + ".history")
    settings = Settings([str(operator.inventory)], operator.database, command_timeout_s=300)
    begin = time.time() // 60 * 60 - 60 * MINUTES
    with open_services(settings, lambda _text: None) as services, History(path) as kept:
        with services.store.reading() as session:
            leases = session.leases()
        for minute in range(MINUTES + 1):
            for curves, lines in files.items():
                curves.write_text("\n".join([f"start {time.time() - 60 * minute}", *lines]) + "\n")
            for one in read_fleet(services, ["sim-001", "sim-002"]):
                assert one.readings is not None, one.error
                own = [lease for lease in leases if lease.host == one.host]
                kept.add(begin + 60 * minute, kept_values(one.host, one.readings, own))
    return path


def test_without_history_there_is_no_advice(operator: Operator, tmp_path: Path) -> None:
    refused = operator.is_refused("advise", "--history", str(tmp_path / "absent"))
    assert (refused["reference"], "measurements only" in refused["hint"]) == ("not-found", True)
    assert operator.is_refused("advise", "--tenant", "nobody")["reference"] == "not-found"
    assert operator.is_refused("advise", "--host", "nowhere")["reference"] == "not-found"


def test_the_noisy_neighbour_and_the_leak_are_named_before_it_is_too_late(operator: Operator, history: Path) -> None:
    found = operator.json("advise", "--history", str(history))
    by_fault = {one["fault"]: one for one in found["findings"]}
    assert set(by_fault) == {"share-stolen", "framebuffer-runs-out", "disk-pool-runs-out"}
    stolen, filling = by_fault["share-stolen"], by_fault["framebuffer-runs-out"]
    assert (stolen["host"], stolen["vm"], stolen["victims"]) == ("sim-001", "noisy", ["advised/victim"])
    # In the first of its ten minutes the neighbour is still calm.
    assert stolen["figures"]["contention_ratio"] == pytest.approx(0.9 * 0.42, abs=0.02)
    assert (filling["host"], filling["vm"]) == ("sim-002", "leaks")
    assert filling["figures"]["used_ratio"] < 1
    assert 0 < filling["figures"]["exhaustion_seconds"] < 90
    pool = by_fault["disk-pool-runs-out"]
    assert (pool["host"], pool["resource"]) == ("sim-002", f"disk pool on {POOL_FOLDER}")
    assert pool["figures"]["exhaustion_seconds"] == pytest.approx(180, rel=0.2)
    ((cause, ratio),) = [(f"{one['tenant']}/{one['vm']}", one["ratio"]) for one in pool["causes"]]
    assert (cause, ratio) == ("advised/leaks", pytest.approx(0.8, abs=0.05))
    outlooks = {(one["kind"], one["host"]): one["ending"] for one in found["outlooks"]}
    assert outlooks["disk-pool", "sim-001"] == outlooks["host-memory", "sim-002"] == "lasts"
    assert outlooks["host-memory", "sim-003"] == "unknown", "nobody has read it"
    told = operator.does("advise", "--host", "sim-001").out
    assert "advised/noisy uses 84% of the GPU's time and was promised 50%" in told
    assert "move-vm" in told
    told = operator.does("advise", "--host", "sim-002").out
    assert "disk-pool-runs-out: sim-002\n" in told and "behind the growth: advised/leaks 80%" in told
    assert operator.json("advise", "--host", "sim-003")["findings"] == []


def test_each_onset_is_one_event_and_a_metric(operator: Operator, history: Path) -> None:
    for _run in range(2):
        with running_exporter(operator, "--history", str(history)) as exporter:
            series = exporter.wait_for(
                "the findings are metrics",
                lambda series: (
                    values(series, "vgpuctl_gpu_contention_ratio")
                    and values(series, "vgpuctl_vgpu_framebuffer_exhaustion_seconds")
                    and values(series, "vgpuctl_exhaustion_seconds", resource="disk-pool")
                ),
            )
            assert values(series, "vgpuctl_gpu_contention_ratio", vm="noisy") == [pytest.approx(0.4, abs=0.1)]
            bounds = [
                values(series, "vgpuctl_vgpu_framebuffer_exhaustion_seconds", vm="leaks", bound=bound)[0]
                for bound in ("earliest", "expected", "latest")
            ]
            assert bounds == sorted(bounds)
    for kind, subject in (("contention-observed", "advised/noisy"), ("framebuffer-predicted", "advised/leaks")):
        (event,) = operator.json("list-events", "--kind", kind)
        assert (event["subject"], event["tenant"], event["after"]) == (subject, "advised", {"state": "begun"})
        assert event["evidence"]["gpu"].startswith("0000:")
    (event,) = operator.json("list-events", "--kind", "exhaustion-observed")
    assert (event["host"], event["tenant"], event["after"]) == ("sim-002", None, {"state": "begun"})
    assert event["evidence"]["causes"] == ["advised/leaks"]


def test_advice_is_a_diff_with_commands_gain_proof_and_hours(
    operator: Operator, history: Path, places: dict[str, tuple[str, str, str]]
) -> None:
    host, gpu, device = places["small"]
    subject = Subject("vgpu", host, device, gpu, "advised", "small", "T4-16Q")
    hour = time.time() // 3600 * 3600
    with History(history) as kept:
        for before in range(30, 1, -1):
            for minute in range(60):
                at = hour - 3600 * before + 60 * minute
                kept.add(at, [MeasuredValue(subject, "framebuffer_used_bytes", (3 + minute % 2) * GIB)])
    found = operator.json("advise", "--history", str(history), "--tenant", "advised")
    (smaller,) = [one for one in found["recommendations"] if one["kind"] == "smaller-profile"]
    assert smaller["vm"] == "small"
    assert smaller["diff"] == ["- advised/small gpus: [T4-16Q]", "+ advised/small gpus: [T4-8Q]"]
    assert smaller["measured_hours"] == pytest.approx(29, abs=0.2)
    assert smaller["confidence"] == "medium"
    assert smaller["gain"]["value"] > 0
    assert "placing was replayed" in smaller["proof"]
    assert [one for one in found["recommendations"] if one["kind"] == "rebalance"] == [], "ten minutes are too few"
    # One clock for all, and the other GPU has its own load: what moves follows from these values alone.
    loads = (("noisy", 0.92, 0.0), ("victim", 0.08, 0.42), ("leaks", 0.3, 0.0))
    now = time.time()
    with History(history) as kept:
        for name, use, steal in loads:
            host, gpu, device = places[name]
            subject = Subject("vgpu", host, device, gpu, "advised", name, "A40-24Q")
            measures = {"utilization_ratio": use, "share_utilization_ratio": use * 2, "steal_ratio": steal}
            values_of_minute = [MeasuredValue(subject, *one) for one in measures.items()]
            for before in range(60, 15, -1):
                kept.add(now - 60 * before, values_of_minute)
    again = operator.json("advise", "--history", str(history))
    assert smaller["id"] in [one["id"] for one in again["recommendations"]]
    (moves,) = [one for one in again["recommendations"] if one["kind"] == "rebalance"]
    assert moves["host"] == "sim-001"
    assert moves["gain"]["at_most"]
    # The victim is small and fits beside the VM there; the noisy one would take from that as well.
    assert moves["commands"] == ["vgpuctl move-vm advised/victim --to sim-002"]
    assert "$ vgpuctl move-vm" in operator.does("advise", "--history", str(history)).out
    operator.does(*_words(moves["commands"][0]), "--dry-run")
    rebalance = ("rebalance", "--history", str(history))
    planned = operator.json(*rebalance)
    assert [one["id"] for one in planned["advice"]] == [moves["id"]]
    assert [(one["step"]["name"], one["outcome"]) for one in planned["moves"]] == [("advised/victim", "planned")]
    assert "advised/victim" in operator.does(*rebalance, "--max-moves", "1").out
    above = operator.json(*rebalance, "--above", "70", "--moves-per-hour", "1", "--max-downtime", "10m")
    assert [(one["step"]["name"], one["outcome"]) for one in above["moves"]] == [("advised/victim", "planned")]
    assert "% with it" in above["advice"][0]["gain"]["text"]
    assert operator.json(*rebalance, "--above", "70", "--max-downtime", "1s")["moves"] == []
    made = operator.json(*rebalance, "--apply", "--yes", "--allow-cold", "--shutdown-timeout", "0")
    assert (made["changed"], [one["outcome"] for one in made["moves"]]) == (True, ["moved"])
    (moved,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "victim"]
    share = moved["leases"][0]["share"]
    assert moves["after"] == {"advised/victim place": f"{moved['vm']['host']} {share['gpu']}"}
    (told,) = operator.json("list-events", "--kind", "moves-ended")
    assert (told["subject"], told["after"]) == ("rebalance", {"moved": 1, "failed": 0, "left": 0})
    counted = operator.json("list-events", "--kind", "vm-moved*", "--command", "rebalance")
    assert [one["subject"] for one in counted] == ["advised/victim"], "the budget of an hour goes by these"
    assert operator.json(*rebalance, "--above", "1", "--moves-per-hour", "1")["moves"] == [], "one was made this hour"
    assert "--above" in operator.is_refused(*rebalance, "--moves-per-hour", "1")["hint"]
    stop, create, delete = smaller["commands"]
    operator.does(*_words(stop), "--timeout", "0")
    operator.does(*_words(create))
    operator.does(*_words(delete), "--yes", "--timeout", "0")
    (new,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "small-new"]
    assert new["leases"][0]["share"]["profile"] == "T4-8Q"
    operator.does("delete-vm", "small-new", "--tenant", "advised", "--yes", "--timeout", "0")


def _words(command: str) -> list[str]:
    """The arguments of a command that a recommendation has told."""
    return shlex.split(command, comments=True)[1:]


def test_placing_goes_by_the_load_of_the_last_hour(operator: Operator, history: Path) -> None:
    request = ("next", "--gpu", "A40-24Q", *SMALL, "--policy", "least-utilised", "--history", str(history))
    (explained,) = operator.json("explain-vm", *request)
    loads = {one["host"]: one for one in explained["loads"]}
    assert loads["sim-001"]["rolling"]["minutes"] >= MINUTES
    assert loads["sim-001"]["percent"] > 90
    shown = operator.does("explain-vm", *request).out
    assert "minutes, newest" in shown
    (without,) = operator.json("explain-vm", *request[:-1], str(history) + ".absent")
    assert all(one["rolling"] is None for one in without["loads"])
    assert "is not there" in without["loads_problem"]
