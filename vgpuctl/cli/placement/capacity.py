# SPDX-License-Identifier: Apache-2.0
"""capacity: how many more fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonFailure, JsonOutput, WithFields, failures_json
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import print_line, print_table, say
from vgpuctl.cli.support.services import report_failures

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.capacity import Capacity


class JsonFailures(TypedDict):
    """failures: hosts that gave no answer."""

    failures: list[JsonFailure]


_JSON: "JsonOutput[WithFields[Capacity, JsonFailures]]" = JsonOutput()


@click.command("capacity")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="GPUs of each VM, as for create-vm: A40-8Q, 2*L40S-48Q, passthrough:H100; several times.",
)
@click.option("--vcpus", type=WholeRange(1, 512), default=2, show_default=True, help="Virtual CPUs of each VM.")
@click.option("--memory", default="2GiB", show_default=True, metavar="SIZE", help="Memory of each VM.")
@click.option("--hugepages", metavar="SIZE", help="Size of the huge pages behind its memory: 2MiB or 1GiB.")
@click.option(
    "--require-label", "required", multiple=True, metavar="KEY=VALUE", help="Only GPUs with this label; several times."
)
@click.option(
    "--guest-driver-version",
    "guest_driver",
    metavar="VERSION",
    help="NVIDIA driver in the guests, or its branch: hosts whose driver it cannot work with do not count.",
)
@click.option(
    "--vgpu-param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of their vGPUs; several times."
)
@click.option(
    "--for", "duration", metavar="DURATION", help="Running time of each VM (2h, 1d12h).  [default: until deleted]"
)
@options.tenant_of("Only hosts that this tenant may use; quotas are ignored.", required=False)
@click.option(
    "--after-defrag", is_flag=True, help="Also count the VMs that fit after a defragmentation, and list its moves."
)
@options.many_hosts
@options.refresh
@click.option("--all-refusals", "shows_all", is_flag=True, help="If none fits, show every refusal instead of groups.")
@options.as_json
def command(
    gpus: Sequence[str],
    vcpus: int,
    memory: str,
    hugepages: str | None,
    required: Sequence[str],
    guest_driver: str | None,
    params: Sequence[str],
    duration: str | None,
    tenant: str | None,
    after_defrag: bool,
    refresh: bool,
    shows_all: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Count the VMs of one kind that still fit, by host, with the rules of placing. Nothing is created.

    SEEN is when the host last answered.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.constraints import read_constraints
    from vgpuctl.model.guest_driver import GuestDriver
    from vgpuctl.model.guest_memory import parse_page_size
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_time, parse_duration
    from vgpuctl.model.units import parse_mib
    from vgpuctl.model.vgpu_params import parse_vgpu_param
    from vgpuctl.model.vm import VmRequest
    from vgpuctl.scheduler.refusals import summarise
    from vgpuctl.specs.vm_guest import DRIVER_VERSION
    from vgpuctl.usecases.placement.capacity import capacity

    known = None
    if guest_driver is not None:
        known = DRIVER_VERSION.parse(guest_driver, what="--guest-driver-version")
    request = VmRequest(
        name="capacity",
        tenant=tenant or "",
        gpus=tuple(read_gpu_request(text) for text in gpus),
        vcpus=vcpus,
        memory_mib=parse_mib(memory, what="--memory"),
        hugepages_kib=None if hugepages is None else parse_page_size(hugepages, what="--hugepages"),
        duration_s=None if duration is None else parse_duration(duration, what="--for"),
        constraints=read_constraints(required=required),
        guest_driver=GuestDriver(version=known),
        vgpu_params=tuple(sorted({parse_vgpu_param(one, what="--vgpu-param") for one in params})),
    )
    with services(**where) as opened:
        found = capacity(opened, request, after_defrag=after_defrag, refresh=refresh)
    if as_json:
        _JSON.print(WithFields(found, {"failures": failures_json(found.failures)}))
    else:
        then = f", {found.after_defrag} after {len(found.moves)} moves" if found.after_defrag is not None else ""
        backfill = f"; {found.backfill} more until what is reserved begins" if found.backfill else ""
        licences = "" if found.free_licences is None else f"; {counted(found.free_licences, 'licence')} for them free"
        print_line(f"{found.now} more fit{then}{backfill}{licences}")
        print_table(
            ["HOST", "NOW", "AFTER DEFRAG", "BACKFILL", "UNTIL (UTC)", "LEFT FOR ONE VM", "SEEN"],
            [
                (
                    one.host,
                    one.now,
                    one.after_defrag,
                    one.backfill or None,
                    None if one.backfill_until is None else format_time(one.backfill_until),
                    "; ".join(map(str, one.nodes)),
                    one.seen,
                )
                for one in found.hosts
            ],
            empty="no host was read",
        )
        whose = f"tenant {tenant}" if tenant else "no tenant, so hosts of every pool count"
        say(f"{whose}; quotas are not checked")
        for line in summarise(found.refusals, is_whole=shows_all):
            say(line)
        for move in found.moves:
            chosen = ", ".join(f"{one.profile} on {one.gpu}" for one in move.placement.shares)
            print_line(f"move {move.name} from {move.host} to {move.placement.host}: {chosen}")
    report_failures(found.failures, answered=len(found.hosts))
