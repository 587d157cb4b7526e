# SPDX-License-Identifier: Apache-2.0
"""A store that is older than the hosts, and hosts that are given up: no node stays without a VM, and no VM is lost."""

import uuid
from dataclasses import replace
from pathlib import Path

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.node.pools import ONCE, nodes, nothing_is_left, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from vgpuctl.store.store import open_store

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
WITHOUT_DISK = ("--gpu", "A40-24Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
POOL = ("create-node-pool", "gpu", *ACME, "--role", "k3s", "--max", "4", *WITHOUT_DISK)
FREE = ("--yes", "--timeout", "0")


def test_nodes_of_a_restored_store_are_made_anew_and_later_ones_are_adopted_as_vms(
    operator: Operator, tmp_path: Path
) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does(*ONCE)
    operator.does("backup-store", str(tmp_path / "backup"))
    lost = vms(operator)["gpu-001"]["uuid"]
    operator.does("delete-vm", "gpu-001", *ACME, *FREE)
    operator.does(*ONCE)
    operator.does("scale-node-pool", "gpu", "2", *ACME)
    operator.does(*ONCE)
    later = {name: vm["host"] for name, vm in vms(operator).items()}
    assert set(later) == {"gpu-001", "gpu-002"}
    operator.does("restore-store", str(tmp_path / "backup"), "--replace", "--yes")

    assert vms(operator)["gpu-001"]["uuid"] == lost
    assert operator.run("reconcile-store", "--forget", "acme/gpu-001").code == 1, "two VMs are still unknown"
    adopt = ("adopt-host", later["gpu-001"], "--vm", "acme.gpu-001=acme/")
    refused = operator.is_refused(*adopt[:-1], f"{adopt[-1]}gpu-001")
    assert "a node of pool gpu of tenant acme is named gpu-001" in refused["context"][0]
    operator.does(*adopt[:-1], f"{adopt[-1]}later-1")
    operator.does("adopt-host", later["gpu-002"], "--vm", "acme.gpu-002=acme/gpu-002")
    operator.does("reconcile-store", "--done")
    assert nodes(operator) == {"gpu-001": "waiting"}, "its VM is gone, and no other VM is it"
    operator.does("delete-vm", "later-1", "gpu-002", *ACME, *FREE)
    operator.does(*ONCE)
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining"}
    assert list(vms(operator)) == ["gpu-001"]


def test_another_vm_with_the_name_of_a_node_keeps_no_row_for_ever(operator: Operator) -> None:
    operator.does(*POOL, "--min", "1")
    operator.does(*ONCE)
    before = vms(operator)["gpu-001"]["uuid"]
    with open_store(operator.database) as store, store.transaction() as session:
        (node,) = session.nodes("acme")
        session.delete_node(node)
        session.add_node(replace(node, vm_uuid=str(uuid.uuid4())))
    operator.does(*ONCE)
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-002": "joining"}, "the name of a VM that is no node is left to it"
    assert vms(operator)["gpu-001"]["uuid"] == before


def test_the_nodes_of_a_host_that_is_forgotten_are_made_elsewhere(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does(*POOL, "--min", "2")
    operator.does(*ONCE)
    assert {vm["host"] for vm in vms(operator).values()} == {"sim-001", "sim-002"}
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    try:
        operator.does("forget-host", "sim-001", "--fenced", "--reason", "no power", "--yes")
        operator.run(*ONCE)
        operator.run(*ONCE)
        assert nodes(operator) == {"gpu-001": "joining", "gpu-002": "joining"}
        assert {vm["host"] for vm in vms(operator).values()} == {"sim-002"}
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    with libvirt_of(operator.inventory, "sim-001") as there:
        for name in [one.name for one in there.domains()]:
            there.destroy(name)
    for kind in ("domain", "vgpu"):
        operator.run("gc", "--limit", "sim-001", "--kind", kind, "--yes")
    operator.does("uncordon-host", "sim-001", "--reason", "it has power again")
