# SPDX-License-Identifier: Apache-2.0
"""repair of lost shares: VMs that are off keep them, and a reboot of their host took the devices.

A share that cannot be made again stays promised, for its card may come back: only a command of its owner gives it up.
"""

from collections.abc import Collection, Mapping, Sequence

from vgpuctl.errors import HostError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.observations import read_domains, read_facts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.restore_shares import lost_shares, restore_shares
from vgpuctl.usecases.share.shares import describe_share

_Row = tuple[str, str, str, str]
"""VM, host, what was found, outcome."""


def repair_shares(services: Services, vm_uuids: Collection[str], *, dry_run: bool) -> list[_Row]:
    """Make the lost shares of these VMs again, as far as they are off. A failure is an outcome, and hides no other."""
    with services.store.reading() as session:
        leases = [one for one in session.leases() if one.vm_uuid in vm_uuids and one.state.is_attached()]
        vms = [vm for vm in session.vms() if vm.state in (VmState.RUNNING, VmState.STOPPED)]
    kept = {vm.uuid: [one for one in leases if one.vm_uuid == vm.uuid] for vm in vms}
    hosts = sorted({vm.host for vm in vms if kept[vm.uuid] and not is_host_fenced(services, vm.host)}, key=natural)
    keeping = {host: [vm for vm in vms if vm.host == host and kept[vm.uuid]] for host in hosts}
    rows: list[_Row] = []
    for read in services.on_hosts(hosts, lambda host: _lost_on(services, host, keeping[host], kept, dry_run=dry_run)):
        if read.error is not None:
            services.forget_host(read.name)
            found = f"whether {counted(len(keeping[read.name]), 'VM')} lost shares was not seen"
            rows.append(("GPU shares", read.name, found, f"failed: {read.error.message}"))
        for vm, lost in read.value or ():
            shares = ", ".join(map(describe_share, lost))
            found = f"{shares} is lost: not on its host any more"
            rows.append((vm.printed_name, vm.host, found, _make_again(services, vm, lost, dry_run=dry_run)))
    return rows


def _lost_on(
    services: Services, host: str, vms: Sequence[Vm], kept: Mapping[str, Sequence[Lease]], *, dry_run: bool
) -> list[tuple[Vm, tuple[Lease, ...]]]:
    """The VMs of a host that are off and have lost shares. The agent is asked only where one is off.

    dry_run: what is seen is not recorded.
    """
    if dry_run:
        states = {one.uuid: one.state for one in services.host(host).hypervisor.domains()}
    else:
        states = {uuid: one.state for uuid, one in read_domains(services, host).items()}
    off = [vm for vm in vms if vm.uuid not in states or not states[vm.uuid].is_active()]
    if not off:
        return []
    facts = services.host(host).agent.facts() if dry_run else read_facts(services, host)
    found = [(vm, lost_shares(vm, kept[vm.uuid], facts)) for vm in off]
    return [(vm, lost) for vm, lost in found if lost]


def _make_again(services: Services, vm: Vm, lost: Sequence[Lease], *, dry_run: bool) -> str:
    """Make the shares of one VM again. Returns the outcome."""
    try:
        restore_shares(services, vm, dry_run=dry_run)
    except VgpuctlError as error:
        if isinstance(error, HostError):
            services.forget_host(vm.host)
        hint = "" if error.hint is None else f"; {error.hint}"
        return f"failed: {error.reason_of(vm.printed_name)}; it stays promised{hint}"
    if dry_run:
        return "would be made again"
    with services.store.transaction() as session:
        text = f"made again, for the host had lost it: {', '.join(map(describe_share, lost))}"
        session.add_vm_event(EventKind.VM_REPAIRED, vm, text, after=values_of(vm, lost))
    return "made again"
