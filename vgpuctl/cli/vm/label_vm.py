# SPDX-License-Identifier: Apache-2.0
"""label-vm: set and remove labels of VMs."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.errors import UsageError
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.labels import LabelChange
    from vgpuctl.usecases.vm.label_vm import LabelledVm


class JsonLabels(TypedDict):
    """The VMs with their labels. changed: True if one of them had others before."""

    changed: bool
    vms: "Sequence[LabelledVm]"


_JSON: "JsonOutput[JsonLabels]" = JsonOutput()


@click.command("label-vm")
@vms("Label", changes_labels=True)
@click.option("--overwrite", is_flag=True, help="Replace the value of a label that a VM has.")
@options.one_host
@options.as_json
def command(chosen: VmChoice, change: "LabelChange", overwrite: bool, as_json: bool, **where: Any) -> None:
    """Set or remove labels of VMs. KEY=VALUE sets one, KEY- removes it.

    Labels follow the rules of Kubernetes. `--selector` finds VMs by their labels, in list-vms and in every command that
    takes several VMs. Only the store is changed; a running VM goes on. VMs in the queue have labels too.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.vm.label_vm import describe_labels, label_vms

    if not change.set and not change.removed:
        raise UsageError("no label is named", hint="write KEY=VALUE to set a label, KEY- to remove it")
    is_one = chosen.is_one
    with services(**where) as opened:
        queued, chosen = chosen.queued(opened)
        found = [] if chosen.is_empty else [vm for vm, _leases in chosen.find(opened)]
        done = label_vms(opened, found, queued, change, overwrites=overwrite)
    for one in done:
        labels = describe_labels(tuple(one.labels.items()))
        say(f"{one.printed_name}: {'labels' if one.changed else 'no change, labels'} {labels}")
    if as_json:
        _JSON.print({"changed": any(one.changed for one in done), "vms": done})
    if not is_one:
        words = Counter("changed" if one.changed else "unchanged" for one in done)
        say(f"{counted(len(done), 'VM')}: " + (", ".join(f"{count} {word}" for word, count in words.items()) or "none"))
