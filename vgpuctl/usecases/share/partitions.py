# SPDX-License-Identifier: Apache-2.0
"""Partitions of the NVSwitch fabric: active exactly while a VM runs with their GPUs.

A lease is the promise; which partition it means follows from its GPUs. It is activated right before QEMU starts,
deactivated once the guest's end is proven, and set again after Fabric Manager or its host came back without it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from vgpuctl.agent.wire.fabric import (
    ActivatePartition,
    DeactivatePartition,
    FabricPartition,
    RestorePartitions,
    UsedPartition,
)
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.steps import Step
from vgpuctl.errors import NoCapacity, StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.vm import Vm
from vgpuctl.sharing.fabric import may_have_partitions, partition_of, why_unknown, with_active, without_active
from vgpuctl.sharing.partition_rules import check_partition, used_partition
from vgpuctl.usecases.observed.capacities import change_facts
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.share.shares import take_steps

_STARTS_WITHIN_S = 120.0
"""A partition that was activated for a VM of another store is left alone for so long, until its QEMU has the GPUs."""


def activation(vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> tuple[Step, ...]:
    """The step that a VM's start needs on the fabric of its host; none without one."""
    used = used_partition((one.share for one in leases), facts, vm.uuid)
    return () if used is None else (ActivatePartition(used),)


def activate_partition(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], facts: HostFacts, undoing: Undo
) -> None:
    """Activate what the VM needs before its start; it stays active unless `undoing` rolls the start back.

    facts: of the host as it was read just now.

    Raises AgentProblem when Fabric Manager does not answer or refuses: without it the guest's GPUs compute nothing.
    """
    used = used_partition((one.share for one in leases), facts, vm.uuid)
    if used is not None:
        undoing.push("partition", lambda: take_steps(host, [DeactivatePartition(used)]))
        take_steps(host, [ActivatePartition(used)])
        _note(services, host, lambda known: with_active(known, used))


def deactivate_partitions(host: HostSession, shares: Iterable[tuple[str, Share]], facts: HostFacts) -> None:
    """Deactivate what vgpuctl activated for VMs that have ended. shares: theirs, each with the VM's UUID.

    facts: of the host as it was read since. A Fabric Manager that does not answer is not waited for: when it is back it
    is told the partitions of running VMs. Raises AgentProblem, also while a process has one of the GPUs.
    """
    gone = {(vm_uuid, one.gpu) for vm_uuid, one in shares}
    take_steps(
        host,
        [
            DeactivatePartition(UsedPartition(own, (), partition.vm))
            for partition, own in _active(facts)
            if partition.vm is not None and any((partition.vm, gpu) in gone for gpu in own)
        ],
    )


def _active(facts: HostFacts) -> list[tuple[FabricPartition, tuple[str, ...]]]:
    """The active partitions with the addresses of their GPUs."""
    manager = facts.fabric_manager
    listed = () if manager is None else manager.partitions or ()
    return [(one, _gpus_of(one, facts)) for one in listed if one.is_active]


def _gpus_of(partition: FabricPartition, facts: HostFacts) -> tuple[str, ...]:
    modules = {gpu.topology.module: gpu.address for gpu in facts.gpus if gpu.topology is not None}
    return tuple(sorted(modules[one] for one in partition.modules if one in modules))


def end_partitions(services: Services, host: HostSession, leases: Sequence[Lease]) -> None:
    """Deactivate what was active for a VM that has just ended and keeps its shares.

    Asks only a host that has a fabric, as it was last read. Raises AgentProblem.
    """
    with services.store.reading() as session:
        known = session.facts(host.name)
    if leases and not services.goes_on and (known is None or may_have_partitions(known.facts)):
        deactivate_partitions(host, [(one.vm_uuid, one.share) for one in leases], host.agent.facts())
        gone = {one.share.gpu for one in leases}
        _note(services, host, lambda known: without_active(known, gone))


def _note(services: Services, host: HostSession, change: Callable[[HostFacts], HostFacts]) -> None:
    with services.store.transaction() as session:
        change_facts(session, host.name, change)


def refuse_other_gpus(services: Services, vm: Vm, shares: Iterable[Share]) -> None:
    """Raise StateError where the GPUs of a VM are one partition: one more or less would be another."""
    with services.store.reading() as session:
        known = session.facts(vm.host)
    if known is not None and used_partition(shares, known.facts, vm.uuid) is not None:
        raise StateError(
            f"{vm.printed_name} has its GPUs on the NVSwitch fabric of {vm.host} as one partition, from its start on:"
            " one more or less would be another",
            hint=f"`vgpuctl resize-vm {vm.printed_name} --gpu …` chooses another and starts the VM with it",
        )


