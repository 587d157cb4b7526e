# SPDX-License-Identifier: Apache-2.0
"""explain-vm: why a VM fits where it does, or nowhere."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.options.preempt_options import show_victims
from vgpuctl.cli.options.vm_options import read_requests, vm_flags
from vgpuctl.cli.placement.explain_measured import show_measured
from vgpuctl.cli.shown.json_output import JsonFailure, JsonOutput, failures_json
from vgpuctl.cli.shown.move_verdicts import JsonMoveCheck, move_check_json, show_move_check
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.cli.shown.partition_text import with_partition
from vgpuctl.errors import UsageError
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.cli.options.preempt_options import JsonVictim
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.placement import Placement
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.model.vm import Vm, VmRequest
    from vgpuctl.scheduler.predict import GpuPrediction
    from vgpuctl.scheduler.what_if import FittingChange
    from vgpuctl.usecases.measured.measured_view import GpuLoad
    from vgpuctl.usecases.placement.explain_vm import ExplainedVm, GpuAnswer


class JsonQueued(TypedDict):
    """Its place in the queue. kind: to create it, or to start it again. reason: of the last attempt to do so."""

    kind: str
    since: float
    reason: str | None


class JsonExplainedVm(TypedDict):
    """Where a VM would go now, or why nowhere.

    vm: the one that is there, its own shares counted as free. placement: null for nowhere. is_quota_checked: false
    without a tenant, then neither quotas nor licences are asked. quota, licence: why it is refused. changes: each alone
    would admit it. victims: VMs that `create-vm --preempt` would preempt. failures: hosts that gave no answer. seen: by
    host, its last answer in words. loads: of GPUs, where the policy looks at them. predictions: throughput on each GPU
    that takes it; model_at: when the model was fitted. queued: null for a VM that does not wait in the queue.
    not_looked_at: what only the host that gets the VM is asked for. partition_number: of the one of an NVSwitch
    fabric that it would have, null for none. time_unmeasured: why nobody would measure the time that it loses to
    neighbours on its GPUs, null where it is measured or has no neighbours.
    """

    fits: bool
    request: "VmRequest"
    vm: "Vm | None"
    leases: "Sequence[Lease]"
    policy: str
    placement: "Placement | None"
    is_quota_checked: bool
    quota: str | None
    licence: str | None
    answers: "Sequence[GpuAnswer]"
    changes: "Sequence[FittingChange]"
    victims: "Sequence[JsonVictim]"
    failures: list[JsonFailure]
    seen: Mapping[str, str]
    loads: "Sequence[GpuLoad]"
    loads_problem: str | None
    predictions: "Sequence[GpuPrediction]"
    model_at: float | None
    model_problem: str | None
    queued: JsonQueued | None
    not_looked_at: Sequence[str]
    partition_number: int | None
    time_unmeasured: str | None


_JSON: "JsonOutput[list[JsonExplainedVm | JsonMoveCheck]]" = JsonOutput()


@click.command("explain-vm")
@vm_flags
@click.option("--predict", is_flag=True, help="Predict throughput and the neighbours' loss on each GPU that takes it.")
@click.option("--move", is_flag=True, help="Say of an existing VM how it could go to each other host, live or cold.")
@options.history
@options.prometheus
@options.many_hosts
@options.refresh
@click.option(
    "--all-refusals", "shows_all", is_flag=True, help="Show the answer of every host and GPU instead of groups."
)
@options.as_json
def command(shows_all: bool, refresh: bool, predict: bool, move: bool, as_json: bool, **given: Any) -> None:
    """Explain which GPUs take a VM, and why others refuse it. Each reason has its remedy.

    An existing VM, or one that waits in the queue, named without --gpu, is explained as a new request of the same
    shape. Nothing is created.
    Without a tenant, hosts in pools count too, and quotas, licences and preemption are left out.
    """
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.usecases.placement.explain_vm import explain_vm, find_explained

    where = take_service_options(given)
    is_named_alone = given["file"] is None and given["name"] is not None and not given["gpus"]
    requests = read_requests(**given, is_hypothetical=not is_named_alone)
    if move:
        _explain_move(requests, is_named_alone=is_named_alone, as_json=as_json, **where)
        return
    with services(**where) as opened:
        explained = []
        for request in requests:
            found, vm, queued = request, None, None
            if is_named_alone:
                found, vm, queued = find_explained(opened, request.tenant, request.name)
            explained.append(explain_vm(opened, found, vm=vm, queued=queued, refresh=refresh, predict=predict))
    if as_json:
        _JSON.print([_object(one) for one in explained])
    else:
        for one in explained:
            _show(one, shows_all=shows_all)
    for one in explained:
        report_failures(one.failures, answered=len({answer.host for answer in one.answers}))


def _explain_move(requests: "Sequence[VmRequest]", *, is_named_alone: bool, as_json: bool, **where: Any) -> None:
    """Say how one VM of the store could go to each other host."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.move_check import check_move

    if not is_named_alone:
        raise UsageError("--move explains a VM that exists", hint="name it alone: `vgpuctl explain-vm NAME --move`")
    [request] = requests
    with services(**where) as opened, opened.asking_once():
        vm, _leases = find_vm(opened, request.tenant, request.name)
        found = check_move(opened, vm)
    if as_json:
        _JSON.print([move_check_json(vm, found)])
    else:
        show_move_check(vm, found)


