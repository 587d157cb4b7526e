# SPDX-License-Identifier: Apache-2.0
"""Cordons of nodes whose VMs run: for a GPU in quarantine or a preemption, and lifted when nothing is wrong any more.

A cordon that somebody else made stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.lease import Share
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.gate import refuse_share
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.usecases.cluster.leave_cluster import PREEMPTED, SICK, LeavingNode
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.fences import is_fenced
from vgpuctl.usecases.running.cluster_link import ClusterLink
from vgpuctl.usecases.running.operations import leave_subject, may_run, preempt_subject
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class _Place:
    """A host as the store and the inventory know it. shares: by the UUID of the VM; none where nothing is closed."""

    rules: HostRules
    is_fenced: bool = False
    facts: HostFacts | None = None
    shares: Mapping[str, Sequence[Share]] = field(default_factory=dict)


class Cordons:
    """The cordons of one round: each host's records are read once. No host is contacted."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._places: dict[str, _Place] = {}

    def settle(self, pool: NodePool, node: Node, vm: Vm, link: ClusterLink, member: ClusterMember) -> str | None:
        """Cordon or uncordon a node as its VM is now. Returns what was done. Raises ClusterError, InventoryError.

        A node whose VM another run works on is left to that run.
        """
        if member.is_cordoned and not member.has_our_cordon:
            return None
        found = self._reason(vm)
        if (found is None) != member.has_our_cordon or not self._is_settled(vm):
            return None
        if found is not None:
            is_new = LeavingNode(self._services, pool, node, link, *found).cordon()
            return f"cordoned: {found[1]}" if is_new else None
        if not link.uncordon(node.name):
            return None
        with self._services.store.transaction() as session:
            session.add_event(EventKind.NODE_UNCORDONED, node.printed_name, "its VM runs", tenant=node.tenant)
        return "uncordoned"

    def _is_settled(self, vm: Vm) -> bool:
        """True if the VM still runs and no run works on it."""
        subjects = (vm.uuid, preempt_subject(vm.uuid), leave_subject(vm.uuid))
        with self._services.store.reading() as session:
            now = session.vm(vm.request.tenant, vm.request.name)
            is_busy = any(one.subject in subjects and may_run(one) for one in session.open_operations())
        return now is not None and (now.uuid, now.state) == (vm.uuid, VmState.RUNNING) and not is_busy

    def _reason(self, vm: Vm) -> tuple[str, str] | None:
        """Why the node of a running VM is to take no new work; None where nothing is against it.

        It is being preempted, its host was declared dead, or a GPU of it is in quarantine. Its work may go on. For its
        cluster, and for events.
        """
        if vm.notice is not None:
            return PREEMPTED, f"{PREEMPTED} by {vm.notice.cause}"
        place = self._places.get(vm.host)
        if place is None:
            place = self._places[vm.host] = self._read(vm.host)
        if place.is_fenced:
            return "its host is dead", f"its host {vm.host} was declared dead"
        for share in place.shares.get(vm.uuid, ()):
            gpu = None if place.facts is None else gpu_at(place.facts, share.gpu)
            refusal = None if gpu is None else refuse_share(share, gpu, place.rules, is_kept=True)
            if refusal is not None:
                return SICK, f"its GPU {share.gpu}: {refusal}"
        return None

    def _read(self, host: str) -> _Place:
        rules = rules_of(self._services, host)
        if not rules.restrictions and not rules.constraints.gpus:
            return _Place(rules)
        shares: dict[str, list[Share]] = {}
        with self._services.store.reading() as session:
            fenced = is_fenced(session, host)
            known = session.facts(host)
            for one in session.leases(host=host):
                shares.setdefault(one.vm_uuid, []).append(one.share)
        return _Place(rules, fenced, None if known is None else known.facts, shares)
