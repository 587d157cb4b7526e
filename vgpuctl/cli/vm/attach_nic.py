# SPDX-License-Identifier: Apache-2.0
"""attach-nic: attach a network interface to a VM."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.model.nic import NicModel, NicRequest

if TYPE_CHECKING:
    from vgpuctl.usecases.vm.attach_nic import NicChange


_JSON: "JsonOutput[NicChange]" = JsonOutput()


@click.command("attach-nic")
@click.argument("name")
@click.argument("network")
@options.tenant
@click.option(
    "--model",
    type=click.Choice([model.value for model in NicModel]),
    help="Model of the interface; as the operating system's profile says without it.",
)
@click.option(
    "--security-group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Security group of the tenant, in an OVN network; may be given several times.",
)
@click.option(
    "--bandwidth",
    type=WholeRange(1, 400_000),
    metavar="MBIT/S",
    help="Limit of its bandwidth in each direction, in Mbit/s.",
)
@click.option("--another", is_flag=True, help="Attach one more to a network in which the VM has an interface already.")
@options.one_host
@options.as_json
def command(
    name: str,
    network: str,
    tenant: str,
    model: str | None,
    groups: tuple[str, ...],
    bandwidth: int | None,
    another: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Attach a network interface to a VM, running or not. NETWORK is one of the tenant or of the VM's host.

    A running guest gets it at once on a spare port, where it has one (`--spare-ports` of create-vm), else at its next
    start. A VM that has an interface in NETWORK gets no other one without --another.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.guests.live.domain import LiveChange
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.attach_nic import attach_nic

    nic = NicRequest(network, None if model is None else NicModel(model), groups, bandwidth)
    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = attach_nic(opened, vm, nic, is_another=another)
    if as_json:
        _JSON.print(done)
        return
    addresses = f" with address {', '.join(done.addresses)}" if done.addresses else ""
    what = f"{done.vm}: interface {done.mac_address} in {done.network}{addresses}"
    said = "attached" if done.changed else "no change, it is attached"
    waits = "; the guest gets it at its next start" if done.outcome is LiveChange.NEXT_START else ""
    say(f"{what}: {said}{waits}")
