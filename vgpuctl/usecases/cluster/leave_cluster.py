# SPDX-License-Identifier: Apache-2.0
"""Before the VM of a node goes, its cluster is told: the node is cordoned, and the work on it is asked to leave.

A cluster belongs to its tenant and may never answer, so every question has a limit, and no answer keeps a VM longer.
The way back, once the VM runs again, is settle_nodes.py.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ClusterError, ClusterRefused, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.cluster.timed_link import TimedLink
from vgpuctl.usecases.running.cluster_link import ClusterLink
from vgpuctl.usecases.running.operations import leave_subject
from vgpuctl.usecases.running.services import Services

TELL_S = 20.0
"""The longest time for the answers to one question: Slurm's programs have as long."""
STOPPED = "its VM is stopped"
RESTARTED = "its VM is restarted"
PREEMPTED = "it is preempted"
SICK = "its GPU is in quarantine"
_POLL_S = 2.0
_NAMED = 5


@dataclass(frozen=True)
class LeavingNode:
    """A node of a cluster whose VM is about to go.

    reason: for who looks at the node in its cluster: no word of other tenants, hosts and operators. detail: for events
    in its place, where it says more.
    """

    services: Services
    pool: NodePool
    node: Node
    link: ClusterLink
    reason: str
    detail: str = ""

    def within(self, limit_s: float) -> "LeavingNode":
        """The node, with a time limit from now on for everything that its cluster is asked."""
        return replace(self, link=TimedLink(self.link, limit_s))

    def tell(self) -> bool:
        """Cordon the node. Returns False, with an event, when its cluster did not take it."""
        error: ClusterError | None = None
        for _try in range(2):  # a node that was changed while it was read is read again
            try:
                self.cordon()
            except ClusterRefused as refused:
                error = refused
            except ClusterError as caught:
                error = caught
                break
            else:
                return True
        note_not_told(self.services, self.node, self.detail or self.reason, "" if error is None else error.message)
        return False

    def ask(self) -> Sequence[str]:
        """Cordon the node and ask the work on it to leave, without waiting for it. Returns what is still there.

        An error of the cluster counts as that.
        """
        try:
            self.cordon()
            return self.link.drain(self.node.name)
        except ClusterError as error:
            return [error.message]

    def cordon(self) -> bool:
        """Cordon the node, with an event. Returns False for one that was cordoned before, or is unknown there.

        Raises ClusterError.
        """
        is_new = self.link.cordon(self.node.name, self.reason)
        if is_new:
            with self.services.store.transaction() as session:
                session.add_event(
                    EventKind.NODE_CORDONED, self.node.printed_name, self.detail or self.reason, tenant=self.node.tenant
                )
        return is_new


def find_leaving(services: Services, vm: Vm, reason: str, detail: str = "") -> LeavingNode | None:
    """The node of a VM that is a member of a cluster, None for any other VM: that costs one read of the store.

    None as well for a node whose cluster is drained already, or that nobody can tell: its pool has no kubeconfig and no
    slurm.conf.
    """
    with services.store.reading() as session:
        node = session.node_of_vm(vm.uuid)
        if node is None or node.joined_at is None or node.is_drained or vm.state in (VmState.CREATING, VmState.STOPPED):
            return None
        pool = session.node_pool(node.tenant, node.pool)
    try:
        link = services.cluster_link(pool)
    except VgpuctlError as error:
        note_not_told(services, node, detail or reason, error.message)
        return None
    return None if link is None else LeavingNode(services, pool, node, link, reason, detail)


def leave_cluster(services: Services, vm: Vm, reason: str, within_s: float | None = None, *, detail: str = "") -> None:
    """Tell the cluster of `vm` that its node goes, and wait until its work has left.

    reason, detail: as of LeavingNode. within_s: how long to wait, by default the pool's time to drain; 0: tell
    only. A guest that is off, or whose host does not answer, is not waited for. It never raises for the cluster: what
    it did not do is an event. A cluster that does not answer keeps the VM for within_s or 20 s, whichever is longer.
    """
    leaving = find_leaving(services, vm, reason, detail)
    if leaving is None:
        return
    limit_s = leaving.pool.drain_s if within_s is None else within_s
    if limit_s <= 0 or not _runs(services, vm):
        leaving.within(TELL_S).tell()
        return
    services.say(f"{vm.printed_name}: its node drains, for at most {format_duration(limit_s)}")
    deadline = time.monotonic() + limit_s
    said: Sequence[str] = ()
    while left := leaving.within(max(TELL_S, deadline - time.monotonic())).ask():
        if left != said:
            said = left
            services.say(f"{vm.printed_name}: waits for {named(left)}")
        pause_s = min(_POLL_S, deadline - time.monotonic())
        if pause_s <= 0:
            break
        time.sleep(pause_s)
    with services.store.transaction() as session:
        note_drained(session, leaving.node, limit_s, left)


@contextlib.contextmanager
def leaving_together(services: Services, vms: Sequence[Vm], reason: str, detail: str = "") -> Iterator[None]:
    """Cordon the nodes of VMs that go one after another in the block: work that leaves one does not come to the next.

    One that has not gone by the end of the block is uncordoned by the controller, and so are all when the run dies.
    """
    silent: set[ClusterLink] = set()
    with contextlib.ExitStack() as at_work:
        for vm in vms:
            leaving = find_leaving(services, vm, reason, detail)
            if leaving is None or leaving.link in silent:
                continue
            subject = leave_subject(vm.uuid)
            at_work.enter_context(services.store.operation("leave-cluster", subject, vm.printed_name))
            if not leaving.within(TELL_S).tell():
                silent.add(leaving.link)
        yield


def note_drained(session: Session, node: Node, limit_s: float, left: Sequence[str]) -> None:
    """Add the event of a node whose work has left, or whose time to drain is over. left: what is still there."""
    detail = f"after {format_duration(limit_s)}, with {named(left)}" if left else ""
    session.add_event(EventKind.NODE_DRAINED, node.printed_name, detail, tenant=node.tenant)


def note_not_told(services: Services, node: Node, reason: str, why: str) -> None:
    """Add the event of a cluster that was not told, and tell the user."""
    services.say(f"{node.printed_name}: its cluster was not told that {reason}: {why}")
    with services.store.transaction() as session:
        session.add_event(
            EventKind.NODE_NOT_TOLD, node.printed_name, f"not told that {reason}: {why}", tenant=node.tenant
        )


def named(left: Sequence[str]) -> str:
    """The first of the work that is left on a node, for a message, and the number of the rest."""
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return ", ".join(left[:_NAMED]) + more


def _runs(services: Services, vm: Vm) -> bool:
    """True if the guest of a VM runs, as its host says it now."""
    try:
        state = services.host(vm.host).hypervisor.state(vm.domain_name, uuid=vm.uuid)
    except VgpuctlError:
        return False  # its shutdown will say why
    return state is not None and state.is_active() and not state.is_paused()
