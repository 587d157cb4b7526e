# SPDX-License-Identifier: Apache-2.0
"""show-vm: VMs as store, libvirt, QEMU and kernel see them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_line, say
from vgpuctl.cli.shown.partition_text import partition_text

if TYPE_CHECKING:
    from vgpuctl.cli.lists.event_output import JsonEvent
    from vgpuctl.model.disk import DataDisk, DiskRequest
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.vm import Vm, VmRequest
    from vgpuctl.usecases.network.shown_interfaces import ShownInterface
    from vgpuctl.usecases.placement.queued_vms import QueuedVm
    from vgpuctl.usecases.vm.show_vm import LastRestart, ShownVm


_JSON: "JsonOutput[QueuedVm | ShownVm | Sequence[QueuedVm | ShownVm] | Sequence[JsonEvent]]" = JsonOutput()


@click.command("show-vm")
@vms()
@click.option(
    "--history", "shows_history", is_flag=True, help="Print the events of the VM and its shares, also of a deleted one."
)
@click.option("--xml", "with_xml", is_flag=True, help="Print the domain XML too.")
@options.history_file
@options.prometheus
@options.one_host
@options.as_json
def command(
    chosen: VmChoice,
    shows_history: bool,
    with_xml: bool,
    history_file: Path | None,
    prometheus: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Show VMs as store, libvirt and the host's kernel see them. QEMU's answer is shown too, and the last hour of their
    vGPUs.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.running.each_vm import on_each_vm
    from vgpuctl.usecases.vm.show_vm import show_vm

    if shows_history:
        _print_history(chosen, as_json=as_json, **where)
        return
    is_one = chosen.is_one
    with services(history=history_file, prometheus=prometheus, **where) as opened:
        queued, chosen = chosen.queued(opened)
        found = chosen.find(opened)
        leases = {vm.uuid: held for vm, held in found}

        def show(vm: "Vm") -> "ShownVm":
            return show_vm(opened, vm, leases[vm.uuid])

        done = on_each_vm(opened, [vm for vm, _leases in found], show)
        now = opened.store.now()
    shown = [one.value for one in done if one.value is not None]
    if as_json and queued:
        _print_json_with_queued(queued, shown, is_one=is_one)
    for waiting in [] if as_json else queued:
        _print_queued(waiting)
    for number, one in enumerate([] if as_json else shown):
        if number:
            print_line("")
        _print(one, now=now, with_xml=with_xml)
    if not chosen.is_empty:
        output: JsonOutput[ShownVm | Sequence[ShownVm]] | None = _JSON if as_json and not queued else None
        chosen.answer(done, outcome=lambda _one: "shown", json=lambda one: one, output=output)


def _print_json_with_queued(queued: "Sequence[QueuedVm]", shown: "Sequence[ShownVm]", *, is_one: bool) -> None:
    every: list[QueuedVm | ShownVm] = [*queued, *shown]
    _JSON.print(every[0] if is_one else every)


def _print_queued(one: "QueuedVm") -> None:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.priority import format_priority
    from vgpuctl.model.times import format_time
    from vgpuctl.model.units import format_mib

    request, entry = one.request, one.entry
    print_line(f"VM        {one.name} of tenant {one.tenant}, queued to be created" + _reason(entry.reason))
    print_line(f"size      {counted(request.vcpus, 'vCPU')}, {format_mib(request.memory_mib)}")
    print_line(f"GPU       {', '.join(gpu.text for gpu in request.gpus) or 'none'}")
    _print_labels(request)
    print_line(f"queue     since {format_time(entry.queued_at)} UTC, priority {format_priority(entry.priority)}")
    if len(entry.requests) > 1:
        print_line(f"gang      {entry.vm_names}")


def _print_labels(request: "VmRequest") -> None:
    if request.labels:
        print_line(f"labels    {', '.join(map('='.join, request.labels))}")


def _print(shown: "ShownVm", *, now: float, with_xml: bool) -> None:
    from vgpuctl.model.guest_memory import format_page_size
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_duration, format_time, format_time_to_second
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.observed.observations import told_state

    vm, state = shown.vm, told_state(shown.vm, shown.observation)
    print_line(
        f"VM        {vm.request.name} of tenant {vm.request.tenant}{_node(shown)}, {state}" + _reason(vm.problem)
    )
    page_kib = vm.request.hugepages_kib
    pages = "" if page_kib is None else f" in huge pages of {format_page_size(page_kib)}"
    memory = format_mib(vm.request.memory_mib) + pages
    print_line(f"size      {counted(vm.request.vcpus, 'vCPU')}, {memory}, firmware {vm.request.firmware}")
    _print_labels(vm.request)
    for line in _declared_beside(vm.request):
        print_line(line)
    state = shown.domain_state or ("not known to libvirt" if shown.host_problem is None else shown.state)
    renamed = "" if shown.observation.name is None else f", renamed there to {shown.observation.name}"
    print_line(f"domain    {vm.domain_name} ({vm.uuid}) on {vm.host}: {state}{renamed}")
    if shown.created_at is not None:
        print_line(
            f"created   {format_time(shown.created_at)} UTC, {format_duration(max(0.0, now - shown.created_at))} ago"
        )
    print_line(f"restart   {_restart_policy(vm)}")
    if shown.restart is not None:
        print_line(f"          {_last_restart(shown.restart)}")
    if vm.numa is not None:
        print_line(f"NUMA      {vm.numa}" + (", on CPUs of their own" if vm.numa.is_pinned else ""))
    if vm.ends_at is not None:
        what = "shares kept until" if vm.state == "stopped" else "ends"
        print_line(f"until     {what} {format_time(vm.ends_at)} UTC")
    if vm.notice is not None:
        print_line(f"notice    is preempted by {vm.notice.cause} at {format_time_to_second(vm.notice.at)}")
    if shown.preemption is not None:
        print_line(f"preempt   {shown.preemption}")
    _print_shares(shown)
    if shown.partition is not None:
        state = "active" if shown.partition.is_active else "not active"
        print_line(f"fabric    {partition_text(shown.partition)}, {state} when {vm.host} was last read")
    elif shown.partition_problem is not None:
        print_line(f"fabric    its partition is not known: {shown.partition_problem}")
    for one in shown.interfaces:
        print_line(_interface(one))
    if shown.licence is not None or any(shown.licence_states):
        print_line(f"licence   {_licence(shown)}")
    for device in shown.guest_devices:
        ids = f"{device.vendor_id}:{device.device_id} class {device.pci_class}"
        print_line(f"in guest  {device.address} {ids}" + (f" ({device.identifier})" if device.identifier else ""))
    for line in _promises(shown):
        print_line(line)
    _print_last_hour(shown)
    for event in shown.events:
        print_line(f"event     {format_time_to_second(event.at)} {event.kind}" + _reason(event.detail))
    if with_xml and shown.xml:
        print_document(shown.xml)
    if shown.host_problem:
        say(f"libvirt on {vm.host} could not be asked: {shown.host_problem}")


def _promises(shown: "ShownVm") -> Iterator[str]:
    """Each promise that is broken, and a line of how many rows were kept or not looked at, by the last look."""
    from vgpuctl.model.times import format_time_to_second

    if not shown.promises:
        return
    verdicts = Counter(str(one.finding.verdict) for one in shown.promises)
    at = format_time_to_second(max(one.at for one in shown.promises))
    words = ", ".join(f"{verdicts[word]} {word.replace('-', ' ')}" for word in ("kept", "broken", "not-looked-at"))
    yield f"promises  {words}; looked at {at}"
    for one in shown.promises:
        if one.finding.is_broken:
            seen = f"promised {one.finding.promised}, seen {one.finding.seen}"
            yield f"          broken since {format_time_to_second(one.since)}: {one.finding}: {seen}"


def _node(shown: "ShownVm") -> str:
    return "" if shown.node_pool is None else f", node of pool {shown.node_pool} of cluster {shown.cluster}"


def _declared_beside(request: "VmRequest") -> Iterator[str]:
    """The lines of what a VM has beside a plain one: its system's profile, disks, display, limits, guest software."""
    from vgpuctl.model.plural import counted
    from vgpuctl.model.units import format_mib

    switches = (("Secure Boot", request.secure_boot), ("TPM", request.tpm))
    parts = [request.os, *(f"{what} {switch}" for what, switch in switches if switch is not None)]
    if any(parts):
        yield "system    " + ", ".join(part for part in parts if part)
    if request.disk is not None:
        base = "" if request.disk.base_image is None else f", image {request.disk.base_image}"
        yield f"disk      {format_mib(request.disk.size_mib)}{base}{_limits_of_disk(request.disk)}"
    for disk in request.data_disks:
        size = "" if disk.size_mib is None else f", {format_mib(disk.size_mib)}"
        yield f"disk      {disk.name}{size}{_limits_of_disk(disk)}" + (", outlives the VM" if disk.keep else "")
    if request.install is not None:
        yield f"medium    {request.install.iso}" + (", unattended" if request.install.unattended else "")
    display = request.display
    if display.has_picture:
        yield f"display   {display.kind}, adapter {display.video}, vGPU {display.vgpu or 'off'}"
    cpu = [f"at most {request.cpu_limit}% of a CPU for each vCPU"] if request.cpu_limit is not None else []
    cpu += [f"weight {request.cpu_weight}"] if request.cpu_weight is not None else []
    if cpu:
        yield f"CPU       {', '.join(cpu)}"
    if request.bandwidth_mbps is not None:
        yield f"bandwidth at most {request.bandwidth_mbps} Mbit/s of its first interface"
    for nic in request.nics:
        if nic.bandwidth_mbps is not None:
            yield f"bandwidth at most {nic.bandwidth_mbps} Mbit/s of its interface in {nic.network}"
    driver, mps = request.guest_driver, request.guest.mps
    if driver.is_wanted():
        yield f"driver    in the guest: {driver.source}" + ("" if driver.version is None else f", {driver.version}")
    if mps is not None:
        memory = "its part of the memory" if mps.memory_mib is None else format_mib(mps.memory_mib)
        clients = f"{counted(mps.clients, 'client')} of each GPU"
        yield f"MPS       in the guest: {clients}, {mps.threads}% of the threads and {memory} each"


