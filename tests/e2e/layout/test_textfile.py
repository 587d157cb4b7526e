# SPDX-License-Identifier: Apache-2.0
"""apply-hosts with `telemetry`: the host's own file of readings, as node_exporter and the exporter have it."""

import asyncio
import contextlib
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.telemetry.running_exporter import Series, parse, values
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.boot_units import run_program
from vgpuctl_lab.simulated.layout import simulated_folder

FOLDER = "/var/lib/prometheus/node-exporter"
LAYOUT: dict[str, Any] = {"gpus": [{"match": "all", "kind": "vgpu"}]}
WITH_TEXTFILE = {**LAYOUT, "telemetry": {"textfile": FOLDER, "interval": 30}}
FILES = ("textfile-agent.pyz", "textfile.json", "vgpuctl-textfile.service", "vgpuctl-textfile.timer")
PER_READING = ("vgpuctl_host_reading_", "vgpuctl_host_cpu_", "vgpuctl_host_memory_available")
"""Measures that differ at every reading."""


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host with vendor-specific VFs and one with mdevs on VFs; each has a VM of tenant acme."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("textfile")
    fleet = layout_fleet(home, 2, "a40,a40/mdev-vf")
    for name in ("sim-001", "sim-002"):
        (fleet.machine(name).root / FOLDER[1:]).mkdir(parents=True)
    fleet.declare(sim_001=WITH_TEXTFILE, sim_002=WITH_TEXTFILE)
    fleet.operator.does("apply-hosts")
    fleet.operator.does("create-tenant", "acme")
    for name in ("sim-001", "sim-002"):
        size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--host", name)
        fleet.operator.does("create-vm", f"on-{name}", "--tenant", "acme", "--gpu", "A40-8Q", *size)
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def installed(layouts: LayoutFleet, name: str) -> dict[str, bytes]:
    """The files that are installed on a host."""
    folder = layouts.machine(name).root / "etc/vgpuctl"
    return {one: (folder / one).read_bytes() for one in FILES if (folder / one).exists()}


