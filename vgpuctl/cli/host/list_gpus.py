# SPDX-License-Identifier: Apache-2.0
"""list-gpus: the GPUs of all hosts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.host.list_gpus import ListedGpu


@click.command("list-gpus")
@click.option("--free", is_flag=True, help="Only GPUs that can still take a VM.")
@options.many_hosts
@options.refresh
@options.as_json
def command(free: bool, refresh: bool, as_json: bool, **where: Any) -> None:
    """List the GPUs of all hosts: how they can be shared, what is promised and what is wrong with them.

    SEEN is when the host last showed the GPU. A GPU that its host no longer shows is `missing` for a week.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.host.list_gpus import list_gpus

    with services(**where) as opened:
        gpus, seen = list_gpus(opened, refresh=refresh)
    if free:
        gpus = [
            listed
            for listed in gpus
            if not listed.gpu.problems
            and listed.observation.state != "missing"
            and listed.libvirt_problem is None
            and listed.closed is None
            and (any(type_.creatable for type_ in listed.gpu.types) or (listed.gpu.sharing and not listed.leases))
        ]
    if as_json:
        print_json(gpus)
    else:
        print_table(
            ["HOST", "GPU", "BOARD", "SHARING", "VFS", "NUMA", "DRIVER", "LEASES", "CLOSED", "SEEN", "PROBLEMS"],
            [
                (
                    listed.host,
                    listed.gpu.address,
                    listed.board,
                    ",".join(listed.gpu.sharing) or None,
                    f"{len(listed.gpu.vfs)}/{listed.gpu.total_vfs}" if listed.gpu.total_vfs else None,
                    listed.gpu.numa_node,
                    listed.gpu.driver,
                    ", ".join(_leases(listed)) or None,
                    "; ".join(
                        [
                            *([] if listed.closed is None else [f"{listed.closed.code}: {listed.closed.reason}"]),
                            *listed.closed_vfs.values(),
                        ]
                    )
                    or None,
                    listed.seen,
                    "; ".join(_problems(listed)) or None,
                )
                for listed in gpus
            ],
            empty="no GPU found",
        )
    report_failures(seen.failures, answered=len(seen.capacities))


def _leases(listed: "ListedGpu") -> Iterator[str]:
    """Who has what, with the parameters of its vGPU where it has any."""
    from vgpuctl.sharing.kinds import params_found

    for lease in listed.leases:
        params = params_found(lease.share, listed.gpu)
        yield f"{lease.tenant}.{lease.vm_name}:{lease.share.profile}" + (f" ({params})" if params else "")


def _problems(listed: "ListedGpu") -> Iterator[str]:
    """The GPU's problems, then those of its host."""
    yield from listed.gpu.problems
    if listed.libvirt_problem is not None:
        yield f"libvirt: {listed.libvirt_problem}"
    if listed.layout_differences:
        yield f"layout: {counted(len(listed.layout_differences), 'difference')}"
