# SPDX-License-Identifier: Apache-2.0
"""show-gpu, and the last hour of show-vm: a GPU that is read now, one whose host is silent, and past readings."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.playing import play
from vgpuctl.telemetry.history import History, MeasuredValue, Subject

GPU = "0000:41:00.0"
SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def with_vm(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    """web-1 has a share of the GPU of sim-001, which is hot and had an Xid."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "web-1", *SIZE, "--gpu", "A40-8Q", "--host", "sim-001")
    play(
        fleet,
        "sim-001",
        f"gpu:{GPU} power_watts 0 0:287",
        f"gpu:{GPU} temperature_celsius 0 0:83",
        f"gpu:{GPU} clock_event/sw_thermal_slowdown 0 0:1",
    )
    return fleet_operator


def test_a_gpu_is_shown_with_readings_shares_and_events(with_vm: Operator) -> None:
    with_vm.does("quarantine-gpu", "sim-001", GPU, "--reason", "fans rattle")
    out = with_vm.does("show-gpu", "sim-001", "41:00.0").out
    with_vm.does("unquarantine-gpu", "sim-001", GPU, "--reason", "fixed")
    assert out.startswith(f"sim-001 {GPU} NVIDIA A40 48 GiB, equal-size vGPUs")
    assert "  [web-1======]" + "!" * 65 in out
    assert "287 W of 300, 83 C" in out and "health    nothing found" in out
    assert f"share     acme/web-1 A40-8Q on {GPU[:-1]}4, " in out and "of its promise" in out
    assert f"closed    quarantine of {GPU} since " in out and "fans rattle" in out
    assert f"gpu-quarantined sim-001 {GPU}: fans rattle" in out
    assert "last hour no history of readings: " in out


def test_a_gpu_is_found_by_its_uuid_and_by_a_vf(with_vm: Operator) -> None:
    found = with_vm.json("show-gpu", "sim-001", GPU)
    assert found["gpu"]["address"] == GPU and found["readings"]["measured"]["values"]
    for name in (found["gpu"]["uuid"], found["gpu"]["uuid"].upper(), f"{GPU[:-1]}4"):
        assert with_vm.json("show-gpu", "sim-001", name)["gpu"]["address"] == GPU
    listed = with_vm.does("list-gpus", "--limit", "sim-001", "-o", "name").out.split()
    assert [with_vm.json("show-gpu", name)["gpu"]["address"] for name in listed] == [GPU]
    assert found["map"]["segments"][0]["vm"] == "web-1" and found["health"] == []
    assert found["topology"]["nearness"][GPU] == {GPU: "same"}


@pytest.mark.parametrize(
    ("arguments", "reference"),
    [
        (("sim-001", "0000:99:00.0"), "not-found"),
        (("sim-001", "\x1b[31m"), "not-found"),
        (("sim-001", ""), "not-found"),
        (("nowhere", GPU), "inventory"),
        ((f"nowhere/{GPU}",), "inventory"),
        (("sim-001",), "usage"),
        (("sim-001/",), "usage"),
        ((f"sim-001/{GPU}", GPU), "usage"),
        (("sim-001", GPU, "--prometheus", "nonsense"), "usage"),
    ],
)
def test_what_is_not_there_is_refused(with_vm: Operator, arguments: tuple[str, ...], reference: str) -> None:
    refused = with_vm.is_refused("show-gpu", *arguments)
    assert refused["reference"] == reference and "\x1b" not in refused["message"]


def test_a_quarantine_that_is_there_keeps_its_reason_and_says_it(with_vm: Operator) -> None:
    first, second = (("quarantine-gpu", f"sim-002/{GPU}", "--reason", reason) for reason in ("smells", "other"))
    assert with_vm.json(*first)["reason"] == "smells"
    again = with_vm.json(*second)
    assert (again["changed"], again["reason"]) == (False, "smells")
    assert "no change, it is in quarantine: smells" in with_vm.does(*second).err
    cordons = [with_vm.json("cordon-host", "sim-002", "--reason", reason) for reason in ("rack", "cable")]
    assert [(one["changed"], one["reason"]) for one in cordons] == [(True, "rack"), (False, "rack")]
    with_vm.does("uncordon-host", "sim-002")
    with_vm.does("unquarantine-gpu", f"sim-002/{GPU}", "--reason", "aired")


