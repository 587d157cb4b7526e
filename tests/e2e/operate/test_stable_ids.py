# SPDX-License-Identifier: Apache-2.0
"""Every listed object has the key in its JSON that docs/ansible.md names, and a VM's UUID survives its renaming."""

from typing import Any

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator

__all__ = ["operator"]

STAYS = ("stays", *ACME)
SUM = "sha256:" + "0" * 64
MADE = (
    ("create-vm", *STAYS, *SIZE, "--gpu", "A40-8Q", "--data-disk", "data,size=64MiB,keep"),
    ("stop-vm", *STAYS, "--timeout", "0"),
    ("create-snapshot", "stays", "s1", *ACME),
    ("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", "--host", "sim-001"),
    ("reserve", "later", *ACME, "--gpu", "A40-8Q", "--from", "2099-01-01T00:00", "--until", "2099-01-01T01:00"),
    ("create-host-pool", "gold", "--hosts", "sim-004"),
    ("register-image", "debian", "--path", "/img", "--format", "raw", "--checksum", SUM),
    ("create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "3", *SIZE),
    ("create-licence-pool", "spare", "--edition", "vapps", "--seats", "1"),
)
KEYS: dict[str, tuple[str, ...]] = {
    "list-vms": ("tenant", "name"),
    "list-tenants": ("tenant",),
    "list-networks": ("network.id",),
    "list-disks": ("tenant", "name"),
    "list-host-pools": ("name",),
    "list-images": ("image.name",),
    "list-licence-pools": ("pool.name",),
    "list-node-pools": ("pool.tenant", "pool.cluster", "pool.name"),
    "list-reservations": ("tenant", "name"),
    "list-events": ("id",),
    "list-hosts": ("host",),
    "list-gpus": ("host", "gpu.address"),
    "list-profiles": ("host", "gpu", "profile.name"),
    "list-targets": ("targets", "labels"),
}


def _at(row: Any, way: str) -> Any:
    for key in way.split("."):
        row = row[key]
    return row


def test_every_listed_object_has_its_key_and_a_vm_keeps_it(operator: Operator) -> None:
    for command in MADE:
        operator.does(*command)
    assert operator.run("create-vm", "waits", *ACME, *SIZE, "--gpu", "16*A40-48Q", "--queue").code != 2
    for listing, ways in KEYS.items():
        rows = operator.json(listing)
        keys = [str([_at(row, way) for way in ways]) for row in rows]
        assert keys, f"{listing} lists nothing"
        assert len(set(keys)) == len(keys), f"{listing}: {', '.join(ways)} is no key"
    assert [one["name"] for one in operator.json("list-snapshots", *STAYS)] == ["s1"]
    assert [one["entry"]["id"] for one in operator.json("list-queue")["queue"]] == [1]
    before = operator.json("show-vm", *STAYS)
    operator.does("rename-vm", "stays", "named", *ACME)
    after = operator.json("show-vm", "named", *ACME)
    assert after["vm"]["uuid"] == before["vm"]["uuid"]
    assert [one["id"] for one in after["leases"]] == [one["id"] for one in before["leases"]]
