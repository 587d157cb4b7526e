# SPDX-License-Identifier: Apache-2.0
"""create-vm: parse, one use case per VM, print."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import plain, print_document, print_json, print_line, print_table, say
from vgpuctl.cli.support.preempt_options import consent_of, preempt_flags, show_terms, show_victims
from vgpuctl.cli.support.vm_options import read_requests, vm_flags
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.usecases.vm.preempt_vms import Consent


@click.command("create-vm")
@vm_flags
@options.inventory
@options.limit
@options.database
@options.ssh
@options.forks
@options.refresh
@options.dry_run
@click.option("--wait", is_flag=True, help="Return only when the guest's console has printed something (2 minutes).")
@preempt_flags
@click.option(
    "--reservation",
    metavar="NAME",
    help="Take the shares that are reserved for now under this name; --gpu is left out.",
)
@click.option(
    "--count",
    type=WholeRange(1, 100),
    metavar="NUMBER",
    help="So many equal VMs: NAME-1, NAME-2 and so on.",
)
@click.option("--gang", "is_gang", is_flag=True, help="All the VMs of this command, or none of them.")
@click.option(
    "--queue",
    "may_wait",
    is_flag=True,
    help="Wait for its turn when it does not fit now; `vgpuctl controller` starts it.",
)
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
    may_wait: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a tenant's VM with its GPU shares and start it.

    When it fits only if other VMs are preempted (less important preemptible ones, or VMs on borrowed quota whose tenant
    accepts that), the refusal names them; --preempt preempts them after their grace period.
    The same command again changes nothing; with another size it refuses and says what differs.
    When anything fails, everything is rolled back; of several VMs those that were created before stay, unless --gang
    is given.
    """
    from vgpuctl.cli.support.services import services, take_service_options
    from vgpuctl.usecases.placement.preemption import preemption_terms
    from vgpuctl.usecases.vm.console import wait_for_console
    from vgpuctl.usecases.vm.create_gang import create_gang
    from vgpuctl.usecases.vm.create_vm import CreatedVm, create_vm
    from vgpuctl.usecases.vm.preempt_vms import describe_victim

    where = take_service_options(given)
    consent = consent_of(may_preempt=may_preempt, grace_s=grace_s, shutdown_timeout_s=shutdown_timeout_s)
    requests = read_requests(**given)
    if count is not None:
        requests = _numbered(requests, count, is_file=given["file"] is not None)
    if is_gang and reservation is not None:
        raise UsageError("--gang and --reservation exclude each other", hint="one VM at a time uses a reservation")
    if may_wait and reservation is not None:
        raise UsageError("--queue and --reservation exclude each other")
    if may_wait:
        _queue(requests, where, consent, is_gang=is_gang, dry_run=dry_run or wait, as_json=as_json)
        return
    with services(**where) as opened:
        results = []
        together: Sequence[CreatedVm] = ()
        if is_gang:
            together = create_gang(opened, requests, dry_run=dry_run, refresh=refresh, consent=consent)
        for request, member in zip_longest(requests, together):
            created = member or create_vm(
                opened,
                request,
                dry_run=dry_run,
                refresh=refresh,
                consent=consent,
                reservation=reservation,
            )
            if wait and not dry_run:
                wait_for_console(opened, created.vm)
            results.append(created)
            if not created.changed:
                say(f"{created.vm.domain_name}: no change, it is {created.vm.state} on {created.vm.host}")
        terms = [preemption_terms(opened, result.vm, result.leases) for result in results]
    for result, one in zip(results, terms, strict=True):
        if one is not None:
            say(f"{result.vm.domain_name}: {one}")
    if as_json:
        shown = [
            {
                "changed": result.changed and not dry_run,
                "vm": result.vm,
                "leases": result.leases,
                "steps": [{"op": step.op, **plain(step)} for step in result.steps],
                "undo": [{"op": step.op, **plain(step)} for step in result.undo],
                "xml": result.xml,
                "victims": show_victims(result.victims),
                "preemption": show_terms(one),
            }
            for result, one in zip(results, terms, strict=True)
        ]
        print_json(shown)
        return
    for result in results if dry_run else ():
        print_line(f"# {result.vm.domain_name} on {result.vm.host}")
        for victim in result.victims:
            print_line(f"# preempts: {describe_victim(victim, grace_s)}")
        for title, steps in (("step", result.steps), ("undo", result.undo)):
            for step in steps:
                print_line(f"# {title}: {step.op} " + " ".join(f"{key}={value}" for key, value in plain(step).items()))
        print_document(result.xml or "")
    if not dry_run:
        print_table(
            ["VM", "TENANT", "HOST", "STATE", "GPU SHARES"],
            [
                (
                    result.vm.request.name,
                    result.vm.request.tenant,
                    result.vm.host,
                    result.vm.state,
                    ", ".join(f"{lease.share.profile} {lease.share.function}" for lease in result.leases),
                )
                for result in results
            ],
            empty="no VM",
        )


def _numbered(requests: Sequence[Any], count: int, *, is_file: bool) -> list[Any]:
    """The VM of the command line so many times."""
    from vgpuctl.usecases.vm.vm_file import check_request

    if is_file:
        raise UsageError("--count goes with a NAME, not with -f FILE", hint="write each VM under `vms:`")
    (one,) = requests
    return [check_request(replace(one, name=f"{one.name}-{number}")) for number in range(1, count + 1)]


def _queue(
    requests: Sequence[Any],
    where: dict[str, Any],
    consent: "Consent",
    *,
    is_gang: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create or queue each VM, and tell which became of it."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.usecases.placement.preemption import preemption_terms
    from vgpuctl.usecases.vm.create_vm import CreatedVm
    from vgpuctl.usecases.vm.queue import queue_gang, queue_vm

    if dry_run:
        raise UsageError("--queue goes with neither --dry-run nor --wait", hint="`vgpuctl list-queue` tells what waits")
    results: list[CreatedVm | QueueEntry]
    with services(**where) as opened:
        if is_gang:
            gang = queue_gang(opened, requests, consent)
            results = [gang] if isinstance(gang, QueueEntry) else list(gang)
        else:
            results = [queue_vm(opened, request, consent) for request in requests]
        terms = [
            None if isinstance(one, QueueEntry) else preemption_terms(opened, one.vm, one.leases) for one in results
        ]
    if as_json:
        print_json(
            [
                {"queued": True, "vm": None, "leases": [], "entry": result, "preemption": None}
                if isinstance(result, QueueEntry)
                else {
                    "queued": False,
                    "vm": result.vm,
                    "leases": result.leases,
                    "entry": None,
                    "preemption": show_terms(one),
                }
                for result, one in zip(results, terms, strict=True)
            ]
        )
        return
    for result, one in zip(results, terms, strict=True):
        if isinstance(result, QueueEntry):
            say(f"{result.name}: waits in the queue: {result.reason}")
        else:
            say(f"{result.vm.domain_name}: {result.vm.state} on {result.vm.host}")
            if one is not None:
                say(f"{result.vm.domain_name}: {one}")
