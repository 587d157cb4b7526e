# SPDX-License-Identifier: Apache-2.0
"""create-vm: parse, one use case, print."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.options.preempt_options import (
    JsonTerms,
    JsonVictim,
    consent_of,
    preempt_flags,
    show_terms,
    show_victims,
)
from vgpuctl.cli.options.vm_options import fields_given, read_requests, vm_flags
from vgpuctl.cli.shown.json_output import JsonOutput, JsonStep
from vgpuctl.cli.shown.output import choose, plain, print_document, print_line, print_table, say
from vgpuctl.cli.shown.partition_text import with_partition
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import NO_GPU
from vgpuctl.model.plural import counted
from vgpuctl.model.units import format_mib

if TYPE_CHECKING:
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.model.vm import Vm, VmRequest
    from vgpuctl.usecases.placement.preemption import PreemptionTerms
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.vm.created_vm import CreatedVm, PlacementReason, Write


# The question of create-vm for the GPU of a VM, on a terminal.
def ask_for_gpu(opened: "Services", requests: "Sequence[VmRequest]") -> "list[VmRequest]":
    """Ask which GPU share the VMs get, if somebody sits at a terminal and there is a choice.

    requests: one VM, or the same one several times. VMs that exist are not asked about.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.usecases.vm.fitting_profiles import fitting_profiles

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return list(requests)
    profiles = fitting_profiles(opened, requests[0])
    if not profiles:
        return list(requests)
    say(f"GPU shares that fit: {', '.join(profiles)}")
    chosen = choose("GPU of the VM", [NO_GPU, *profiles], default=NO_GPU)
    gpus = () if chosen == NO_GPU else (read_gpu_request(chosen),)
    return [replace(one, gpus=gpus) for one in requests]


# The answer of `create-vm --dry-run` about one VM, for people: what, where, why, who is preempted, what is written.
def print_plan(one: "CreatedVm", grace_s: int | None, *, with_steps: bool, with_xml: bool) -> None:
    """Print five lines about a VM that would be created. with_steps, with_xml: and the steps, and the domain XML."""
    from vgpuctl.usecases.vm.preemption_consent import describe_victim

    request = one.vm.request
    gpus = ", ".join(gpu.text for gpu in request.gpus) or "no GPU"
    size = f"{counted(request.vcpus, 'vCPU')}, {format_mib(request.memory_mib)}"
    shares = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in one.leases)
    print_line(f"VM        {one.vm.printed_name}: {gpus}, {size}")
    print_line(f"host      {one.vm.host}" + (f": {with_partition(shares, one.partition)}" if shares else ""))
    if one.why is not None:
        print_line(f"why       {_why(one.why, 'GPU' if request.gpus else 'host', one.vm.host, asked=request.host)}")
    victims = "; ".join(describe_victim(victim, grace_s) for victim in one.victims)
    print_line(f"preempts  {victims or 'no VM'}")
    print_line(f"writes    {', '.join(map(_write, one.writes))}")
    for title, steps in (("step", one.steps), ("undo", one.undo)) if with_steps else ():
        for step in steps:
            print_line(f"{title:<10}{step.op} " + " ".join(f"{key}={value}" for key, value in plain(step).items()))
    if with_xml and one.xml is not None:
        print_document(one.xml)


def _why(why: "PlacementReason", what: str, host: str, *, asked: str | None) -> str:
    if why.reservation is not None:
        return f"the shares of reservation {why.reservation}"
    refusing = f"; {counted(why.refusing, what)} refused" if why.refusing else ""
    if not why.takers:
        return f"no {what} takes it before the preemption{refusing}"
    hosts = "" if what == "host" else f" on {counted(why.hosts, 'host')}"
    only = f", --host {asked}" if asked is not None else ""
    if why.network is not None:
        only = f", network {why.network} is on {host} alone"
    return f"policy {why.policy}{only}, of {counted(why.takers, what)}{hosts} with room{refusing}"


def _write(one: "Write") -> str:
    return f"{one.kind} {one.name}" + (f" ({one.detail})" if one.detail else "")


class JsonCreatedVm(TypedDict):
    """The answer for one VM: it is there, or queued. steps, undo, why, writes: of a dry run. entry: its queue entry.

    state: of a VM that existed, as it was last observed, null of others. victims: VMs that were preempted for it.
    preemption: on what terms it may be preempted, null if it never is. partition_number: of the one of an NVSwitch
    fabric that its GPUs are, null for none.
    """

    changed: bool
    queued: bool
    vm: "Vm | None"
    state: str | None
    leases: "Sequence[Lease]"
    steps: Sequence[JsonStep]
    undo: Sequence[JsonStep]
    xml: str | None
    victims: Sequence[JsonVictim]
    preemption: JsonTerms | None
    why: "PlacementReason | None"
    writes: "Sequence[Write]"
    entry: "QueueEntry | None"
    partition_number: int | None


_JSON: "JsonOutput[list[JsonCreatedVm]]" = JsonOutput()