def require_partition(shares: Iterable[Share], facts: HostFacts) -> None:
    """Raise NoCapacity where these shares of one VM need a partition and are none."""
    reason = check_partition(shares, facts)
    if reason is not None:
        raise NoCapacity(reason)


class Unsettled(NamedTuple):
    """What differed on the fabric of a host, and the steps that mend it. vm: by name, the host for none."""

    subject: str
    found: str
    step: Step


def find_unsettled(services: Services, host: str, facts: HostFacts, running: Collection[str]) -> tuple[Unsettled, ...]:
    """Compare the active partitions of a host with its VMs. running: UUIDs of the domains that run there.

    Those of VMs that a command works on are left alone, as are partitions that somebody else activated.
    """
    manager = facts.fabric_manager
    if manager is None and why_unknown(facts) is not None:
        raise StateError(f"{host}: nobody knows what Fabric Manager has active: {why_unknown(facts)}")
    if manager is None or (manager.partitions is None and manager.problem is None):
        return ()
    with services.store.reading() as session:
        busy = {one.subject for one in session.open_operations() if may_run(one)}
        known = {vm.uuid for vm in session.vms()}
        vms = {vm.uuid: vm for vm in session.vms(host=host)}
        leases = session.leases(host=host)
    wanted = {
        uuid: used
        for uuid in sorted(vms.keys() & running)
        if (used := used_partition((one.share for one in leases if one.vm_uuid == uuid), facts, uuid)) is not None
    }
    if manager.partitions is None:
        why = f"Fabric Manager does not tell its partitions: {manager.problem}"
        if manager.is_starting:
            why = "Fabric Manager was restarted and waits to be told the partitions of running VMs, or still starts"
        return (Unsettled(host, why, RestorePartitions(tuple(wanted.values()))),)
    found = [
        Unsettled(
            vms[uuid].printed_name, "its partition of the NVSwitch fabric is not active", RestorePartitions((used,))
        )
        for uuid, used in wanted.items()
        if uuid not in busy and not _is_active(used, facts)
    ]
    kept = {one.share.gpu for one in leases if one.vm_uuid in busy or one.vm_uuid in wanted}
    for partition, gpus in _active(facts):
        if partition.vm is not None and kept.isdisjoint(gpus):
            what = f"partition {partition.number} of the NVSwitch fabric is active, and no VM runs with it"
            # The VM of another store may be starting just now.
            age_s = 0.0 if partition.vm in known else _STARTS_WITHIN_S
            step = DeactivatePartition(UsedPartition(gpus, (), partition.vm), partition.activated_at, age_s)
            found.append(Unsettled(host, what, step))
    return tuple(found)


def _is_active(used: UsedPartition, facts: HostFacts) -> bool:
    partition = partition_of(used.gpus, facts)
    return partition is not None and partition.is_active


def settle(services: Services, host: HostSession, one: Unsettled) -> None:
    """Mend one difference, which is an event. Raises AgentProblem."""
    changes = host.agent.apply([one.step])
    with services.store.transaction() as session:
        for change in changes:
            if change.changed:
                session.add_event(
                    EventKind.PARTITIONS_SET,
                    one.subject,
                    one.found,
                    host=host.name,
                    before={} if change.before is None else {"partitions": change.before},
                    after={"partitions": change.after or "none"},
                )


def repair_partitions(services: Services, only: Vm | None, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    """Mend the fabric of every host that has one, or of the host of `only`. A failure is an outcome.

    Returns subject, host, what was found and the outcome of each difference.
    """
    with services.store.reading() as session:
        known = session.all_facts()
    listed = set(services.hosts() if only is None else [only.host])
    hosts = sorted(
        name
        for name, cached in known.items()
        if may_have_partitions(cached.facts) and name in listed and not is_host_fenced(services, name)
    )
    rows: list[tuple[str, str, str, str]] = []
    for read in services.on_hosts(hosts, lambda name: _unsettled_on(services, name)):
        if read.error is not None:
            services.forget_host(read.name)
            found = "whether its NVSwitch partitions are as its VMs need them was not seen"
            rows.append((read.name, read.name, found, f"failed: {read.error.message}"))
        for one in read.value or ():
            outcome = "would be finished"
            try:
                if not dry_run:
                    settle(services, services.host(read.name), one)
                    outcome = "finished"
            except VgpuctlError as error:
                outcome = f"failed: {error.message}" + (f"; {error.hint}" if error.hint else "")
            rows.append((one.subject, read.name, one.found, outcome))
        if read.value and not dry_run:
            read_facts(services, read.name)
    return rows


def _unsettled_on(services: Services, name: str) -> tuple[Unsettled, ...]:
    host = services.host(name)
    running = {one.uuid for one in host.hypervisor.domains() if one.state.is_active()}
    return find_unsettled(services, name, host.agent.facts(), running)
