# SPDX-License-Identifier: Apache-2.0
"""list-partitions: the partitions of the hosts' NVSwitch fabrics."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_survey
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import WithFields
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vgpuctl.scheduler.partition_states import PartitionView
    from vgpuctl.usecases.host.list_partitions import ListedPartition, Partitions
    from vgpuctl.usecases.observed.survey import Survey

_COLOURS = {"stray": "red", "broken": "red", "blocked": "yellow"}
_NAMED = 3


class JsonSeen(TypedDict):
    """seen: when its host last answered, in words; seen_at: the same in seconds since the epoch, UTC."""

    seen: str
    seen_at: float | None


def _json(one: "ListedPartition") -> "WithFields[PartitionView, JsonSeen]":
    return WithFields(one.partition, JsonSeen(seen=one.seen, seen_at=one.observation.at))


_LISTING: "Listing[ListedPartition, WithFields[PartitionView, JsonSeen]]" = Listing(
    columns=(
        Column("HOST", lambda one: one.partition.host),
        Column("PARTITION", lambda one: one.partition.number),
        Column("GPUS", lambda one: len(one.partition.gpus), drops=1),
        Column("MODULES", lambda one: ", ".join(str(gpu.module) for gpu in one.partition.gpus)),
        Column(
            "STATE", lambda one: str(one.partition.state), colour=lambda one: _COLOURS.get(str(one.partition.state))
        ),
        Column("VM", lambda one: one.partition.vm),
        Column("REASON", lambda one: one.partition.why, is_text=True, drops=2),
        Column("ADDRESSES", lambda one: tuple(gpu.address for gpu in one.partition.gpus), is_wide=True),
        Column("SEEN", lambda one: one.seen, key=lambda one: one.observation.at, unit=ColumnUnit.UTC, drops=3),
    ),
    name=lambda one: f"{one.partition.host}/{one.partition.number}",
    json=_json,
    empty="no partition found",
)


@click.command("list-partitions")
@click.option("--free", is_flag=True, help="Only partitions that a VM can have.")
@options.many_hosts
@options.refresh
@_LISTING.options
def command(free: bool, refresh: bool, output: ListOutput, **where: Any) -> None:
    """List the partitions of NVSwitch fabrics, their GPUs and VMs.

    Hosts whose Fabric Manager has FABRIC_MODE 1 or 2 have partitions (docs/placement.md). A partition is `active` for a
    VM, `free`, `blocked` by what its GPUs are used for, `broken` by lost NVLinks, or `stray`: active without a VM.
    MODULES are the numbers of the GPUs on their baseboard; `-o wide` has their addresses.
    """
    from vgpuctl.cli.forms.services import services_of_hosts

    found: list[tuple[Partitions, Survey]] = []
    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.host.list_partitions import list_partitions

        def read() -> "Sequence[ListedPartition]":
            found.append(list_partitions(opened, refresh=refresh))
            return [one for one in found[-1][0].listed if not free or one.partition.state == "free"]

        _LISTING.show(output, read)
    partitions, seen = found[-1]
    if output.is_for_people() and not partitions.listed:
        _say_why(partitions.without)
    report_survey(seen)


def _say_why(without: "Mapping[str, str]") -> None:
    """Say why no host has a partition, each reason once."""
    from vgpuctl.model.natural_order import natural
    from vgpuctl.model.plural import counted

    for reason in sorted(set(without.values())):
        hosts = sorted((name for name, why in without.items() if why == reason), key=natural)
        named = ", ".join(hosts) if len(hosts) <= _NAMED else counted(len(hosts), "host")
        say(f"{named}: {reason}")
