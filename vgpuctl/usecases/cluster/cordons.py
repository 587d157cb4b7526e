# SPDX-License-Identifier: Apache-2.0
"""Cordons of nodes whose VMs run: for a GPU in quarantine or a preemption, and lifted when nothing is wrong any more.

A cordon that somebody else made stays.
"""

from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.gate import refuse_share
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.usecases.cluster.leave_cluster import LeavingNode
from vgpuctl.usecases.support.capacities import rules_of
from vgpuctl.usecases.support.cluster_link import ClusterLink
from vgpuctl.usecases.support.operations import may_run, preempt_subject
from vgpuctl.usecases.support.services import Services


class Cordons:
    """The cordons of one round: the rules of each host are read once. No host is contacted."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rules: dict[str, HostRules] = {}

    def settle(self, pool: NodePool, node: Node, vm: Vm, link: ClusterLink, member: ClusterMember) -> str | None:
        """Cordon or uncordon a node as its VM is now. Returns what was done. Raises ClusterError, InventoryError.

        A node whose VM another run works on is left to that run.
        """
        if member.is_cordoned and not member.has_our_cordon:
            return None
        reason = self._reason(vm)
        if (reason is None) != member.has_our_cordon or not self._is_settled(vm):
            return None
        if reason is not None:
            is_new = LeavingNode(self._services, pool, node, link, reason).cordon()
            return f"cordoned: {reason}" if is_new else None
        if not link.uncordon(node.name):
            return None
        with self._services.store.transaction() as session:
            session.add_event(EventKind.NODE_UNCORDONED, node.label, "its VM runs", tenant=node.tenant)
        return "uncordoned"

    def _is_settled(self, vm: Vm) -> bool:
        """True if the VM still runs and no run works on it."""
        subjects = (vm.uuid, preempt_subject(vm.uuid))
        with self._services.store.reading() as session:
            now = session.vm(vm.request.tenant, vm.request.name)
            is_busy = any(one.subject in subjects and may_run(one) for one in session.open_operations())
        return now is not None and (now.uuid, now.state) == (vm.uuid, VmState.RUNNING) and not is_busy

    def _reason(self, vm: Vm) -> str | None:
        """Why the node of a running VM is to take no new work: it is being preempted, or a GPU of it is in quarantine.

        The work that it has may go on. None where nothing is against new work.
        """
        if vm.notice is not None:
            return f"it is preempted by {vm.notice.cause}"
        rules = self._rules.get(vm.host)
        if rules is None:
            rules = self._rules[vm.host] = rules_of(self._services, vm.host)
        if not rules.restrictions and not rules.constraints.gpus:
            return None
        with self._services.store.reading() as session:
            shares = [one.share for one in session.leases(vm_uuid=vm.uuid)]
            known = session.facts(vm.host) if shares else None
        for share in shares:
            gpu = None if known is None else gpu_at(known.facts, share.gpu)
            refusal = None if gpu is None else refuse_share(share, gpu, rules, is_kept=True)
            if refusal is not None:
                return f"its GPU {share.gpu}: {refusal}"
        return None