def test_a_silent_host_is_shown_as_the_store_knows_it(with_vm: Operator, tmp_path: Path) -> None:
    inventory = tmp_path / "elsewhere.yml"
    inventory.write_text("all: {hosts: {sim-001: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    cut_off = Operator(with_vm.home, inventory, with_vm.database)
    done = cut_off.does("show-gpu", "sim-001", GPU)
    assert "[web-1======]" in done.out and "now       no readings: " in done.out
    assert "unknown since" not in " ".join(done.out.split()), "an inventory that leads elsewhere says nothing of it"
    assert "could not be read now" in done.err
    assert "health    unknown: its host could not be read now" in done.out
    never = Operator(with_vm.home, inventory, f"sqlite:///{tmp_path}/new.db")
    assert never.is_refused("show-gpu", "sim-001", GPU)["reference"] == "host-unreachable"


@pytest.fixture(scope="module")
def history(with_vm: Operator) -> Path:
    """Readings of the last half hour, with a gap of ten minutes; the vGPU of another VM is in it too."""
    shares = with_vm.json("show-gpu", "sim-001", GPU)["shares"]
    device = shares[0]["lease"]["share"]["function"]
    path = with_vm.home / "store.db.history"
    now = time.time()
    with History(path) as kept:
        for minute in [*range(30, 20, -1), *range(10, -1, -1)]:
            vgpu = Subject("vgpu", "sim-001", device, GPU, "acme", "web-1", "A40-8Q")
            other = Subject("vgpu", "sim-001", "0000:41:00.7", GPU, "acme", "web-9", "A40-8Q")
            values = [MeasuredValue(one, "utilization_ratio", 0.25) for one in (vgpu, other)]
            values += [MeasuredValue(Subject("gpu", "sim-001", "GPU-x", GPU), "power_watts", 100.0 + 5 * minute)]
            kept.add(now - minute * 60, values)
    return path


def test_the_last_hour_is_drawn_from_the_history_beside_the_store(with_vm: Operator, history: Path) -> None:
    lines = with_vm.does("show-gpu", "sim-001", GPU).out.splitlines()
    power = next(line for line in lines if line.startswith("  power"))
    course = power[23 : power.index(" 100-250 W")]
    # A minute may have begun since the readings were kept: its column, and none before, is empty.
    assert course.startswith(" " * 10) and course[-2:].rstrip()[-1:] in ("▃", "▄") and max(course) == "█"
    assert "     " in course.strip()
    assert len(power) <= 80
    out = with_vm.does("show-vm", "web-1", "--tenant", "acme").out
    assert out.count("  utilization ") == 1 and "25-25%, 25% now" in out
    found = with_vm.json("show-vm", "web-1", "--tenant", "acme")["last_hour"]
    (line,) = found["lines"]
    assert len(line["values"]) == 60 and line["values"].count(None) in (39, 40) and line["low"] == 0.25


def test_a_terminal_without_blocks_gets_ascii(with_vm: Operator, history: Path) -> None:
    plain = Operator(with_vm.home, with_vm.inventory, with_vm.database, {"PYTHONIOENCODING": "ascii"})
    with plain.start("show-vm", "web-1", "--tenant", "acme", "--history-file", str(history)) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "------     ------" in out and out.isascii()


def test_another_file_that_is_no_history_is_a_line(with_vm: Operator, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a history\n" * 500)
    out = with_vm.does("show-vm", "web-1", "--tenant", "acme", "--history-file", str(other)).out
    assert f"last hour the history of readings {other} cannot be used: file is not a database" in out


class _Prometheus(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        labels = {"host": "sim-001", "gpu": GPU}
        values = [[time.time() // 60 * 60, "123"]]
        data = {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_prometheus_counts_before_the_file(with_vm: Operator, history: Path, prometheus: str) -> None:
    assert "123-123 W" in with_vm.does("show-gpu", "sim-001", GPU, "--prometheus", prometheus).out
    gone = with_vm.does("show-gpu", "sim-001", GPU, "--prometheus", "http://127.0.0.1:1").out
    assert "last hour http://127.0.0.1:1 cannot be asked: " in gone
