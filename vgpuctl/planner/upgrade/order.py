# SPDX-License-Identifier: Apache-2.0
"""The order in which hosts are upgraded, and which may be down together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.planner.upgrade.host_changes import HostChange, UpgradeTarget, host_changes
from vgpuctl.sharing.guest_drivers import (
    BranchVerdict,
    GuestCheck,
    GuestVerdict,
    check_guest,
    guest_branches,
)


@dataclass(frozen=True)
class UpgradeVm:
    """One VM of a host. verdict: `move`, `stop` or `stay`, as drain-host plans it; to: the host that it moves to.

    apart: its anti-affinity group, None without. has_vgpu: its guest runs NVIDIA's vGPU driver. guest_driver: None
    where nothing reports it. runs: as it was last observed. is_unknown: its host gives no answer; then as declared.
    leaves: how a running VM would leave its host: live, cold, pinned, blocked, or `not-looked-at` where nothing that is
    known forbids a live move and its hosts were not asked. not_live: what forbids a live move, in short. not_looked_at:
    what only its hosts can tell.
    """

    name: str
    runs: bool
    verdict: str
    to: str | None
    reason: str | None
    has_vgpu: bool
    apart: str | None = None
    guest_driver: str | None = None
    guest: GuestCheck | None = None
    is_unknown: bool = False
    leaves: str | None = None
    not_live: str | None = None
    not_looked_at: tuple[str, ...] = ()


@dataclass(frozen=True)
class UpgradeHost:
    """One host as it is now."""

    name: str
    facts: HostFacts
    vms: tuple[UpgradeVm, ...] = ()


@dataclass(frozen=True)
class UpgradeStep:
    """One host of the plan. batch: from 1. is_first: it is the first of its kind of GPUs, and is upgraded alone."""

    name: str
    batch: int
    is_first: bool
    boards: tuple[str, ...]
    driver: str | None
    kernel: str
    vms: tuple[UpgradeVm, ...]
    changes: tuple[HostChange, ...]

    @property
    def running(self) -> int:
        """The number of VMs that must leave or stop."""
        return sum(vm.runs for vm in self.vms)


@dataclass(frozen=True)
class UpgradePlan:
    """The plan. hosts: in their order. done: hosts that have the driver and the kernel already.

    without_driver: hosts that run no NVIDIA driver, for example with Intel's GPUs alone; a driver is not planned there.
    """

    target: UpgradeTarget
    hosts: tuple[UpgradeStep, ...]
    done: tuple[str, ...]
    without_driver: tuple[str, ...]
    branches: tuple[BranchVerdict, ...]

    @property
    def breaking(self) -> tuple[UpgradeVm, ...]:
        """The VMs whose guest driver does not work with the new host driver."""
        vms = [vm for host in self.hosts for vm in host.vms]
        return tuple(vm for vm in vms if vm.guest is not None and vm.guest.verdict is GuestVerdict.BREAKS)


def plan_upgrade(hosts: Sequence[UpgradeHost], target: UpgradeTarget, *, at_once: int) -> UpgradePlan:
    """Order hosts by their running VMs, then all VMs, then name; the first of each kind of GPUs is upgraded alone.

    A batch has at most `at_once` hosts. Two hosts of one anti-affinity group are in different batches, and so are a
    host and the host that its VMs move to, and two hosts whose VMs move to one third: its room is counted once.
    """
    left = [host for host in hosts if not _is_done(host.facts, target)]
    left.sort(key=lambda one: (sum(vm.runs for vm in one.vms), len(one.vms), one.name))
    seen: set[tuple[str, ...]] = set()
    firsts = []
    for host in left:
        if (boards := boards_of(host.facts)) not in seen:
            seen.add(boards)
            firsts.append(host)
    batches = [[host] for host in firsts]
    for host in (one for one in left if one not in firsts):
        for batch in batches[len(firsts) :]:
            if len(batch) < at_once and not any(_excludes(host, other) for other in batch):
                batch.append(host)
                break
        else:
            batches.append([host])
    planned = [
        _planned(host, number, target, is_first=host in firsts)
        for number, batch in enumerate(batches, 1)
        for host in batch
    ]
    without = {host.name for host in hosts if target.driver is not None and host.facts.nvidia_driver is None}
    done = {host.name for host in hosts if host not in left} - without
    branches = () if target.driver is None else guest_branches(target.driver)
    return UpgradePlan(target, tuple(planned), tuple(sorted(done)), tuple(sorted(without)), branches)


def boards_of(facts: HostFacts) -> tuple[str, ...]:
    """The names of the GPUs, or their device ids, each once."""
    return tuple(sorted({_name(gpu) for gpu in facts.gpus}))


def _name(gpu: Gpu) -> str:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")


def _is_done(facts: HostFacts, target: UpgradeTarget) -> bool:
    has_driver = target.driver in (None, facts.nvidia_driver) or facts.nvidia_driver is None
    return has_driver and target.kernel in (None, facts.kernel)


def _excludes(one: UpgradeHost, other: UpgradeHost) -> bool:
    mine, theirs = _targets(one), _targets(other)
    groups = {vm.apart for vm in one.vms if vm.apart} & {vm.apart for vm in other.vms if vm.apart}
    return bool(groups or mine & theirs or other.name in mine or one.name in theirs)


def _targets(host: UpgradeHost) -> set[str]:
    return {vm.to for vm in host.vms if vm.to is not None}


def _planned(host: UpgradeHost, batch: int, target: UpgradeTarget, *, is_first: bool) -> UpgradeStep:
    return UpgradeStep(
        host.name,
        batch,
        is_first,
        boards_of(host.facts),
        host.facts.nvidia_driver,
        host.facts.kernel,
        tuple(_checked(vm, target) for vm in host.vms),
        host_changes(host.facts, target),
    )


def _checked(vm: UpgradeVm, target: UpgradeTarget) -> UpgradeVm:
    if target.driver is None or not vm.has_vgpu:
        return vm
    return replace(vm, guest=check_guest(vm.guest_driver, target.driver))
