# SPDX-License-Identifier: Apache-2.0
"""detach-nic: detach a network interface from a VM."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.vm.attach_nic import NicChange


_JSON: "JsonOutput[NicChange]" = JsonOutput()


@click.command("detach-nic")
@click.argument("name")
@click.argument("network")
@options.tenant
@click.option("--mac", metavar="ADDRESS", help="MAC address of the interface, where the VM has several in NETWORK.")
@click.option("--last", is_flag=True, help="Detach it even if the VM has no other interface.")
@options.seconds("timeout", 20.0, "Seconds for the running guest to release the interface.")
@options.one_host
@options.as_json
def command(
    name: str,
    network: str,
    tenant: str,
    mac: str | None,
    last: bool,
    timeout_s: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Detach a network interface from a VM.

    A running guest is asked, and releases it later: until then the interface keeps its address. The same command again
    asks again; when the VM stops, the interface is gone.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.guests.live.domain import LiveChange
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.detach_nic import detach_nic

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        lower = None if mac is None else mac.lower()
        done = detach_nic(opened, vm, network, mac=lower, may_be_last=last, timeout_s=timeout_s)
    if as_json:
        _JSON.print(done)
        return
    pending = "is pending: the guest has not released it; run the command again, or stop the VM"
    said = pending if done.outcome is LiveChange.PENDING else "detached"
    say(f"{done.vm}: interface {done.mac_address} in {done.network} {said}")
