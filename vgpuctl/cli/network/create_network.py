# SPDX-License-Identifier: Apache-2.0
"""create-network: a network for a tenant's VMs."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.specs.network import NETWORK, read_network_flags

if TYPE_CHECKING:
    from vgpuctl.model.network import Network


class JsonNetworkChange(TypedDict):
    """A network; changed: false if it was there already."""

    changed: bool
    network: "Network"


_JSON: "JsonOutput[JsonNetworkChange]" = JsonOutput()


@click.command("create-network")
@click.argument("name")
@options.network_tenant
@field_options(NETWORK, are_required=True)
@options.dry_run
@options.inventory
@options.limit
@options.database
@options.ssh
@options.as_json
def command(
    name: str,
    tenant: str,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a network for a tenant's VMs.

    VMs join it with `create-vm --network NAME` and get fixed addresses.

    Run the command again to finish an interrupted run; otherwise it changes nothing.
    """
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.model.network import Backend
    from vgpuctl.usecases.network.create_network import create_network

    with services(rehearses=dry_run, **take_service_options(given)) as opened:
        default = Backend.OVN if opened.has_northbound else Backend.LIBVIRT
        request = read_network_flags(name, tenant, given, default_backend=default)
        created = create_network(opened, request)
    if as_json:
        _JSON.print({"changed": created.changed and not dry_run, "network": created.network})
    elif not created.changed:
        say(f"{created.network.printed_name}: no change")
    elif dry_run:
        request = created.network.request
        say(f"{created.network.printed_name}: {request.cidr} by {request.backend} would be created")