def _object(explained: "ExplainedVm") -> JsonExplainedVm:
    """A VM as --json has it."""
    return {
        "fits": explained.fits,
        "request": explained.request,
        "vm": explained.vm,
        "leases": explained.leases,
        "policy": explained.policy,
        "placement": explained.placement,
        "is_quota_checked": explained.is_quota_checked,
        "quota": explained.quota,
        "licence": explained.licence,
        "answers": explained.answers,
        "changes": explained.changes,
        "victims": [] if explained.eviction is None else show_victims(explained.eviction.victims),
        "failures": failures_json(explained.failures),
        "seen": explained.seen,
        "loads": explained.loads,
        "loads_problem": explained.loads_problem,
        "predictions": explained.predictions,
        "model_at": explained.model_at,
        "model_problem": explained.model_problem,
        "queued": _queued(explained.queued),
        "not_looked_at": explained.not_looked_at,
        "partition_number": None if explained.partition is None else explained.partition.number,
        "time_unmeasured": explained.time_unmeasured,
    }


def _queued(entry: "QueueEntry | None") -> JsonQueued | None:
    return None if entry is None else {"kind": str(entry.kind), "since": entry.queued_at, "reason": entry.reason}


def _show(explained: Any, *, shows_all: bool) -> None:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_time
    from vgpuctl.model.units import format_mib

    request, placement = explained.request, explained.placement
    gpus = ", ".join(gpu.text for gpu in request.gpus) or "no GPU"
    whose = f"{request.name} of tenant {request.tenant}" if request.tenant else f"{request.name} of no tenant"
    print_line(f"VM      {whose}: {gpus}, {counted(request.vcpus, 'vCPU')}, {format_mib(request.memory_mib)}")
    if explained.vm is not None:
        there = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in explained.leases)
        print_line(f"is on   {explained.vm.host}" + (f": {there}" if there else ""))
    if explained.queued is not None:
        since = format_time(explained.queued.queued_at)
        print_line(f"queue   waits since {since} UTC: {explained.queued.why}")
    if not explained.fits:
        refused = [name for name in ("quota", "licence") if getattr(explained, name) is not None]
        print_line("fits    nowhere" + (f": refused by {' and '.join(refused)}" if refused else ""))
    if placement is not None:
        chosen = ", ".join(f"{one.profile} on {one.function}" for one in placement.shares)
        # The host has room, but the quota or licence refuses.
        word = "fits " if explained.fits else "room "
        chosen = f": {with_partition(chosen, explained.partition)}" if chosen else ""
        print_line(f"{word}   {placement.host}{chosen} (policy {explained.policy})")
        print_line(f"seen    {placement.host}: {explained.seen[placement.host]}")
        if placement.numa is not None:
            print_line(f"NUMA    {placement.numa}" + (", on CPUs of their own" if placement.numa.is_pinned else ""))
    if explained.time_unmeasured is not None:
        print_line(f"time    not measured there: {explained.time_unmeasured}")
    if explained.not_looked_at:
        print_line(f"unseen  whether the hosts have {', '.join(explained.not_looked_at)}")
    if not explained.is_quota_checked:
        print_line("quota   not checked, since no tenant is given")
    if explained.quota is not None:
        print_line(f"quota   {explained.quota}")
    if explained.licence is not None:
        print_line(f"licence {explained.licence}")
    for change in explained.changes:
        print_line(f"if      {change.text}, it would fit on {change.placement.host}")
    if explained.eviction is not None:
        from vgpuctl.usecases.vm.preemption_consent import describe_victim

        for victim in explained.eviction.victims:
            print_line(f"preempt {describe_victim(victim)}, with `create-vm --preempt`")
    show_measured(explained)
    if not shows_all:
        _show_groups(explained.answers)
        return
    print_table(
        ["HOST", "GPU", "BOARD", "ANSWER", "WHY", "WHAT HELPS", "SEEN"],
        [
            (
                *(one.host, one.gpu, one.board, one.code or "takes it"),
                *(one.reason, one.remedy, explained.seen.get(one.host)),
            )
            for one in explained.answers
        ],
        empty="no host was read",
    )


def _show_groups(answers: Any) -> None:
    """Answers by their reason, those that take it first, then the nearest refusal."""
    from vgpuctl.model.placement import Rejection
    from vgpuctl.scheduler.refusals import group_refusals, where, why

    as_given = [Rejection(one.host, one.gpu, one.code or "takes it", one.reason or "", one.remedy) for one in answers]
    takes = [one for one in as_given if one.code == "takes it"]
    refusals = group_refusals([one for one in as_given if one.code != "takes it"])
    groups = ([takes] if takes else []) + refusals
    print_table(
        ["WHERE", "ANSWER", "WHY", "WHAT HELPS"],
        [(where(group), group[0].code, why(group) or None, group[0].remedy) for group in groups],
        empty="no host was read",
    )
    if len(groups) < len(as_given):
        say(f"--all-refusals shows each of the {counted(len(as_given), 'answer')}")
