# SPDX-License-Identifier: Apache-2.0
"""list-vms: the store's VMs as they were last observed; no host is contacted without --refresh."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import say
from vgpuctl.cli.shown.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.model.labels import Selector
    from vgpuctl.model.lease import Lease
    from vgpuctl.model.licence import LicenceSeat
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.model.vm import Vm, VmState
    from vgpuctl.usecases.observed.observations import Observation
    from vgpuctl.usecases.vm.list_vms import VmRow


_REMEDY = "`vgpuctl repair` makes their devices again, or says why it cannot"


class JsonVm(TypedDict):
    """A VM. vm: None for one that waits in the queue to be created. queued: its place there, with the reason.

    state: `queued`, `unknown`, or the last of observed and declared. declared: the state in the store; observed: what
    libvirt answered last, at observed_at. unknown_since, problem: of the last attempt that got no answer. shares: of
    each lease, its device as last observed. addresses: those that the store gave its interfaces, in their order. Times
    are seconds since the epoch, UTC.
    """

    tenant: str
    name: str
    state: str
    host: str | None
    vm: "Vm | None"
    queued: "QueueEntry | None"
    leases: "Sequence[Lease]"
    declared: "VmState | None"
    observed: str | None
    observed_at: float | None
    unknown_since: float | None
    problem: str | None
    domain_name: str | None
    shares: "Sequence[Observation]"
    licence: "LicenceSeat | None"
    node_pool: str | None
    cluster: str | None
    labels: dict[str, str]
    addresses: Sequence[str]
    created_at: float | None


def _json(row: "VmRow") -> JsonVm:
    one = row.listed
    return {
        "tenant": row.request.tenant,
        "name": row.request.name,
        "state": row.word,
        "host": None if one is None else one.vm.host,
        "vm": None if one is None else one.vm,
        "queued": row.queued,
        "leases": () if one is None else one.leases,
        "declared": None if one is None else one.vm.state,
        "observed": None if one is None else one.seen.state,
        "observed_at": None if one is None else one.seen.at,
        "unknown_since": None if one is None else one.seen.unknown_since,
        "problem": None if one is None else one.seen.problem,
        "domain_name": None if one is None else one.seen.name,
        "shares": () if one is None else one.shares,
        "licence": None if one is None else one.licence,
        "node_pool": None if one is None else one.node_pool,
        "cluster": None if one is None else one.cluster,
        "labels": dict(row.request.labels),
        "addresses": () if one is None else one.addresses,
        "created_at": None if one is None else one.created_at,
    }


def _state(row: "VmRow") -> str:
    if row.listed is None:
        return "queued"
    return row.state + ("" if not row.lost else "; share lost" if row.lost == 1 else f"; {row.lost} shares lost")


def _reason(row: "VmRow") -> str | None:
    """Why it is in this state or will leave it, as sentences of any length."""
    vm = None if row.listed is None else row.listed.vm
    waits = () if row.queued is None else (row.queued.reason if vm is None else "it is queued to start again",)
    reasons = (*waits, *(() if vm is None else (vm.problem, _notice(vm))))
    return "; ".join(filter(None, reasons)) or None


def _colour(row: "VmRow") -> str | None:
    return colour_of_state(f"{_state(row)} {'preempted' if row.listed and row.listed.vm.notice else ''}")


def _host(row: "VmRow") -> str | None:
    return None if row.listed is None else row.listed.vm.host


def _shares(row: "VmRow") -> tuple[str, ...] | None:
    """The shares that it holds; of a queued VM those that it waits for."""
    if row.listed is None:
        return tuple(gpu.text for gpu in row.request.gpus) or None
    return tuple(map(_share, row.listed.leases, row.listed.wrong)) or None


def _shares_by_word(row: "VmRow") -> tuple[str, ...] | None:
    """The same without the ages of what is wrong with them."""
    if row.listed is None:
        return _shares(row)
    seen = zip(row.listed.shares, row.listed.wrong, strict=True)
    wrong = [(share.known_state or "unknown") if said else None for share, said in seen]
    return tuple(map(_share, row.listed.leases, wrong)) or None


def _seen_at(row: "VmRow") -> float | None:
    return None if row.listed is None else row.listed.seen.at


def _age_s(row: "VmRow") -> float | None:
    """Seconds since it was created; None while it is only queued."""
    return None if row.listed is None else row.listed.age_s


def _licence(row: "VmRow") -> str | None:
    return None if row.listed is None or row.listed.licence is None else row.listed.licence.pool


_LISTING: "Listing[VmRow, JsonVm]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.request.tenant),
        Column("VM", lambda one: one.request.name),
        Column("STATE", _state, key=lambda one: one.word, is_text=True, colour=_colour),
        Column("HOST", _host),
        Column("VCPUS", lambda one: one.request.vcpus, drops=2),
        Column(
            "MEMORY",
            lambda one: one.request.memory_mib,
            unit=ColumnUnit.MIB,
            drops=2,
        ),
        Column("GPU SHARES", _shares, key=_shares_by_word),
        Column("LICENCE", _licence, is_rare=True, drops=3),
        Column("NODE POOL", lambda one: one.listed and one.listed.node_pool, is_rare=True, drops=3),
        Column("CLUSTER", lambda one: one.listed and one.listed.cluster, is_rare=True, drops=4),
        Column("REASON", _reason, is_text=True, is_rare=True),
        Column("LABELS", lambda one: tuple(map("=".join, one.request.labels)) or None, is_wide=True, is_rare=True),
        Column("ADDRESSES", lambda one: (one.listed and one.listed.addresses) or None, is_wide=True, is_rare=True),
        Column("SEEN (UTC)", _seen_at, unit=ColumnUnit.UTC, is_wide=True),
        Column("AGE", _age_s, unit=ColumnUnit.SECONDS, is_age=True, is_wide=True),
        Column("UUID", lambda one: one.listed and one.listed.vm.uuid, is_wide=True),
    ),
    name=lambda one: f"{one.request.tenant}/{one.request.name}",
    json=_json,
    empty="no VM yet: create one with `vgpuctl create-vm`",
)


@click.command("list-vms")
@options.tenant_filter
@options.vms_limit("--host")
@click.option("--node-pool", metavar="NAME", help="Only nodes of this pool; needs --tenant.")
@click.option("--refresh", is_flag=True, help="Ask their hosts for the present states first.")
@options.selector
@options.one_host
@options.forks
@_LISTING.options
def command(
    tenant: str | None,
    vms_limit: str | None,
    node_pool: str | None,
    refresh: bool,
    selector: "Selector | None",
    output: ListOutput,
    **where: Any,
) -> None:
    """List VMs with their GPU shares, and the VMs in the queue.

    STATE is what libvirt answered when it was last asked, and how long ago; `unknown since` when the last attempt got
    no answer, and `declared` where the store wants another state. A share is marked `lost` when the host no longer has
    its device, and `taken` when something else holds it; of a host that gives no answer, neither is known.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vms import hosts_fitting
    from vgpuctl.usecases.vm.list_vms import list_with_queued, refresh_vms

    with services(**where) as opened:
        host = None if vms_limit is None else hosts_fitting(opened, vms_limit)
        failures = refresh_vms(opened, tenant=tenant, host=host, node_pool=node_pool) if refresh else {}
        wanted = functools.partial(
            list_with_queued, opened, tenant=tenant, host=host, node_pool=node_pool, selector=selector
        )
        listed = _LISTING.show(output, wanted)
    lost = [one for one in listed if one.lost]
    if lost and output.is_for_people():
        say(f"shares are lost on {', '.join(sorted({str(_host(one)) for one in lost}))}, but stay promised: {_REMEDY}")
    hosts = {one.listed.vm.host for one in listed if one.listed is not None}
    report_failures(list(failures.items()), answered=len(hosts - set(failures)))


def _share(lease: "Lease", wrong: str | None) -> str:
    return f"{lease.share.profile} {lease.share.function}" + (f" ({wrong})" if wrong else "")


def _notice(vm: "Vm") -> str:
    from vgpuctl.model.times import format_time_to_second

    if vm.notice is None:
        return ""
    return f"it is preempted by {vm.notice.cause} at {format_time_to_second(vm.notice.at)}"
