# SPDX-License-Identifier: Apache-2.0
"""list-profiles: the vGPU types of all hosts."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures


@click.command("list-profiles")
@click.option("--creatable", is_flag=True, help="Only types that can be created now.")
@options.many_hosts
@options.refresh
@options.as_json
def command(creatable: bool, refresh: bool, as_json: bool, **where: Any) -> None:
    """List the vGPU types that each GPU offers and how many more of each can be created.

    SEEN is when the host last showed the GPU.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.host.list_profiles import list_profiles

    with services(**where) as opened:
        profiles, seen = list_profiles(opened, refresh=refresh)
    if creatable:
        profiles = [listed for listed in profiles if listed.profile.creatable]
    if as_json:
        print_json(profiles)
    else:
        print_table(
            ["HOST", "GPU", "BOARD", "PROFILE", "TYPE", "FRAMEBUFFER", "MOST", "CREATABLE", "SEEN"],
            [
                (
                    listed.host,
                    listed.gpu,
                    listed.board,
                    listed.profile.name,
                    listed.profile.type_id,
                    format_mib(listed.profile.framebuffer_mib) if listed.profile.framebuffer_mib else None,
                    listed.profile.max_instances,
                    listed.profile.creatable,
                    listed.seen,
                )
                for listed in profiles
            ],
            empty="no vGPU type found",
        )
    report_failures(seen.failures, answered=len(seen.capacities))
