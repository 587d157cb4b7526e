# SPDX-License-Identifier: Apache-2.0
"""list-hosts: the hosts of the inventory and how they answer, or answered last."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts
    from vgpuctl.sharing.offer import Refusal
    from vgpuctl.usecases.host.list_hosts import ListedHost
    from vgpuctl.usecases.observed.observations import ObservedHost


class JsonHost(TypedDict):
    """A host. facts: None while it does not answer. seen: when it last answered, in words."""

    host: str
    layout: str | None
    closed: "Refusal | None"
    facts: "HostFacts | None"
    problem: str | None
    libvirt_problem: str | None
    observed: "ObservedHost | None"
    seen: str


def _json(host: "ListedHost") -> JsonHost:
    return {
        "host": host.name,
        "layout": host.layout,
        "closed": host.closed,
        "facts": host.facts,
        "problem": None if host.problem is None else host.problem.message,
        "libvirt_problem": None if host.libvirt_problem is None else host.libvirt_problem.message,
        "observed": host.observed,
        "seen": host.seen,
    }


def _state(host: "ListedHost") -> str | None:
    """How the host answers; of one that was not asked now, how it was last observed."""
    if host.problem is not None:
        return host.problem.reference
    is_silent = host.libvirt_problem is not None
    if not host.is_asked:
        if host.observed is None:
            return None
        if host.observed.state != "up":
            return host.observed.state
        is_silent = host.observed.libvirt.unknown_since is not None
    if is_silent:
        return "libvirt: no answer"
    return "stale" if host.is_stale else "ok"


def _seen_at(host: "ListedHost") -> float | None:
    return None if host.observed is None else host.observed.agent.at


def _colour(host: "ListedHost") -> str | None:
    if host.problem is not None or host.libvirt_problem is not None:
        return "red"
    return "yellow" if host.closed is not None else colour_of_state(_state(host))


_LISTING: "Listing[ListedHost, JsonHost]" = Listing(
    columns=(
        Column("HOST", lambda one: one.name),
        Column("STATE", _state, colour=_colour),
        Column("SEEN", lambda one: one.seen, key=_seen_at, unit=ColumnUnit.UTC, is_text=True, drops=3),
        Column("CLOSED", lambda one: one.closed and one.closed.reason, is_text=True, is_rare=True),
        Column("GPUS", lambda one: one.facts and len(one.facts.gpus), drops=1),
        Column("CPUS", lambda one: one.facts and one.facts.cpus, drops=4),
        Column(
            "MEMORY",
            lambda one: one.facts and one.facts.memory_mib,
            unit=ColumnUnit.MIB,
            drops=5,
        ),
        Column("KERNEL", lambda one: one.facts and one.facts.kernel, drops=9),
        Column("LIBVIRT", lambda one: one.facts and one.facts.libvirt_version, drops=7),
        Column("QEMU", lambda one: one.facts and one.facts.qemu_version, drops=8),
        Column("DRIVER", lambda one: one.facts and one.facts.nvidia_driver, drops=6),
        Column("LAYOUT", lambda one: one.layout, drops=2),
    ),
    name=lambda one: one.name,
    json=_json,
    empty="no host",
)


@click.command("list-hosts")
@click.option("--cached", is_flag=True, help="Show the hosts as they were last observed; contact none of them.")
@options.many_hosts
@_LISTING.options
def command(cached: bool, output: ListOutput, **where: Any) -> None:
    """List hosts with their software, or why they do not answer. Every host is contacted.

    SEEN is when the host last answered, since when it is unknown, and what was tried since. With --cached, a host that
    was up and has not answered for 10 minutes is `stale`. A host without an answer from libvirt is shown as
    `libvirt: no answer`; the reason follows the table.
    """
    from vgpuctl.cli.forms.services import services_of_hosts

    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.host.list_hosts import list_hosts, list_observed_hosts

        hosts = _LISTING.show(
            output, lambda: list_observed_hosts(opened) if cached else list_hosts(opened, keep=output.is_watched)
        )
    problems = [(host.name, host.problem or host.libvirt_problem or host.incomplete) for host in hosts]
    failures = [(name, problem) for name, problem in problems if problem is not None]
    report_failures(failures, answered=len(hosts) - len(failures))