def _limits_of_disk(disk: "DiskRequest | DataDisk") -> str:
    limits = (("IOPS", disk.iops), ("MB/s", disk.mbps))
    return "".join(f", at most {most} {unit}" for unit, most in limits if most is not None)


def _licence(shown: "ShownVm") -> str:
    from vgpuctl.model.times import format_time_to_second

    seat, states = shown.licence, ", ".join(dict.fromkeys(one for one in shown.licence_states if one is not None))
    held = "no seat of a licence pool"
    if seat is not None:
        back = "" if seat.released_at is None else f" that comes back at {format_time_to_second(seat.released_at)}"
        held = f"a seat of {seat.pool} ({seat.edition}){back}"
    return held + (f"; the host's NVML says {states}" if states else "")


def _print_shares(shown: "ShownVm") -> None:
    is_asked = len(shown.holders) == len(shown.leases)
    all_holders = shown.holders if is_asked else ((),) * len(shown.leases)
    not_again = shown.not_again or (None,) * len(shown.leases)
    rows = zip(shown.leases, all_holders, shown.shares_seen, not_again, shown.closed, shown.vgpu_params, strict=True)
    is_numbered = [lease.index for lease in shown.leases] != [0]
    for lease, holders, seen, reason, closed, params in rows:
        is_attached = lease.state in ("built", "running")
        share, problem = lease.share, f", {lease.problem}" if lease.problem and not is_attached else ""
        number = f"{lease.index:<4}" if is_numbered else "    "
        print_line(f"share {number}{share.profile} ({share.sharing}) on {share.function}, lease {lease.state}{problem}")
        if lease.share.mdev_uuid:
            print_line(f"          mdev {lease.share.mdev_uuid}")
        if params:
            print_line(f"          parameters {params}")
        if not is_asked:
            print_line(f"          device {seen}: its host could not be asked now")
        elif holders is None and lease.state == "reserved":
            print_line("          not made yet")
        elif holders is None:
            gone = f"lost: not on {lease.host} any more (rebooted?), and stays promised"
            print_line(f"          {gone}; {_way_back(shown, lease, reason)}")
        else:
            held = ", ".join(f"{holder.command} (pid {holder.pid})" for holder in holders) or "nobody"
            print_line(f"          held by {held}")
        if closed is not None:
            print_line(f"          closed: {closed}")


