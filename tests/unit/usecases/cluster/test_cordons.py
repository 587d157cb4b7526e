# SPDX-License-Identifier: Apache-2.0
"""Nodes that are cordoned while their VMs run, and cordons that are lifted again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stored_fleet import StoredFleet, fill, open_stored
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.node_pool import Node, NodePool, NodeRole
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.vm import PreemptionNotice, Vm, VmRequest, VmState
from vgpuctl.usecases.cluster.cordons import Cordons

HOST = "gpu1"
POOL = NodePool("gpu", "acme", NodeRole.K3S, VmRequest(name="gpu", tenant="acme"), maximum=4)
FREE = ClusterMember("gpu-001", is_ready=True)
OURS = replace(FREE, is_cordoned=True, has_our_cordon=True)
ANOTHERS = replace(FREE, is_cordoned=True)


class Cluster:
    """A link that does what it is asked. calls: in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def cordon(self, _node: str, _reason: str) -> bool:
        self.calls.append("cordon")
        return True

    def uncordon(self, _node: str) -> bool:
        self.calls.append("uncordon")
        return True


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[StoredFleet]:
    """A host with one VM on a share of a GPU."""
    with open_stored(tmp_path, (HOST,)) as services:
        yield fill(services, (HOST,), cards=2, shares=1)


def vm_of(fleet: StoredFleet) -> Vm:
    with fleet.services.store.reading() as session:
        (vm,) = session.vms()
    return vm


def restrict(fleet: StoredFleet, device: str, kind: RestrictionKind) -> None:
    with fleet.services.store.transaction() as session:
        session.restrict(HOST, device, kind, "it hums")


def settle(fleet: StoredFleet, member: ClusterMember, vm: Vm | None = None) -> tuple[str | None, list[str], list[str]]:
    """One round: its outcome, the questions to the cluster, and the events of the node."""
    link: Any = Cluster()
    vm = vm or vm_of(fleet)
    node = Node("acme", "gpu", vm.request.name, vm.uuid, wanted_at=1.0, joined_at=2.0)
    outcome = Cordons(fleet.services).settle(POOL, node, vm, link, member)
    with fleet.services.store.reading() as session:
        events = [str(one.kind) for one in session.events(limit=100) if one.kind.startswith("node-")]
    return outcome, link.calls, events


@pytest.mark.parametrize("on_function", [False, True])
def test_a_node_is_cordoned_for_a_gpu_or_vf_in_quarantine_and_uncordoned_without(
    fleet: StoredFleet, *, on_function: bool
) -> None:
    share = fleet.leases[0].share
    assert share.gpu != share.function
    assert settle(fleet, FREE) == (None, [], [])
    restrict(fleet, share.function if on_function else share.gpu, RestrictionKind.QUARANTINE)
    outcome, calls, events = settle(fleet, FREE)
    assert outcome is not None and outcome.startswith(f"cordoned: its GPU {share.gpu}: ") and "it hums" in outcome
    assert (calls, events) == (["cordon"], ["node-cordoned"])
    assert settle(fleet, OURS)[:2] == (None, [])
    with fleet.services.store.transaction() as session:
        for one in session.restrictions():
            session.lift_restriction(one.host, one.device, one.kind)
    assert settle(fleet, OURS) == ("uncordoned", ["uncordon"], ["node-cordoned", "node-uncordoned"])


def test_a_node_on_a_dead_host_is_cordoned_also_without_a_gpu(fleet: StoredFleet) -> None:
    restrict(fleet, WHOLE_HOST, RestrictionKind.FENCE)
    with fleet.services.store.transaction() as session:
        for lease in fleet.leases:
            session.set_lease_state(lease.id, LeaseState.GONE)
    assert settle(fleet, FREE)[0] == f"cordoned: its host {HOST} was declared dead"


def test_a_host_that_takes_no_new_vm_keeps_its_nodes_at_work(fleet: StoredFleet) -> None:
    restrict(fleet, WHOLE_HOST, RestrictionKind.CORDON)
    restrict(fleet, fleet.leases[0].share.gpu, RestrictionKind.CORDON)
    assert settle(fleet, FREE) == (None, [], [])


def test_a_node_that_is_preempted_stays_cordoned(fleet: StoredFleet) -> None:
    noticed = replace(vm_of(fleet), notice=PreemptionNotice(9.0, "acme/urgent", is_final=True))
    assert settle(fleet, FREE, noticed)[0] == "cordoned: it is preempted by acme/urgent"
    assert settle(fleet, OURS, noticed)[:2] == (None, [])


def test_the_cordon_of_another_stays_and_none_is_added(fleet: StoredFleet) -> None:
    assert settle(fleet, ANOTHERS) == (None, [], [])
    restrict(fleet, fleet.leases[0].share.gpu, RestrictionKind.QUARANTINE)
    assert settle(fleet, ANOTHERS) == (None, [], [])


def test_a_node_is_left_to_the_run_that_works_on_its_vm(fleet: StoredFleet) -> None:
    vm = vm_of(fleet)
    for subject in (vm.uuid, f"preempt:{vm.uuid}", f"leave:{vm.uuid}"):
        with fleet.services.store.operation("stop-vm", subject, vm.domain_name, exclusive=True):
            assert settle(fleet, OURS) == (None, [], [])
    with fleet.services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.STOPPED)
    assert settle(fleet, OURS, vm) == (None, [], []), "it was stopped since the round began"
