# SPDX-License-Identifier: Apache-2.0
"""list-profiles: the vGPU types of all hosts."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.services import report_survey
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vgpuctl.usecases.host.list_profiles import ListedProfile
    from vgpuctl.usecases.observed.survey import Survey


def _resolution(one: "ListedProfile") -> str | None:
    limits = one.display
    return None if limits is None or limits.max_resolution is None else "x".join(map(str, limits.max_resolution))


_LISTING: "Listing[ListedProfile, ListedProfile]" = Listing(
    columns=(
        Column("HOST", lambda one: one.host),
        Column("GPU", lambda one: one.gpu),
        Column("BOARD", lambda one: one.board, drops=3),
        Column("PROFILE", lambda one: one.name),
        Column("TYPE", lambda one: one.profile.type_id, drops=4),
        Column(
            "FRAMEBUFFER",
            lambda one: one.profile.framebuffer_mib or None,
            unit=ColumnUnit.MIB,
            drops=1,
        ),
        Column("MOST", lambda one: one.profile.max_instances, drops=2),
        Column("CREATABLE", lambda one: one.profile.creatable),
        Column("HEADS", lambda one: one.display and one.display.heads, is_wide=True),
        Column("RESOLUTION", _resolution, is_wide=True),
        Column("PIXELS", lambda one: one.display and one.max_pixels, is_wide=True),
        Column("FPS", lambda one: one.display and one.display.frame_rate_limit, is_wide=True),
        Column("SEEN", lambda one: one.seen, key=lambda one: one.seen_at, unit=ColumnUnit.UTC, drops=5),
    ),
    name=lambda one: f"{one.host}/{one.gpu}/{one.name}",
    in_order=True,
    json=lambda one: one,
    empty="no vGPU type found",
)


@click.command("list-profiles")
@click.option("--creatable", is_flag=True, help="Only types that can be created now.")
@_LISTING.options
@options.many_hosts
@options.refresh
def command(creatable: bool, output: ListOutput, refresh: bool, **where: Any) -> None:
    """List the vGPU types of each GPU and how many more can be created.

    SEEN is when the host last showed the GPU. Heads, resolution and limit are the host's, else the catalogue's.
    """
    from vgpuctl.cli.forms.services import services_of_hosts

    surveys: list[Survey] = []
    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.host.list_profiles import list_profiles

        def read() -> "Sequence[ListedProfile]":
            profiles, seen = list_profiles(opened, refresh=refresh)
            surveys.append(seen)
            return [one for one in profiles if one.profile.creatable or not creatable]

        _LISTING.show(output, read)
    report_survey(surveys[-1])
