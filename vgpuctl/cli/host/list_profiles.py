# SPDX-License-Identifier: Apache-2.0
"""list-profiles: the vGPU types of all hosts."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from vgpuctl.usecases.host.list_profiles import ListedProfile

_COLUMNS = ("HOST", "GPU", "BOARD", "PROFILE", "TYPE", "FRAMEBUFFER", "MOST", "CREATABLE")
_WIDE = ("HEADS", "RESOLUTION", "PIXELS", "FPS")


@click.command("list-profiles")
@click.option("--creatable", is_flag=True, help="Only types that can be created now.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide"]),
    default="table",
    show_default=True,
    help="Columns of the table; wide adds heads, resolution and frame-rate limit.",
)
@options.many_hosts
@options.refresh
@options.as_json
def command(creatable: bool, output: str, refresh: bool, as_json: bool, **where: Any) -> None:
    """List the vGPU types that each GPU offers and how many more of each can be created.

    SEEN is when the host last showed the GPU. Heads, resolution and limit are the host's, else the catalogue's.
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
        is_wide = output == "wide"
        print_table(
            [*_COLUMNS, *(_WIDE if is_wide else ()), "SEEN"],
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
                    *(_display(listed) if is_wide else ()),
                    listed.seen,
                )
                for listed in profiles
            ],
            empty="no vGPU type found",
        )
    report_failures(seen.failures, answered=len(seen.capacities))


def _display(listed: "ListedProfile") -> tuple[int | str | None, ...]:
    """The columns of `wide`."""
    limits = listed.display
    if limits is None:
        return (None,) * len(_WIDE)
    resolution = None if limits.max_resolution is None else "x".join(map(str, limits.max_resolution))
    return (limits.heads, resolution, listed.max_pixels, limits.frame_rate_limit)