def _way_back(shown: "ShownVm", lease: "Lease", reason: str | None) -> str:
    """The remedy for a share that its host has lost. reason: why its device cannot be made again."""
    if reason is None and lease.problem is None:
        return "`vgpuctl repair` or start-vm makes it again"
    if reason is None:
        return f"`vgpuctl repair` or start-vm tries to make it again, which failed the last time: {lease.problem}"
    return f"cannot be made again: {reason}; `vgpuctl stop-vm {shown.vm.printed_name} --hold release` gives it up"


def _interface(shown: "ShownInterface") -> str:
    address = "".join(f" {one}" for one in shown.addresses)
    model = "" if shown.model is None else f", {shown.model}"
    gone = ", detached: it ends when the guest releases it, or stops" if shown.is_detached else ""
    return f"network   {shown.network}{address} ({shown.mac_address}){model}{gone}"


def _print_last_hour(shown: "ShownVm") -> None:
    if shown.last_hour is None:
        return
    from vgpuctl.cli.shown.sparkline import print_last_hour

    several = len(shown.leases) > 1
    titles = {one.share.vfio_device: f"{one.share.profile} on {one.share.function}" for one in shown.leases}
    print_last_hour(shown.last_hour, titles=titles if several else None)


def _restart_policy(vm: "Vm") -> str:
    from vgpuctl.model.priority import format_priority

    after_boot = ", autostart after a boot of its host" if vm.request.autostart else ""
    return f"{vm.request.restart}{after_boot}, priority {format_priority(vm.request.priority)}"


