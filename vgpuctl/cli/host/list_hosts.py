# SPDX-License-Identifier: Apache-2.0
"""list-hosts: the hosts of the inventory and how they answer."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from vgpuctl.usecases.host.list_hosts import ListedHost


@click.command("list-hosts")
@options.many_hosts
@options.as_json
def command(as_json: bool, **where: Any) -> None:
    """Contact every host and list its software; a host that does not answer is a row with the reason.

    A host without an answer from libvirt is shown as `libvirt: no answer`; the reason follows the table.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.host.list_hosts import list_hosts

    with services(**where) as opened:
        hosts = list_hosts(opened)
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
                }
                for host in hosts
            ]
        )
    else:
        print_table(
            ["HOST", "STATE", "CLOSED", "GPUS", "CPUS", "MEMORY", "KERNEL", "LIBVIRT", "QEMU", "DRIVER", "LAYOUT"],
            [
                (
                    host.name,
                    "ok" if host.libvirt_problem is None else "libvirt: no answer",
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
                else (host.name, host.problem and host.problem.reference, _closed(host), *[None] * 8)
                for host in hosts
            ],
            empty="no host",
        )
    problems = [(host.name, host.problem or host.libvirt_problem) for host in hosts]
    failures = [(name, problem) for name, problem in problems if problem is not None]
    report_failures(failures, answered=len(hosts) - len(failures))


def _closed(host: "ListedHost") -> str | None:
    return None if host.closed is None else host.closed.reason