@click.command("create-vm")
@vm_flags
@options.many_hosts
@options.refresh
@options.dry_run
@click.option("--wait", is_flag=True, help="Return only when the guest's console has printed something (2 minutes).")
@preempt_flags
@click.option(
    "--reservation",
    metavar="NAME",
    help="Use the shares of this reservation, whose window is now; leave --gpu out.",
)
@click.option(
    "--count",
    type=WholeRange(1, 100),
    metavar="NUMBER",
    help="Create NUMBER identical VMs: NAME-1, NAME-2 and so on.",
)
@click.option("--gang", "is_gang", is_flag=True, help="Create all VMs of this command, or none.")
@click.option(
    "--queue",
    "may_queue",
    is_flag=True,
    help="Queue the VM when it does not fit now; `vgpuctl controller` starts it.",
)
@click.option("--steps", "with_steps", is_flag=True, help="With --dry-run: print the steps on the host too.")
@click.option("--xml", "with_xml", is_flag=True, help="With --dry-run: print the domain XML too.")
@options.every_refusal
@options.as_json
def command(
    refresh: bool,
    dry_run: bool,
    wait: bool,
    may_preempt: bool,
    grace_s: int | None,
    shutdown_timeout_s: float,
    reservation: str | None,
    count: int | None,
    is_gang: bool,
    may_queue: bool,
    with_steps: bool,
    with_xml: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a tenant's VM with its GPU shares and start it.

    When it fits only if other VMs are preempted (less important preemptible ones, or VMs on borrowed quota whose tenant
    accepts that), the refusal names them; --preempt preempts them after their grace period.
    The same command again changes nothing; with another size it refuses and says what differs.
    When anything fails, the VM is rolled back; of several VMs those that were created before stay, unless --gang is
    given. Without --gpu and -f, a terminal asks for the GPU; `--gpu none` is for a VM without one.
    """
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.usecases.placement.preemption import preemption_terms
    from vgpuctl.usecases.vm.create_vm import CreateOptions, create_vm

    if (with_steps or with_xml) and not dry_run:
        raise UsageError("--steps and --xml go with --dry-run", hint="`vgpuctl render-vm` prints the XML of a VM")
    where = take_service_options(given)
    is_gpu_open = not given["gpus"] and given["file"] is None and reservation is None
    wanted = CreateOptions(
        written=None if given["file"] is not None else fields_given(given),
        is_gang=is_gang,
        may_queue=may_queue,
        refresh=refresh,
        waits_for_console=wait,
        reservation=reservation,
        consent=consent_of(
            may_preempt=may_preempt, grace_s=grace_s, shutdown_timeout_s=shutdown_timeout_s, may_ask=not dry_run
        ),
    )
    requests = read_requests(**given)
    if count is not None:
        requests = _numbered(requests, count, is_file=given["file"] is not None)
    if is_gpu_open and not as_json:
        with services(**where) as asking:  # nobody waits for the answer, as for a dry run on PostgreSQL
            requests = ask_for_gpu(asking, requests)
    with services(rehearses=dry_run, **where) as opened:
        answers = create_vm(opened, requests, wanted)
        created = [one for one in answers if not isinstance(one, QueueEntry)]
        queued = [one for one in answers if isinstance(one, QueueEntry)]
        terms = {one.vm.uuid: preemption_terms(opened, one.vm, one.leases) for one in created}
    for one in created:
        if is_gpu_open and one.changed and not one.vm.request.gpus:
            say(f"{one.vm.printed_name}: it has no GPU; --gpu gives it one")
        if not one.changed:
            say(f"{one.vm.printed_name}: no change, it is on {one.vm.host}: {one.state}")
        if (said := terms[one.vm.uuid]) is not None:
            say(f"{one.vm.printed_name}: {said}")
    for entry in queued:
        say(f"{entry.name}: {'would wait' if dry_run else 'waits'} in the queue: {entry.reason}")
    if as_json:
        _JSON.print(
            [
                _show_queued(one) if isinstance(one, QueueEntry) else _show(one, terms[one.vm.uuid], dry_run=dry_run)
                for one in answers
            ]
        )
    elif dry_run:
        for number, one in enumerate(one for one in created if one.changed):
            if number:
                print_line("")
            print_plan(one, grace_s, with_steps=with_steps, with_xml=with_xml)
    elif created or not queued:
        _print_created(created)


def _numbered(requests: Sequence[Any], count: int, *, is_file: bool) -> list[Any]:
    """The VM of the command line `count` times, with numbers behind its name."""
    from vgpuctl.specs.vm import check_request

    if is_file:
        raise UsageError("--count goes with a NAME, not with -f FILE", hint="write each VM under `vms:`")
    (one,) = requests
    return [check_request(replace(one, name=f"{one.name}-{number}")) for number in range(1, count + 1)]


def _show(one: "CreatedVm", terms: "PreemptionTerms | None", *, dry_run: bool) -> JsonCreatedVm:
    return {
        "changed": one.changed and not dry_run,
        "queued": False,
        "vm": one.vm,
        "state": one.state,
        "leases": one.leases,
        "steps": [{"op": step.op, **plain(step)} for step in one.steps],
        "undo": [{"op": step.op, **plain(step)} for step in one.undo],
        "xml": one.xml,
        "victims": show_victims(one.victims),
        "preemption": show_terms(terms),
        "why": one.why,
        "writes": one.writes,
        "entry": None,
        "partition_number": None if one.partition is None else one.partition.number,
    }


def _show_queued(entry: "QueueEntry") -> JsonCreatedVm:
    return {
        "changed": False,
        "queued": True,
        "vm": None,
        "state": None,
        "leases": [],
        "steps": [],
        "undo": [],
        "xml": None,
        "victims": [],
        "preemption": None,
        "why": None,
        "writes": [],
        "entry": entry,
        "partition_number": None,
    }


def _print_created(created: "Sequence[CreatedVm]") -> None:
    print_table(
        ["TENANT", "VM", "STATE", "HOST", "GPU SHARES"],
        [
            (
                one.vm.request.tenant,
                one.vm.request.name,
                one.state or one.vm.state,
                one.vm.host,
                with_partition(
                    ", ".join(f"{lease.share.profile} {lease.share.function}" for lease in one.leases), one.partition
                ),
            )
            for one in created
        ],
        empty="no VM",
    )