def _last_restart(last: "LastRestart") -> str:
    from vgpuctl.model.times import format_time_to_second

    times = "" if last.count == 1 else f", {last.count} times in a row"
    failed = "" if last.problem is None else f", failed: {last.problem}"
    again = "" if last.next_at is None else f"; not again before {format_time_to_second(last.next_at)}"
    return f"last by the controller at {format_time_to_second(last.at)}{times}{failed}{again}"


def _reason(problem: str | None) -> str:
    return f": {problem}" if problem else ""


def _print_history(chosen: VmChoice, *, as_json: bool, **where: Any) -> None:
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.lists.event_output import EVENTS, event_json
    from vgpuctl.cli.lists.listing import ListOutput
    from vgpuctl.usecases.store.list_events import vm_history

    with services(**where) as opened:
        named = chosen.selection.plain_names()
        if not chosen.selection.is_by_name:
            named = [(vm.request.tenant, vm.request.name) for vm, _leases in chosen.find(opened)]
        histories = [vm_history(opened, tenant, name) for tenant, name in named]
    found = sorted((event for one in histories for event in one), key=lambda event: (event.at, event.id))
    if as_json:
        _JSON.print([event_json(one) for one in found])
    elif found:
        EVENTS.show(ListOutput(), lambda: found)
    else:
        say("the store has no event of " + ", ".join("/".join(one) for one in named))
