# SPDX-License-Identifier: Apache-2.0
"""Activate and deactivate partitions of the NVSwitch fabric, and set them after a restart of Fabric Manager.

A partition is named by its GPUs: which number it has, and which GPU is which, is asked (fabric reference 4.1 to 4.4).
"""

from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from vgpuctl.agent.fabric_manager import FabricManager
from vgpuctl.agent.facts import capabilities, fabric_notes, mdev, pci, sriov
from vgpuctl.agent.facts.fabric_notes import NotedPartition
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import (
    ActivatePartition,
    DeactivatePartition,
    FabricPartition,
    RestorePartitions,
    UsedPartition,
)
from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change

_STARTS_WITHIN_S, _PAUSE_S = 30.0, 1.0
# How long a partition without a process is taken for one whose VM is starting.
_CLAIMED_S = 120.0
ACTIVE, INACTIVE = "active", "inactive"


def ensure_active(host: Host, step: ActivatePartition, *, dry_run: bool) -> Change:
    """Activate the partition of a VM that is about to start.

    Raises Problem: `fabric-…`, `held` for a GPU of it that a process of another VM holds, `read-back-differs`.
    """
    if not dry_run:
        fabric_notes.note_modules(host)
    return _patiently(host, lambda fabric: _make_active(fabric, step, dry_run=dry_run), dry_run=dry_run)


def ensure_inactive(host: Host, step: DeactivatePartition, *, dry_run: bool) -> Change:
    """Deactivate the partition of a VM that has ended.

    Raises Problem: `fabric-…`, `held` while a process holds a GPU of it, `read-back-differs`.
    """
    return _patiently(host, lambda fabric: _make_inactive(fabric, step, dry_run=dry_run), dry_run=dry_run)


def ensure_restored(host: Host, step: RestorePartitions, *, dry_run: bool) -> Change:
    """Have the partitions of running VMs active. Raises Problem: `fabric-…`, `read-back-differs`."""
    return _patiently(host, lambda fabric: _make_all_active(fabric, step, dry_run=dry_run), dry_run=dry_run)


def _patiently(host: Host, act: Callable[["_Fabric"], Change], *, dry_run: bool) -> Change:
    """Act once Fabric Manager answers: one that was started a moment ago listens before it does, or not yet."""
    waited_s = 0.0
    while True:
        try:
            with FabricManager(host) as manager:
                return act(_Fabric(host, manager))
        except Problem as problem:
            passes = problem.code in (ProblemCode.FABRIC_STARTING, ProblemCode.FABRIC_UNREACHABLE)
            if dry_run or not passes or waited_s >= _STARTS_WITHIN_S:
                raise
        host.wait(_PAUSE_S)
        waited_s += _PAUSE_S


