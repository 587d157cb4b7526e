# SPDX-License-Identifier: Apache-2.0
"""gc: list leftovers, ask, remove them."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import confirm, print_table, say
from vgpuctl.errors import PartialFailure

if TYPE_CHECKING:
    from vgpuctl.usecases.found.garbage import Garbage

_KINDS = ("domain", "volume", "network", "vgpu", "ovn", "guest-state", "function")


class JsonOutcome(TypedDict):
    """outcome: what became of it."""

    outcome: str


_JSON: "JsonOutput[list[WithFields[Garbage, JsonOutcome]]]" = JsonOutput()


@click.command("gc")
@click.option(
    "--kind",
    "chosen",
    multiple=True,
    type=click.Choice(_KINDS),
    help="Kind of leftover to look for; several times.  [default: all but vgpu and function]",
)
@options.yes
@options.dry_run
@options.inventory
@options.limit
@options.forks
@options.database
@options.ssh
@options.as_json
def command(chosen: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Remove leftovers on hosts and in OVN that the store does not know. They are shown first.

    Leftovers are domains of the store's tenants that are off, their disks, seeds and libvirt networks, OVN rows without
    an owner, and UEFI variables and TPMs of VMs that are on another host. Running domains, devices in use, foreign
    objects and those of another store's tenants stay. Idle vGPUs and network functions carry no owner's name, so only
    --kind vgpu and --kind function look for them. `repair` handles objects of the store.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.garbage import GarbageKind
    from vgpuctl.usecases.maintenance.gc import USUAL_KINDS, GarbageOutcome, find_garbage, take_away

    kinds = frozenset(map(GarbageKind, chosen)) or USUAL_KINDS
    with services(**where) as opened:
        search = find_garbage(opened, kinds)
        going = [garbage for garbage in search.found if garbage.left is None]
        outcomes = tuple(
            GarbageOutcome(one, "would be deleted" if one.left is None else f"left alone: {one.left}")
            for one in search.found
        )
        if going and not dry_run:
            if not yes:
                for one in going:
                    say(f"{one.host}: {one.kind} {one.name}: {one.why}")
                confirm(f"Delete these {len(going)} for good?")
            outcomes = take_away(opened, search.found, kinds)
    if as_json:
        _JSON.print([WithFields(one.garbage, {"outcome": one.outcome}) for one in outcomes])
    elif outcomes or not search.failures:
        print_table(
            ["HOST", "KIND", "NAME", "FOUND", "OUTCOME"],
            [(one.garbage.host, one.garbage.kind, one.garbage.name, one.garbage.why, one.outcome) for one in outcomes],
            empty="there is nothing that the store does not know",
        )
    failed = [error.line_of(host) for host, error in search.failures]
    failed += [f"{one.garbage.host}: {one.outcome}" for one in outcomes if one.outcome.startswith("failed")]
    if failed:
        raise PartialFailure(
            "not everything could be checked and deleted",
            context=failed,
            hint="repair the host, then run `vgpuctl gc` again",
        )