def run_unit(layouts: LayoutFleet, name: str, key: str) -> int | None:
    """Run a command of the service, as the timer does."""
    machine = layouts.machine(name)
    unit = installed(layouts, name)["vgpuctl-textfile.service"].decode()
    [command] = [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{key}=")]
    return asyncio.run(run_program(simulated_folder(layouts.folder), machine, shlex.split(command), "textfile"))


def written(layouts: LayoutFleet, name: str) -> Path:
    """The file of a host."""
    return layouts.machine(name).root / FOLDER[1:] / "vgpuctl.prom"


def of_host(series: Series, name: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The series of a host that do not differ at every reading."""
    return {
        key: value
        for key, value in series.items()
        if dict(key[1]).get("host") == name and not key[0].startswith(PER_READING)
    }


def test_the_second_run_writes_nothing(layouts: LayoutFleet) -> None:
    before = installed(layouts, "sim-001")
    assert set(before) == set(FILES)
    assert b"OnUnitInactiveSec=30s" in before["vgpuctl-textfile.timer"]
    links = layouts.machine("sim-001").root / "etc/systemd/system"
    assert layouts.machine("sim-001").state().services["vgpuctl-textfile.timer"]
    assert (links / "timers.target.wants/vgpuctl-textfile.timer").is_symlink()
    done = layouts.operator.json("apply-hosts", "--check")
    lines = [one for host in done["hosts"] for one in host["lines"] if "vgpuctl-textfile.timer" in one["text"]]
    assert [one["outcome"] for one in lines] == ["ok", "ok"]
    layouts.operator.does("apply-hosts")
    assert installed(layouts, "sim-001") == before


@pytest.mark.parametrize("name", ["sim-001", "sim-002"])
def test_the_file_agrees_with_the_exporter(layouts: LayoutFleet, name: str) -> None:
    assert run_unit(layouts, name, "ExecStart") == 0
    text = written(layouts, name).read_text()
    page = layouts.operator.does("serve", "exporter", "--once").out
    ours, exported = of_host(parse(text), name), of_host(parse(page), name)
    others = {"vgpuctl_collect_duration_seconds", "vgpuctl_snapshot_age_seconds", "vgpuctl_host_clock_skew_seconds"}
    measured = {key: one for key, one in exported.items() if key[0] in {own for own, _ in ours}}
    assert values(ours, "vgpuctl_vgpu_framebuffer_size_bytes", tenant="acme", vm=f"on-{name}") == [8 * 2**30]
    assert set(measured) == set(ours)
    assert {key[0] for key in exported} - {key[0] for key in ours} >= others
    about = {line for line in text.splitlines() if line.startswith("#")}
    assert about <= set(page.splitlines())
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_node_exporter_serves_the_file(layouts: LayoutFleet) -> None:
    assert run_unit(layouts, "sim-001", "ExecStart") == 0
    with node_exporter(written(layouts, "sim-001").parent) as page:
        series = parse(page)
    assert values(series, "node_textfile_scrape_error") == [0]
    ours = parse(written(layouts, "sim-001").read_text())
    assert ours.items() <= series.items()


@contextlib.contextmanager
def node_exporter(folder: Path) -> Iterator[str]:
    """The page of a real node_exporter that has only the textfile collector."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        pytest.skip("prometheus-node-exporter is not installed")
    options = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}")
    process = subprocess.Popen(
        [program, "--web.listen-address=127.0.0.1:0", *options], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = next(line for line in process.stderr if "Listening on" in line).rpartition("address=")[2].strip()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            yield answer.read().decode()
    finally:
        process.kill()
        process.communicate()


def test_a_run_that_failed_leaves_no_old_values(layouts: LayoutFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_unit(layouts, "sim-002", "ExecStart") == 0
    whole = written(layouts, "sim-002").read_text()
    monkeypatch.setenv("SERVICE_RESULT", "success")
    assert run_unit(layouts, "sim-002", "ExecStopPost") == 0
    assert written(layouts, "sim-002").read_text() == whole
    monkeypatch.setenv("SERVICE_RESULT", "timeout")
    assert run_unit(layouts, "sim-002", "ExecStopPost") == 0
    assert {name: value for (name, _labels), value in parse(written(layouts, "sim-002").read_text()).items()} == {
        "vgpuctl_collect_success": 0.0
    }


def test_a_folder_that_is_missing_is_told(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={**LAYOUT, "telemetry": {"textfile": "/var/lib/nowhere"}}, sim_002=WITH_TEXTFILE)
    done = layouts.operator.run("apply-hosts", "--limit", "sim-001")
    assert done.code != 0
    assert "/var/lib/nowhere is not there" in done.out + done.err
    assert "install prometheus-node-exporter" in done.out + done.err
    checked = layouts.operator.run("apply-hosts", "--limit", "sim-001", "--check")
    assert checked.code == done.code and "/var/lib/nowhere is not there" in checked.out
    (planned,) = layouts.operator.ends(done.code, "plan-hosts", "--limit", "sim-001")
    assert [one["code"] for one in planned["plan"]["obstacles"]] == ["not-found"]


def test_a_layout_without_it_removes_everything(layouts: LayoutFleet) -> None:
    assert run_unit(layouts, "sim-002", "ExecStart") == 0
    layouts.declare(sim_001=WITH_TEXTFILE, sim_002=LAYOUT)
    layouts.operator.does("apply-hosts")
    assert installed(layouts, "sim-002") == {}
    assert not written(layouts, "sim-002").exists()
    assert not list((layouts.machine("sim-002").root / "etc/systemd/system").rglob("vgpuctl-textfile*"))
    assert "vgpuctl-textfile.timer" not in layouts.machine("sim-002").state().services
    assert set(installed(layouts, "sim-001")) == set(FILES)
