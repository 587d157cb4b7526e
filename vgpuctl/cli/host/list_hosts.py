# SPDX-License-Identifier: Apache-2.0
"""list-hosts: the hosts of the inventory and how they answer, or answered last."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from vgpuctl.usecases.host.list_hosts import ListedHost


@click.command("list-hosts")
@click.option("--cached", is_flag=True, help="Show the hosts as they were last observed; contact none of them.")
@options.many_hosts
@options.as_json
def command(cached: bool, as_json: bool, **where: Any) -> None:
    """Contact every host and list its software; a host that does not answer is a row with the reason.

    SEEN is when the host last answered, and since when it is unknown. A host without an answer from libvirt is shown as
    `libvirt: no answer`; the reason follows the table.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.host.list_hosts import list_hosts, list_observed_hosts

    with services(**where) as opened:
        hosts = list_observed_hosts(opened) if cached else list_hosts(opened)
    if as_json:
        print_json(
            [
                {
                    "host": host.name,
                    "layout": host.layout,
                    "closed": host.closed,
                    "facts": host.facts,
                    "problem": host.problem and host.problem.message,
                    "libvirt_problem": host.libvirt_problem and host.libvirt_problem.message,
                    "observed": host.observed,
                    "seen": host.seen,
                }
                for host in hosts
            ]
        )
    else:
        print_table(
            [
                *("HOST", "STATE", "SEEN", "CLOSED", "GPUS", "CPUS", "MEMORY"),
                *("KERNEL", "LIBVIRT", "QEMU", "DRIVER", "LAYOUT"),
            ],
            [
                (
                    host.name,
                    _state(host, cached=cached),
                    host.seen,
                    _closed(host),
                    len(host.facts.gpus),
                    host.facts.cpus,
                    format_mib(host.facts.memory_mib),
                    host.facts.kernel,
                    host.facts.libvirt_version,
                    host.facts.qemu_version,
                    host.facts.nvidia_driver,
                    host.layout,
                )
                if host.facts is not None
                else (host.name, _state(host, cached=cached), host.seen, _closed(host), *[None] * 8)
                for host in hosts
            ],
            empty="no host",
        )
    problems = [(host.name, host.problem or host.libvirt_problem) for host in hosts]
    failures = [(name, problem) for name, problem in problems if problem is not None]
    report_failures(failures, answered=len(hosts) - len(failures))


def _state(host: "ListedHost", *, cached: bool) -> str | None:
    """How the host answers; cached: how it was last observed."""
    if host.problem is not None:
        return host.problem.reference
    is_silent = host.libvirt_problem is not None
    if cached:
        if host.observed is None:
            return None
        if host.observed.state != "up":
            return host.observed.state
        is_silent = host.observed.libvirt.unknown_since is not None
    return "libvirt: no answer" if is_silent else "ok"


def _closed(host: "ListedHost") -> str | None:
    return None if host.closed is None else host.closed.reason