class _Fabric:
    """The partitions of a host while one step is taken."""

    def __init__(self, host: Host, manager: FabricManager) -> None:
        self.host = host
        self.manager = manager
        self.nodes = OpenNodes(host)
        self._modules = fabric_notes.read_modules(host)

    def list(self, *, dry_run: bool) -> Tuple[FabricPartition, ...]:
        """List them. One that was restarted is told first which were active."""
        return self.manager.partitions() if dry_run else list_all(self.host, self.manager)

    def find(self, gpus: Sequence[str], *, dry_run: bool = False) -> FabricPartition:
        """Return the partition of exactly these GPUs. Raises Problem."""
        modules = self._modules
        unknown = [address for address in gpus if address not in modules]
        if unknown:
            raise Problem(
                ProblemCode.FABRIC_BAD_PARTITION,
                f"nobody knows which GPU of the baseboard {', '.join(unknown)} is: NVML tells it while NVIDIA's driver"
                " has the card, and it was not noted for this slot",
                hint="bind it to NVIDIA's driver once, `vgpuctl inspect-host` shows its driver; then try again",
            )
        listed = self.list(dry_run=dry_run)
        found = next((one for one in listed if one.modules == {modules[address] for address in gpus}), None)
        if found is None:
            sizes = ", ".join(map(str, sorted({len(one.gpus) for one in listed})))
            raise Problem(
                ProblemCode.FABRIC_BAD_PARTITION,
                f"Fabric Manager has no partition of exactly the GPUs "
                f"{', '.join(f'{address} ({modules[address]})' for address in gpus)}; its partitions have "
                f"{sizes or 'no'} GPUs",
                hint="`vgpuctl list-partitions` shows them",
            )
        return found

    def activate(self, partition: FabricPartition, used: UsedPartition) -> None:
        """Activate a partition, with the VFs in the order of its GPUs where its mode has them.

        It is noted before, so that every partition without a note is somebody else's.
        """
        fabric_notes.note_partition(self.host, partition.number, used)
        if used.vfs:
            vf_of = {self._modules[gpu]: vf for gpu, vf in zip(used.gpus, used.vfs)}
            self.manager.activate_with_vfs(partition.number, [vf_of[gpu.module] for gpu in partition.gpus])
        else:
            self.manager.activate(partition.number)

    def age_s(self, noted: NotedPartition) -> float:
        """Return the seconds since an activation."""
        return self.host.uptime() - noted.since

    def require(self, used: UsedPartition, wanted: str) -> None:
        """Read back that a partition is so. Raises Problem."""
        found = _state(self.find(used.gpus))
        if not found.startswith(wanted):
            raise Problem(
                ProblemCode.READ_BACK_DIFFERS,
                f"Fabric Manager took the change of the {used.target}, and lists it as {found}",
                hint="read `journalctl -u nvidia-fabricmanager`, then try again",
            )

    def require_unheld(self, gpus: Sequence[str]) -> None:
        """Raise Problem while a process has one of these GPUs, or a part of it."""
        require_unheld(self.nodes, f"the partition of {', '.join(gpus)}", _holders(self.host, self.nodes, gpus))


def _make_active(fabric: _Fabric, step: ActivatePartition, *, dry_run: bool) -> Change:
    used = step.used
    partition = fabric.find(used.gpus, dry_run=dry_run)
    before, after = _state(partition), f"{ACTIVE}: {partition.number}"
    if partition.is_active and is_running(fabric.host, fabric.nodes, used):
        return Change(step.op, used.target, before, before, changed=False)
    fabric.require_unheld(used.gpus)
    noted = [one for one in fabric_notes.noted_partitions(fabric.host) if one.number == partition.number]
    if partition.is_active and not noted and not used.vfs:
        # Somebody else has activated it for these GPUs, and will deactivate it.
        return Change(step.op, used.target, before, before, changed=False)
    if partition.is_active and any(one.used.vm != used.vm and fabric.age_s(one) < _CLAIMED_S for one in noted):
        raise Problem(
            ProblemCode.FABRIC_PARTITION_ACTIVE,
            f"partition {partition.number} was just activated for VM {noted[0].used.vm}, which may be starting",
            hint="look whether that VM has these GPUs by right; try again in a minute if it has not",
        )
    if not dry_run:
        if partition.is_active:
            # Nobody tells which VFs it has: perhaps those of another VM.
            fabric.manager.deactivate(partition.number)
        fabric.activate(partition, used)
        fabric.require(used, ACTIVE)
    return Change(step.op, used.target, before, after, changed=True)


def _make_inactive(fabric: _Fabric, step: DeactivatePartition, *, dry_run: bool) -> Change:
    used = step.used
    partition = fabric.find(used.gpus, dry_run=dry_run)
    before = _state(partition)
    meant = [
        one
        for one in fabric_notes.noted_partitions(fabric.host)
        if (one.number, one.used.vm) == (partition.number, used.vm)
        and step.activated_at in (None, one.since)
        and fabric.age_s(one) >= step.least_age_s
    ]
    if not partition.is_active or not meant:
        return Change(step.op, used.target, before, before, changed=False)
    fabric.require_unheld(used.gpus)
    if not dry_run:
        fabric.manager.deactivate(partition.number)
        fabric.require(used, INACTIVE)
        fabric_notes.note_partition(fabric.host, partition.number, None)
    return Change(step.op, used.target, before, INACTIVE, changed=True)


