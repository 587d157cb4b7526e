# SPDX-License-Identifier: Apache-2.0
"""create-tenant, list-tenants, show-tenant: tenants, what they may use and do use."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options, preempt_options
from vgpuctl.cli.shown.labelled import print_labelled
from vgpuctl.cli.tenant import quota_options

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.queue import Waiting
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.tenant.list_tenants import ListedTenant, QuotaUse
    from vgpuctl.usecases.tenant.show_tenant import LicencesOfTenant, NodePoolOfTenant, ShownTenant

_TENANTS: StoredKind[str] = StoredKind("tenant", "list-tenants", "tenant")


@_TENANTS.changes(lambda _name: "created", is_new=True)
@click.option(
    "--quota",
    "limits",
    multiple=True,
    metavar="RESOURCE=AMOUNT",
    help=f"Limit of a resource; several times. Resources: {quota_options.UNITS}.",
)
@quota_options.guaranteed
@preempt_options.policy_flags
@click.option(
    "--host-pool",
    "host_pools",
    multiple=True,
    metavar="NAME",
    help="Grant a pool of hosts to the tenant; several times.",
)
def create_tenant(
    opened: "Services",
    name: str,
    limits: tuple[str, ...],
    guaranteed: tuple[str, ...],
    reclaim: str | None,
    preempt_mode: str | None,
    grace_s: int | None,
    host_pools: tuple[str, ...],
) -> tuple[str, bool]:
    """Add a tenant with its quotas, preemption policy and pools.

    The same command again changes nothing; an existing tenant with other values is refused (see `vgpuctl set-quota`).
    """
    from vgpuctl.usecases.tenant.create_tenant import create_tenant

    changed = create_tenant(
        opened,
        name,
        limits=quota_options.read_amounts(limits, what="--quota"),
        guaranteed=quota_options.read_amounts(guaranteed, what="--guaranteed"),
        host_pools=host_pools,
        policy=preempt_options.read_policy(reclaim, preempt_mode, grace_s),
    )
    return name, changed


def quota_text(use: "QuotaUse") -> str:
    """A quota in words: `memory 3 GiB / 8 GiB (2 GiB guaranteed)`."""
    from vgpuctl.quota.resources import format_amount

    return _quota(use, use.resource, functools.partial(format_amount, use.resource))


def _plain_quota(use: "QuotaUse") -> str:
    """A quota in numbers: `memory_mib 3072 / 8192 (2048 guaranteed)`."""
    from vgpuctl.quota.resources import plain_amount, plain_name

    return _quota(use, plain_name(use.resource), functools.partial(plain_amount, use.resource))


def _quota(use: "QuotaUse", name: str, amount: Callable[[int], str]) -> str:
    limit = "no limit" if use.limit is None else amount(use.limit) if isinstance(use.limit, int) else use.limit
    if use.used is None:
        return f"{name} {limit}"
    text = f"{name} {amount(use.used)} / {limit}"
    if use.guaranteed is not None:
        text += f" ({amount(use.guaranteed)} guaranteed"
        text += f", {amount(use.borrowed)} borrowed)" if use.borrowed else ")"
    return text


def _policy(one: "ListedTenant") -> str:
    from vgpuctl.usecases.tenant.set_quota import describe_policy

    return describe_policy(one.policy)


def _plain_policy(one: "ListedTenant") -> str:
    return f"reclaim {one.policy.reclaim}, preempt {one.policy.preempt}, grace_s {one.policy.grace_s:.0f}"


_LISTING: "Listing[ListedTenant, ListedTenant]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("VMS", lambda one: one.vms),
        Column("HOST POOLS", lambda one: one.host_pools or None, drops=3),
        Column(
            "USED / LIMIT",
            lambda one: tuple(map(quota_text, one.quotas)) or None,
            key=lambda one: tuple(map(_plain_quota, one.quotas)) or None,
            drops=1,
        ),
        Column("PREEMPTION", _policy, key=_plain_policy, is_text=True, drops=4),
        Column("CONTACT", lambda one: one.contact, drops=2),
    ),
    name=lambda one: one.tenant,
    json=lambda one: one,
    empty="no tenant yet: add one with `vgpuctl create-tenant NAME`",
)


@_TENANTS.lists(_LISTING)
def list_tenants(opened: "Services") -> "Sequence[ListedTenant]":
    """List the tenants, their quotas and what they use. Also their VMs, pools, preemption policy and contact."""
    from vgpuctl.usecases.tenant.list_tenants import list_tenants

    return list_tenants(opened)


def _print(shown: "ShownTenant") -> None:
    from vgpuctl.usecases.placement.reservations import describe
    from vgpuctl.usecases.tenant.set_quota import describe_policy

    one = shown.tenant
    print_labelled("tenant", [one.tenant + (f", contact {one.contact}" if one.contact else "")])
    print_labelled("preempt", [describe_policy(one.policy)])
    print_labelled("host pool", [", ".join(one.host_pools) or "none granted"])
    print_labelled("quota", [quota_text(use) for use in one.quotas] or ["no limit"])
    print_labelled("VMs", [_counts(shown.vm_states) or "none"])
    print_labelled("queue", [_waiting(waiting) for waiting in shown.queue])
    print_labelled("reserved", [f"{each.name}: {describe(each)} on {each.host}" for each in shown.reservations])
    print_labelled(
        "network",
        [
            f"{each.name} {', '.join(filter(None, (each.cidr, each.cidr6)))} ({each.backend}), {each.free} free"
            for each in shown.networks
        ],
    )
    print_labelled("node pool", [_nodes(pool) for pool in shown.node_pools])
    print_labelled("licences", [text for pool in shown.licences for text in _licences(pool)])


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())


def _waiting(one: "Waiting") -> str:
    from vgpuctl.model.times import format_time

    expected = "" if one.expected_at is None else f", expected {format_time(one.expected_at)} UTC"
    reason = f": {one.entry.why}"
    return f"{one.position}. {one.entry.name}{expected}{reason}"


def _nodes(one: "NodePoolOfTenant") -> str:
    states = _counts({str(state): count for state, count in one.states.items()})
    return f"{one.name} of cluster {one.cluster}: {one.size} of {one.minimum} to {one.maximum} nodes" + (
        f", {states}" if states else ""
    )


def _licences(one: "LicencesOfTenant") -> Iterator[str]:
    from vgpuctl.model.plural import counted

    yield f"{counted(one.seats, 'seat')} of {one.pool} ({one.edition})"
    if one.waiting:
        yield f"{', '.join(one.waiting)}: waits for a seat of {one.pool}"


@_TENANTS.shows(_print)
@options.inventory
def show_tenant(opened: "Services", name: str) -> "ShownTenant":
    """Show one tenant: quotas, VMs, queue, networks, pools. Also its reservations and licences.

    With an inventory, labels and maintenance count for the expected start of queued VMs. No host is contacted.
    """
    from vgpuctl.usecases.tenant.show_tenant import show_tenant

    return show_tenant(opened, name, has_inventory=bool(click.get_current_context().params["inventories"]))
