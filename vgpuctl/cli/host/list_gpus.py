# SPDX-License-Identifier: Apache-2.0
"""list-gpus: the GPUs of all hosts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.services import report_survey
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.model.plural import counted
from vgpuctl.model.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpuctl.usecases.host.list_gpus import GpuMemory, ListedGpu
    from vgpuctl.usecases.observed.survey import Survey


def _leases(listed: "ListedGpu") -> Iterator[str]:
    """Who has what, with the parameters of its vGPU where it has any."""
    from vgpuctl.sharing.kinds import params_found

    for lease in listed.leases:
        params = params_found(lease.share, listed.gpu)
        yield f"{lease.tenant}/{lease.vm_name}:{lease.share.profile}" + (f" ({params})" if params else "")


def _problems(listed: "ListedGpu") -> Iterator[str]:
    """The GPU's problems, then those of its host."""
    yield from listed.gpu.problems
    if listed.observation.unknown_since is not None:
        yield f"host: no answer: {listed.observation.problem}"
    elif listed.libvirt_problem is not None:
        yield f"libvirt: {listed.libvirt_problem}"
    if listed.layout_differences:
        yield f"layout: {counted(len(listed.layout_differences), 'difference')}"


def _closed(listed: "ListedGpu") -> tuple[str, ...] | None:
    whole = [] if listed.closed is None else [f"{listed.closed.code}: {listed.closed.reason}"]
    return (*whole, *listed.closed_vfs.values()) or None


def _health(listed: "ListedGpu") -> tuple[str, ...] | None:
    if listed.observation.state == "missing":
        return ("missing",)
    if listed.observation.unknown_since is not None:
        return ("unknown",)
    if listed.health is None:
        return None
    return tuple(dict.fromkeys(one.code for one in listed.health)) or ("ok",)


def _health_in_line(listed: "ListedGpu") -> str | None:
    codes = _health(listed)
    return None if codes is None else ", ".join(codes)


def _colour(listed: "ListedGpu") -> str | None:
    if listed.health or any(_problems(listed)) or listed.observation.state == "missing":
        return "red"
    return None if listed.closed is None else "yellow"


def _memory(heading: str, of: "Callable[[GpuMemory], int]", drops: int = 0) -> "Column[ListedGpu]":
    """A column of a part of the memory, with its share of the whole."""

    def cell(listed: "ListedGpu") -> str | None:
        memory = listed.memory
        if memory is None:
            return None
        part = of(memory)
        share = "" if heading == "MEMORY" or not memory.total_mib else f" {part / memory.total_mib:.0%}"
        return format_mib(part) + share

    return Column(
        heading,
        cell,
        key=lambda one: None if one.memory is None else of(one.memory),
        unit=ColumnUnit.MIB,
        drops=drops,
    )


def _power_limit(listed: "ListedGpu") -> str | None:
    tuning = listed.gpu.tuning
    return None if tuning is None or tuning.power_limit_mw is None else f"{tuning.power_limit_mw / 1000:g} W"


_LISTING: "Listing[ListedGpu, ListedGpu]" = Listing(
    columns=(
        Column("HOST", lambda one: one.host),
        Column("GPU", lambda one: one.gpu.address),
        Column("BOARD", lambda one: one.board, is_text=True),
        Column("DECLARED", lambda one: one.declared, drops=4),
        _memory("MEMORY", lambda one: one.total_mib, drops=2),
        _memory("USED", lambda one: one.used_mib, drops=1),
        _memory("FREE", lambda one: one.free_mib),
        Column("LARGEST", lambda one: one.memory and one.memory.largest, is_wide=True),
        Column("HEALTH", _health, key=_health_in_line, colour=_colour),
        Column("CLOSED", _closed, is_text=True, is_rare=True),
        Column("PROBLEMS", lambda one: tuple(_problems(one)) or None, is_text=True, is_rare=True, drops=3),
        Column("LEASES", lambda one: tuple(_leases(one)) or None, drops=6),
        Column(
            "SEEN", lambda one: one.seen, key=lambda one: one.observation.at, unit=ColumnUnit.UTC, is_text=True, drops=5
        ),
        Column("SHARING", lambda one: ",".join(one.gpu.sharing) or None, drops=7),
        Column("DRIVER", lambda one: one.gpu.driver, drops=8),
        Column("VFS", lambda one: f"{len(one.gpu.vfs)}/{one.gpu.total_vfs}" if one.gpu.total_vfs else None, drops=9),
        Column("NUMA", lambda one: one.gpu.numa_node, drops=10),
        Column(
            "POWER LIMIT", _power_limit, key=lambda one: one.gpu.tuning and one.gpu.tuning.power_limit_mw, is_wide=True
        ),
        Column("UUID", lambda one: one.gpu.uuid, is_wide=True),
    ),
    name=lambda one: f"{one.host}/{one.gpu.address}",
    json=lambda one: one,
    empty="no GPU found",
)


@click.command("list-gpus")
@click.option("--free", is_flag=True, help="Only GPUs that can still take a VM.")
@options.many_hosts
@options.refresh
@_LISTING.options
def command(free: bool, refresh: bool, output: ListOutput, **where: Any) -> None:
    """List the GPUs of all hosts with their memory and problems. Also how they can be shared, and what is promised of
    them.

    DECLARED is the kind of the GPU's entry in the declared layout. SEEN is when the host last showed the GPU. A GPU
    that its host no longer shows is `missing` for a week.
    """
    from vgpuctl.cli.forms.services import services_of_hosts

    surveys: list[Survey] = []
    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.host.list_gpus import list_gpus

        def read() -> "Sequence[ListedGpu]":
            gpus, seen = list_gpus(opened, refresh=refresh)
            surveys.append(seen)
            return [one for one in gpus if _is_free(one)] if free else gpus

        _LISTING.show(output, read)
    report_survey(surveys[-1])


def _is_free(listed: "ListedGpu") -> bool:
    gpu = listed.gpu
    return (
        not gpu.problems
        and listed.observation.state != "missing"
        and listed.libvirt_problem is None
        and listed.closed is None
        and (any(type_.creatable for type_ in gpu.types) or bool(gpu.sharing and not listed.leases))
    )