def _make_all_active(fabric: _Fabric, step: RestorePartitions, *, dry_run: bool) -> Change:
    try:
        before: Optional[str] = _numbers(fabric.manager.partitions())
    except Problem as problem:
        if problem.code != ProblemCode.FABRIC_STARTING:
            raise
        before = None
    missing = [(one, found) for one in step.used if not (found := fabric.find(one.gpus, dry_run=dry_run)).is_active]
    for used, _partition in missing:
        if not is_running(fabric.host, fabric.nodes, used):
            raise Problem(
                ProblemCode.HOLDERS_UNKNOWN,
                f"the {used.target} is not activated: no process of VM {used.vm} has all of these GPUs",
                hint="the VM may have other GPUs than its store says: compare with `virsh dumpxml`",
            )
    if not dry_run:
        for used, partition in missing:
            fabric.activate(partition, used)
            fabric.require(used, ACTIVE)
    listed = fabric.list(dry_run=dry_run)
    after = _numbers(listed, *(partition.number for _used, partition in missing))
    return Change(step.op, "partitions of running VMs", before, after, changed=before != after)


def list_all(host: Host, manager: FabricManager) -> Tuple[FabricPartition, ...]:
    """List the partitions, and note which there are. One that was restarted is told first those of running VMs."""
    try:
        listed = manager.partitions()
    except Problem as problem:
        if problem.code != ProblemCode.FABRIC_STARTING:
            raise
        listed = _told(manager, sorted(_held_partitions(host)))
    fabric_notes.note_listed(host, listed)
    return listed


def _told(manager: FabricManager, numbers: Sequence[int]) -> Tuple[FabricPartition, ...]:
    """Tell one that starts the active partitions, unless its start has ended meanwhile. Returns what it lists."""
    try:
        manager.set_active(numbers)
    except Problem as refused:
        try:
            return manager.partitions()
        except Problem:
            raise refused from None
    return manager.partitions()


def _held_partitions(host: Host) -> List[int]:
    """Return the partitions whose GPUs one VM has each, whoever activated them, by the processes that have the GPUs.

    Of a GPU that several VMs share, or that has MIG instances, none has it in a partition. Raises Problem where
    processes are hidden: a VM that is left out loses its partition.
    """
    nodes, modules = OpenNodes(host), fabric_notes.read_modules(host)
    require_unheld(nodes, "the GPUs of the fabric", ())
    gpus_of: Dict[Optional[str], Set[int]] = {}
    for address, module in modules.items():
        if capabilities.read_instances(host, address):
            continue
        vms = {one.vm_uuid for one in _holders(host, nodes, (address,))}
        if len(vms) == 1:
            gpus_of.setdefault(vms.pop(), set()).add(module)
    table = {frozenset(one.modules): one.number for one in fabric_notes.read(host).table}
    return [table[frozenset(one)] for vm, one in gpus_of.items() if vm is not None and frozenset(one) in table]


def is_running(host: Host, nodes: OpenNodes, used: UsedPartition) -> bool:
    """True if the VM's own QEMU has every GPU of its partition open."""
    return all(any(one.vm_uuid == used.vm for one in _holders(host, nodes, (gpu,))) for gpu in used.gpus)


def _holders(host: Host, nodes: OpenNodes, gpus: Sequence[str]) -> Tuple[Holder, ...]:
    """Return who has one of these GPUs, a VF or a vGPU of it, through VFIO."""
    there = set(pci.read_addresses(host))
    found: List[Holder] = []
    for gpu in (one for one in gpus if one in there):
        functions = (gpu, *(address for _number, address in sriov.read_functions(host, gpu)))
        found.extend(one for function in functions for one in nodes.holders_of_function(function))
        found.extend(one for device in mdev.read_of(host, functions) for one in nodes.holders_of_mdev(device.uuid))
    return tuple(dict.fromkeys(found))


def _state(partition: FabricPartition) -> str:
    return f"{ACTIVE}: {partition.number}" if partition.is_active else INACTIVE


def _numbers(listed: Sequence[FabricPartition], *more: int) -> str:
    numbers = {one.number for one in listed if one.is_active}.union(more)
    return ", ".join(map(str, sorted(numbers))) or "none"
