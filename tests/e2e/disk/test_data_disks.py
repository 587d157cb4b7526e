# SPDX-License-Identifier: Apache-2.0
"""Data disks on simulated hosts: made, kept when their VM is deleted, taken again by name, and never by two VMs."""

import json
import sqlite3
from collections.abc import Iterator

import pytest

from tests.e2e.operator import Operator

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
KEEP = ("--data-disk", "data,size=64MiB,bus=scsi,keep", "--data-disk", "scratch,size=32MiB")
AGAIN = ("--data-disk", "data")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    yield fleet_operator


def _volumes(operator: Operator) -> dict[str, tuple[str, str]]:
    with sqlite3.connect(operator.database.removeprefix("sqlite:///")) as store:
        rows = store.execute("SELECT label, vm_uuid, host FROM volumes WHERE kind = 'data'").fetchall()
    return {label: (vm_uuid, host) for label, vm_uuid, host in rows}


def test_a_kept_disk_outlives_its_vm_and_is_taken_again(operator: Operator) -> None:
    operator.does("create-vm", "one", *SIZE, *KEEP, "--host", "sim-002")
    assert operator.json("create-vm", "one", *SIZE, *KEEP)[0]["changed"] is False
    xml = operator.json("show-vm", "one", "--tenant", "acme")["xml"]
    assert "<serial>data</serial>" in xml and "virtio-scsi" in xml
    lines = operator.does("show-vm", "one", "--tenant", "acme").out.splitlines()
    assert {"disk      data, 64 MiB, outlives the VM", "disk      scratch, 32 MiB"} <= set(lines)
    assert set(_volumes(operator)) == {"data", "scratch"}
    operator.does("delete-vm", "one", "--tenant", "acme", "--yes", "--timeout", "0")
    assert _volumes(operator) == {"data": ("kept:acme", "sim-002")}
    assert "data" not in operator.does("gc", "--limit", "sim-002").out

    refusal = operator.is_refused("create-vm", "two", *SIZE, "--data-disk", "data,size=1GiB")
    assert refusal["message"] == "tenant acme has kept a disk data on sim-002 already"
    refusal = operator.is_refused("create-vm", "two", *SIZE, *AGAIN, "--host", "sim-001")
    assert "disk data is of sim-002" in refusal["message"]
    assert operator.json("create-vm", "two", *SIZE, *AGAIN)[0]["vm"]["host"] == "sim-002"
    refusal = operator.is_refused("create-vm", "three", *SIZE, *AGAIN)
    assert refusal["message"] == "tenant acme has its disk data in VM two on sim-002"
    operator.does("stop-vm", "two", "--tenant", "acme", "--timeout", "0")
    operator.does("start-vm", "two", "--tenant", "acme")
    operator.does("delete-vm", "two", "--tenant", "acme", "--yes", "--timeout", "0")
    assert _volumes(operator) == {"data": ("kept:acme", "sim-002")}


def test_of_two_vms_that_take_a_disk_at_once_one_is_refused_before_it_is_built(operator: Operator) -> None:
    runs = [operator.start("create-vm", name, *SIZE, *AGAIN, "--json") for name in ("left", "right")]
    ends = [(run.communicate(timeout=300), run.returncode) for run in runs]
    assert sorted(code for _, code in ends) == [0, 6], ends
    (errors,) = [err for (_, err), code in ends if code]
    refusal = json.loads(errors.splitlines()[-1])["error"]
    assert refusal["reference"] in ("concurrent-change", "state") and "disk data" in refusal["message"]
    (made,) = operator.json("list-vms", "--tenant", "acme")
    operator.does("delete-vm", made["vm"]["request"]["name"], "--tenant", "acme", "--yes", "--timeout", "0")
    assert _volumes(operator) == {"data": ("kept:acme", "sim-002")}


def test_what_has_no_room_or_no_disk_is_refused(operator: Operator) -> None:
    for disks, why in (
        (("a,size=1GiB", "a,size=2GiB"), "two data disks have the name a"),
        (("nowhere",), "tenant acme has kept no disk nowhere"),
        (tuple(f"d{n},size=1GiB,bus=sata" for n in range(3)), "3 disks on sata"),
        (tuple(f"d{n},size=1GiB" for n in range(17)), "at most 16 data disks"),
        (("a,size=1GiB,bus=ide",), "bus is 'ide'"),
        (("a,size=1GiB,colour=red",), "unknown key 'colour'"),
    ):
        given = [word for disk in disks for word in ("--data-disk", disk)]
        assert why in operator.is_refused("create-vm", "bad", *SIZE, *given)["message"]
    refusal = operator.is_refused("create-vm", "bad", *SIZE, "--data-disk", "data:100GiB")
    assert refusal["hint"].startswith("write NAME first, then size=…, pool=…")


@pytest.mark.parametrize("further", [(), ("--gang",), ("--dry-run",), ("--queue",)])
def test_several_vms_never_get_disks_of_one_name(operator: Operator, further: tuple[str, ...]) -> None:
    many = ("create-vm", "many", *SIZE, "--count", "2", "--data-disk", "work,size=32MiB,keep", *further)
    refusal = operator.is_refused(*many)
    assert refusal["message"] == "VMs many-1 and many-2 of tenant acme both name the data disk work"
    assert operator.json("list-vms") == [] and "work" not in _volumes(operator)


def test_a_tenant_file_names_each_disk_once(operator: Operator) -> None:
    file = operator.home / "twice.yml"
    vm = "memory: 96MiB, vcpus: 1, network: none, data_disks: [{name: work, size: 32MiB}]"
    file.write_text(f"version: 1\ntenant: twice\nvms: [{{name: a, {vm}}}, {{name: b, {vm}}}]\n")
    assert "VMs a and b of tenant twice both name" in operator.is_refused("onboard", str(file))["message"]
    assert [one["tenant"] for one in operator.json("list-tenants")] == ["acme"]


def test_the_creation_that_fails_gives_the_disk_back(operator: Operator) -> None:
    refusal = operator.is_refused("create-vm", "fails", *SIZE, *AGAIN, "--storage-pool", "nowhere", "--disk", "64MiB")
    assert "nowhere" in refusal["message"]
    assert _volumes(operator) == {"data": ("kept:acme", "sim-002")}


def test_a_tenant_with_kept_disks_leaves_only_when_they_may_go(operator: Operator) -> None:
    refusal = operator.is_refused("offboard-tenant", "acme", "--yes", "--timeout", "0")
    assert "1 disk" in refusal["message"] and refusal["context"] == ["disk data on sim-002"]
    operator.does("create-vm", "last", *SIZE, *AGAIN)
    operator.does("stop-vm", "last", "--tenant", "acme", "--timeout", "0")
    operator.does("create-snapshot", "last", "early", "--tenant", "acme")  # which goes with its disk
    operator.does("offboard-tenant", "acme", "--yes", "--timeout", "0", "--delete-disks")
    assert _volumes(operator) == {}
