# SPDX-License-Identifier: Apache-2.0
"""Volumes and names on hosts as an operator meets them: nothing of others is taken, and tenants never collide."""

import uuid
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.store.store import open_store

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "64MiB", "--hostname", "h")
HOST = ("--host", "sim-001")
OLD = ("acme.web-1.qcow2", "acme.web-1-seed.iso")
DOMAIN = "<domain type='kvm'><name>{}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>"


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "a", "a.b"):
        fleet_operator.does("create-tenant", tenant)
    return fleet_operator


def _volumes(operator: Operator) -> dict[str, tuple[int, str]]:
    with libvirt_of(operator.inventory, "sim-001") as there:
        storage = Storage(there)
        storage.ensure_pool("default")
        return {one.name: (one.capacity_bytes, one.format) for one in storage.volumes("default")}


def _domains(operator: Operator) -> dict[str, str]:
    with libvirt_of(operator.inventory, "sim-001") as there:
        return {one.name: one.uuid for one in there.domains()}


def _delete(operator: Operator, tenant: str, name: str) -> None:
    operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")


def test_tenants_whose_names_join_to_the_same_text_have_vms_of_their_own(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = (fleet_witness.state(), _volumes(operator))
    (first,) = operator.json("create-vm", "b.c", "--tenant", "a", *HOST, *SIZE)
    (second,) = operator.json("create-vm", "c", "--tenant", "a.b", *HOST, *SIZE)
    assert _domains(operator) == {"a.b.c": first["vm"]["uuid"], "a..b.c": second["vm"]["uuid"]}
    _delete(operator, "a", "b.c")
    uuid = second["vm"]["uuid"]
    assert _volumes(operator).keys() - before[1].keys() == {f"{uuid}.qcow2", f"{uuid}-seed.iso"}
    assert operator.json("show-vm", "c", "--tenant", "a.b")["domain_state"] == "running"
    assert operator.json("repair") == []
    _delete(operator, "a.b", "c")
    assert (fleet_witness.state(), _volumes(operator)) == before


def test_volumes_and_domains_of_others_stay_whatever_fails(operator: Operator) -> None:
    with libvirt_of(operator.inventory, "sim-001") as there:
        storage = Storage(there)
        storage.ensure_pool("default")
        storage.create_disk("default", OLD[0], 64)
        storage.create_image("default", OLD[1], bytes(4096))
        there.define(DOMAIN.format("acme.web-2"))
    before = (_volumes(operator), _domains(operator))
    acme = ("--tenant", "acme", *HOST, *SIZE)
    refused = operator.is_refused("create-vm", "web-2", *acme)
    assert (refused["reference"], "acme.web-2 that is not this VM's" in refused["message"]) == ("domain-rejected", True)
    assert operator.is_refused("create-vm", "web-2", *acme, "--dry-run")["reference"] == "domain-rejected"
    operator.does("create-vm", "web-1", *acme)
    _delete(operator, "acme", "web-1")
    kill_after(operator, "create_disk", "create-vm", "web-1", *acme)
    operator.does("repair")
    gc = operator.json("gc", "--yes", "--limit", "sim-001")
    assert {one["name"]: one["outcome"] for one in gc} == {
        f"default/{name}": "left alone: the store has no record that vgpuctl made it" for name in OLD
    }
    left = operator.is_refused("offboard-tenant", "acme", "--yes", "--timeout", "0")
    assert {f"volume {name} of pool default on sim-001" for name in OLD} == set(left["context"])
    assert (_volumes(operator), _domains(operator)) == before
    with libvirt_of(operator.inventory, "sim-001") as there:
        there.undefine("acme.web-2")
        for name in OLD:
            Storage(there).delete_volume("default", name)
    operator.does("offboard-tenant", "acme", "--yes", "--timeout", "0")
    with open_store(operator.database) as store, store.reading() as session:
        assert session.volumes() == []


def test_foreign_volumes_stay_after_a_failing_gang_start_and_queue(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    """Their bytes are compared in tests/integration/libvirt/test_volumes.py: simulated volumes have none."""
    operator.does("create-tenant", "globex")
    foreign = (f"{uuid.uuid4()}.qcow2", "globex.web-1.qcow2")
    with libvirt_of(operator.inventory, "sim-001") as there:
        storage = Storage(there)
        storage.ensure_pool("default")
        storage.create_disk("default", foreign[0], 64)
        storage.create_image("default", foreign[1], bytes(4096))
    before = _volumes(operator)
    globex = ("--tenant", "globex", *HOST, *SIZE)
    gang = tmp_path / "gang.yml"
    shape = "memory: 96MiB, vcpus: 1, network: null, tenant: globex, host: sim-001"
    gang.write_text(
        f"vms:\n- {{name: a, {shape}, disk: {{size: 64MiB}}}}\n- {{name: b, {shape}, disk: {{pool: missing}}}}\n"
    )
    assert "missing" in operator.is_refused("create-vm", "-f", str(gang), "--gang")["message"]
    assert _volumes(operator) == before

    operator.does("create-vm", "web-1", "--gpu", "A40-24Q", *globex)
    operator.does("stop-vm", "web-1", "--tenant", "globex", "--hold", "release", "--timeout", "0")
    own = _volumes(operator)
    operator.does("create-vm", "blocker", "--gpu", "A40-48Q", *globex)
    assert operator.json("create-vm", "queued", "--queue", "--gpu", "A40-24Q", *globex)[0]["queued"]
    _delete(operator, "globex", "blocker")
    lab.faults.begin("sim-001", "refuse", folder=fleet)
    try:
        operator.is_refused("start-vm", "web-1", "--tenant", "globex")
        assert _volumes(operator) == own, "a failing start keeps the VM's disk and everybody else's"
        served = operator.json("controller", "--once", "--shutdown-timeout", "0")
        assert [one["outcome"].partition(":")[0] for one in served if one["name"] == "globex/queued"] == ["failed"]
        assert _volumes(operator) == own, "so does a failing start from the queue"
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    operator.does("repair")
    operator.does("gc", "--yes", "--limit", "sim-001")
    assert _volumes(operator) == own
    operator.run("offboard-tenant", "globex", "--yes", "--timeout", "0")
    assert _volumes(operator) == before
    with libvirt_of(operator.inventory, "sim-001") as there:
        for name in foreign:
            Storage(there).delete_volume("default", name)


def test_a_volume_that_took_the_place_of_a_vms_disk_is_neither_booted_nor_deleted(operator: Operator) -> None:
    operator.does("create-tenant", "initech")
    (created,) = operator.json("create-vm", "web-1", "--tenant", "initech", *HOST, *SIZE)
    operator.does("stop-vm", "web-1", "--tenant", "initech", "--timeout", "0")
    disk = f"{created['vm']['uuid']}.qcow2"
    with libvirt_of(operator.inventory, "sim-001") as there:
        Storage(there).delete_volume("default", disk)
        Storage(there).create_disk("default", disk, 32)
    refused = operator.is_refused("start-vm", "web-1", "--tenant", "initech")
    assert (
        "is not the volume that was made for initech/web-1: it has 33554432 bytes, not 67108864" in refused["message"]
    )
    assert operator.json("repair") == []
    _delete(operator, "initech", "web-1")
    assert disk in _volumes(operator)
    gc = operator.json("gc", "--yes", "--limit", "sim-001")
    left = "left alone: the store has no record that vgpuctl made it"
    assert (f"default/{disk}", left) in {(one["name"], one["outcome"]) for one in gc}
    with libvirt_of(operator.inventory, "sim-001") as there:
        Storage(there).delete_volume("default", disk)
