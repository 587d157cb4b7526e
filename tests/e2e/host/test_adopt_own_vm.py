# SPDX-License-Identifier: Apache-2.0
"""adopt-host of a VM that the store has forgotten: what vgpuctl made for it is its own again, and nothing else is."""

from pathlib import Path

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator, forgetful
from tests.e2e.small_vms import ACME, SEEDED, SIZE, operator
from vgpuctl.guests.libvirtd.storage import Storage

__all__ = ["operator"]

FLEET = (1, "a40")


def _volumes(operator: Operator, uuid: str) -> set[str]:
    """The volumes of the host whose names have a VM's UUID, without it."""
    with libvirt_of(operator.inventory, "sim-001") as there:
        storage = Storage(there)
        names = [one.name for pool in storage.pools() for one in storage.volumes(pool.name)]
    return {name.removeprefix(uuid) for name in names if name.startswith(uuid)}


def test_deleting_an_adopted_vm_deletes_its_own_volumes_and_keeps_its_data_disks(
    operator: Operator, tmp_path: Path
) -> None:
    operator.does("create-vm", "web", *ACME, *SEEDED, "--data-disk", "db,size=32MiB", "--gpu", "A40-8Q")
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    uuid = operator.json("show-vm", "web", *ACME)["vm"]["uuid"]
    with libvirt_of(operator.inventory, "sim-001") as there:
        Storage(there).create_disk("default", f"{uuid}-notes.qcow2", 1)
    other = forgetful(operator, tmp_path, "acme")
    other.does("adopt-host", "sim-001", "--vm", "acme.web=acme/web")
    assert _volumes(other, uuid) == {".qcow2", "-seed.iso", "-data-db.qcow2", "-notes.qcow2"}
    other.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert _volumes(other, uuid) == {"-data-db.qcow2", "-notes.qcow2"}
    assert [one["name"] for one in other.json("list-disks", *ACME)] == ["db"]
    other.does("delete-disk", "db", *ACME, "--yes")
    assert _volumes(other, uuid) == {"-notes.qcow2"}


def test_an_adopted_vm_has_its_snapshots_and_labels_again(operator: Operator, tmp_path: Path) -> None:
    operator.does("create-vm", "snap", *ACME, *SIZE, "--gpu", "A40-8Q", "--label", "app=db", "--label", "env=test")
    operator.does("stop-vm", "snap", *ACME, "--timeout", "0")
    operator.does("create-snapshot", "snap", "old", *ACME)
    operator.does("create-snapshot", "snap", "new", *ACME)
    uuid = operator.json("show-vm", "snap", *ACME)["vm"]["uuid"]
    other = forgetful(operator, tmp_path, "acme")
    other.does("adopt-host", "sim-001", "--vm", "acme.snap=acme/snap")
    assert [one["name"] for one in other.json("list-snapshots", "snap", *ACME)] == ["old", "new"]
    (found,) = other.json("list-vms", *ACME, "--selector", "app=db")
    assert found["labels"] == {"app": "db", "env": "test"}
    other.does("delete-vm", "snap", *ACME, "--yes", "--timeout", "0")
    assert _volumes(other, uuid) == set()
