# SPDX-License-Identifier: Apache-2.0
"""Volumes and names on hosts as an operator meets them: nothing of others is taken, and tenants never collide."""

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.storage import Storage
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
    done = operator.run("create_disk", "create-vm", "web-1", *acme, program=("-m", "tests.e2e.killed_run"))
    assert done.code == -9
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
