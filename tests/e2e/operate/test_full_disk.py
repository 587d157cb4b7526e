# SPDX-License-Identifier: Apache-2.0
"""An operator whose disk is full: reading works, a change is refused, and every error names the file and the disk."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from tests.small_disk import SmallDisk, small_disk

SMALL = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
FULL = "the disk is full (the system answered: No space left on device)"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with small_disk(tmp_path_factory.mktemp("disk") / "small") as made:
        yield made


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, disk: SmallDisk) -> Operator:
    """An operator whose home, store and temporary files lie on the small disk. A VM runs."""
    (disk.path / "tmp").mkdir()
    made = replace(
        fleet_operator,
        home=disk.path,
        database=f"sqlite:///{disk.path}/store.db",
        variables={"TMPDIR": str(disk.path / "tmp")},
    )
    made.does("create-tenant", "acme")
    made.does("create-vm", "web", "--gpu", "A40-8Q", *SMALL)
    return made


READING = {
    "list-hosts": ["list-hosts"],
    "list-gpus": ["list-gpus"],
    "list-gpus again": ["list-gpus", "--refresh"],
    "list-vms": ["list-vms"],
    "show-vm": ["show-vm", "web", "--tenant", "acme"],
    "capacity": ["capacity", "--gpu", "A40-8Q"],
    "capacity again": ["capacity", "--gpu", "A40-8Q", "--refresh"],
    "explain-vm": ["explain-vm", "db", "--gpu", "A40-8Q", *SMALL],
    "inspect-host": ["inspect-host", "sim-001"],
}


_SAME_WAY = ("capacity again", "explain-vm", "inspect-host")
_LATER = pytest.mark.long("tests/e2e/operate/test_full_disk.py::test_reading_commands_work_on_a_full_disk")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        *(
            pytest.param("full", arguments, id=f"{name}, full", marks=_LATER if name in _SAME_WAY else ())
            for name, arguments in READING.items()
        ),
        *(
            pytest.param("read_only", READING[name], id=f"{name}, read-only")
            for name in ("list-gpus again", "list-vms")
        ),
    ],
)
def test_reading_commands_work_on_a_full_disk(
    kind: str, arguments: list[str], operator: Operator, disk: SmallDisk
) -> None:
    expected = operator.does(*arguments)
    with disk.full() if kind == "full" else disk.read_only():
        done = operator.does(*arguments)
    assert len(done.out.splitlines()) == len(expected.out.splitlines())
    assert done.err.count("is not kept in the store") <= 1
    if "--refresh" in arguments:
        reason = FULL if kind == "full" else "the file system is read-only"
        assert "warning" in done.err and reason in done.err


def test_hosts_are_read_when_a_full_disk_has_no_facts_of_them(operator: Operator, disk: SmallDisk) -> None:
    fresh = replace(operator, database=f"sqlite:///{disk.path}/fresh.db")
    fresh.does("list-vms")
    with disk.full():
        assert len(fresh.json("list-hosts")) == 4
        assert len(fresh.json("list-gpus")) == 5


def test_a_killed_run_left_a_log_without_its_index(operator: Operator, disk: SmallDisk) -> None:
    """The -wal then has rows that the file itself has not."""
    program = f"""
import os, shutil
from vgpuctl.store.store import open_store
store = open_store("{operator.database}")
with store.transaction() as session:
    session.add_tenant("late")
for ending in ("", "-wal"):
    shutil.copy("{disk.path}/store.db" + ending, "{disk.path}/killed.db" + ending)
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    killed = replace(operator, database=f"sqlite:///{disk.path}/killed.db")
    for damage in (disk.full, disk.read_only):
        with damage():
            assert {"acme", "late"} <= {one["tenant"] for one in killed.json("list-tenants")}
        (disk.path / "killed.db-shm").unlink(missing_ok=True)
    assert not list(Path("/dev/shm").glob("vgpuctl-*"))


def test_a_change_on_a_full_disk_says_so_and_does_nothing(operator: Operator, disk: SmallDisk) -> None:
    with disk.full():
        done = operator.run("create-vm", "db", "--gpu", "A40-8Q", *SMALL)
        assert done.code == 6 and FULL in done.err and "df -h" in done.err
        new = replace(operator, database=f"sqlite:///{disk.path}/new.db").run("list-vms")
        assert new.code == 6 and FULL in new.err
    assert [vm["vm"]["request"]["name"] for vm in operator.json("list-vms")] == ["web"]


_EARLIER = pytest.mark.long(
    "tests/e2e/operate/test_full_disk.py::test_a_disk_that_fills_up_in_the_middle_leaves_what_repair_finishes"
)


@pytest.mark.parametrize("progress", [pytest.param("placed on", marks=_EARLIER), "1 share built"])
def test_a_disk_that_fills_up_in_the_middle_leaves_what_repair_finishes(
    operator: Operator, disk: SmallDisk, fleet_witness: FleetWitness, progress: str
) -> None:
    there = fleet_witness.state()
    with operator.start("create-vm", "db", "--gpu", "A40-8Q", *SMALL) as process:
        assert process.stderr is not None
        while progress not in (line := process.stderr.readline()):
            assert line, f"it ended before {progress!r}"
        with disk.full():
            _out, err = process.communicate(timeout=120)
    assert process.returncode == 6 and "full" in err and "vgpuctl repair" in err, err
    assert [one["outcome"] for one in operator.json("repair")] == ["rolled back"]
    assert operator.json("repair") == []
    assert [vm["vm"]["request"]["name"] for vm in operator.json("list-vms")] == ["web"]
    assert fleet_witness.state() == there


WRITING = {
    "an exported layout": ["export", "layout", "sim-001", "--for", "vgpu-device-manager", "--to", "{disk}/out/deep"],
    "the authority": ["create-certificate", "gpu1"],
}


@pytest.mark.parametrize("arguments", WRITING.values(), ids=WRITING)
def test_a_file_that_cannot_be_written_is_named(
    arguments: list[str], operator: Operator, disk: SmallDisk, tmp_path: Path
) -> None:
    given = [one.format(disk=disk.path) for one in arguments]
    layout = {"version": 1, "gpus": [{"match": "all", "kind": "vgpu", "shares": {"A40-8Q": 1}}]}
    declared = tmp_path / "inventory.yml"
    declared.write_text(json.dumps({"all": {"hosts": {"sim-001": {"vgpu": layout}}}}))
    with disk.full():
        done = replace(operator, inventory=declared).run(*given)
    assert done.code == 6, done.err
    assert FULL in done.err and str(disk.path) in done.err and "hint: free some space" in done.err


def test_a_full_disk_under_stdout_and_the_log_is_named(operator: Operator) -> None:
    def run(words: str) -> "subprocess.CompletedProcess[str]":
        line = f"exec {sys.executable} -m vgpuctl {words}"
        return subprocess.run(
            ["/bin/sh", "-c", line], env=operator.environment, capture_output=True, text=True, check=False, timeout=60
        )

    for words in ("list-vms --json >/dev/full", "list-vms >/dev/full", "--help >/dev/full"):
        done = run(words)
        assert done.returncode == 6 and "the disk is full" in done.stderr and "the output" in done.stderr
        assert "Exception" not in done.stderr
    silent = run("list-gpus --refresh 2>/dev/full")
    assert silent.returncode == 0 and "A40" in silent.stdout
    logged = operator.run("--log-file", "/dev/full", "list-vms")
    warning = "warning: the log cannot be written to /dev/full: the disk is full"
    assert logged.code == 0 and logged.err.count(warning) == 1
