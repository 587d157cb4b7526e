# SPDX-License-Identifier: Apache-2.0
"""capacity: how many more fit."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.options.vm_options import read_requests
from vgpuctl.cli.shown.json_output import JsonFailure, JsonOutput, WithFields, failures_json
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.specs.vm import VM

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.capacity import Capacity


class JsonFailures(TypedDict):
    """failures: hosts that gave no answer."""

    failures: list[JsonFailure]


_JSON: "JsonOutput[WithFields[Capacity, JsonFailures]]" = JsonOutput()


@click.command("capacity")
@field_options(VM)
@click.option(
    "--after-defrag", is_flag=True, help="Also count the VMs that fit after a defragmentation, and list its moves."
)
@options.many_hosts
@options.refresh
@click.option("--all-refusals", "shows_all", is_flag=True, help="If none fits, show every refusal instead of groups.")
@options.as_json
def command(after_defrag: bool, refresh: bool, shows_all: bool, as_json: bool, **given: Any) -> None:
    """Count the VMs of one kind that still fit, by host. The rules are those of placing. Nothing is created.

    The options are those of create-vm. With a tenant its pools, quotas and licences count. SEEN is when the host last
    answered.
    """
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.model.times import format_time
    from vgpuctl.scheduler.refusals import summarise
    from vgpuctl.usecases.placement.capacity import capacity

    where = take_service_options(given)
    (request,) = read_requests(file=None, name=None, **given, is_hypothetical=True)
    with services(**where) as opened:
        found = capacity(opened, request, after_defrag=after_defrag, refresh=refresh)
    if as_json:
        _JSON.print(WithFields(found, {"failures": failures_json(found.failures)}))
    else:
        print_line(_summary(found))
        print_table(
            ["HOST", "NOW", "AFTER DEFRAG", "BACKFILL", "UNTIL (UTC)", "LEFT FOR ONE VM", "SEEN"],
            [
                (
                    one.host,
                    one.now,
                    one.after_defrag,
                    one.backfill or None,
                    None if one.backfill_until is None else format_time(one.backfill_until),
                    "; ".join(map(str, one.cells)),
                    one.seen,
                )
                for one in found.hosts
            ],
            empty="no host was read",
            drops={"LEFT FOR ONE VM": 0, "UNTIL (UTC)": 1, "BACKFILL": 2, "SEEN": 3},
        )
        if request.tenant:
            limits = ", ".join(f"{name} allows {count} more" for name, count in sorted(found.quota.items()))
            say(f"tenant {request.tenant}: {limits or 'no quota limits them'}")
        else:
            say("no tenant, so hosts of every pool count; quotas are not checked")
        if found.not_looked_at:
            say(f"not looked at: whether the hosts have {', '.join(found.not_looked_at)}")
        for line in summarise(found.refusals, is_whole=shows_all):
            say(line)
        for move in found.moves:
            chosen = ", ".join(f"{one.profile} on {one.gpu}" for one in move.placement.shares)
            print_line(f"move {move.name} from {move.host} to {move.placement.host}: {chosen}")
    report_failures(found.failures, answered=len(found.hosts))


def _summary(found: "Capacity") -> str:
    """How many fit, in one line: what limits them beside the hosts is named."""
    from vgpuctl.model.plural import counted

    then = f", {found.after_defrag} after {len(found.moves)} moves" if found.after_defrag is not None else ""
    backfill = f"; {found.backfill} more until what is reserved begins" if found.backfill else ""
    licences = "" if found.free_licences is None else f"; {counted(found.free_licences, 'licence')} for them free"
    room = "" if found.now == found.hosts_take else f"; the hosts have room for {found.hosts_take}"
    return f"{found.now} more fit{then}{backfill}{licences}{room}"
