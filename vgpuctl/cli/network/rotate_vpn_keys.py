# SPDX-License-Identifier: Apache-2.0
"""rotate-vpn-keys: replace the keys of a VPN connection."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, say

if TYPE_CHECKING:
    from vgpuctl.usecases.network.rotate_vpn_keys import RotatedKeys

_JSON: "JsonOutput[RotatedKeys]" = JsonOutput()


@click.command("rotate-vpn-keys")
@click.argument("name")
@options.tenant_of("Tenant whose VPN connection it is.")
@click.option("--peer", "makes_peer", is_flag=True, help="Make the other site's key too, and print its configuration.")
@options.one_host
@options.as_json
def command(name: str, tenant: str, makes_peer: bool, as_json: bool, **where: Any) -> None:
    """Replace the keys of a VPN connection. The tunnel is down until the other site has the new public key.

    With --peer the other site gets a new key as well: its complete configuration for wg-quick is printed once, and
    its private key is kept nowhere. Refused where the other site's key was given with --peer-key.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.network.rotate_vpn_keys import rotate_vpn_keys

    with services(**where) as opened:
        rotated = rotate_vpn_keys(opened, tenant, name, makes_peer=makes_peer)
    if as_json:
        _JSON.print(rotated)
        return
    say(f"VPN connection {tenant}/{name}: changed, our public key is {rotated.public_key}")
    if rotated.configuration is not None:
        print_document(rotated.configuration, nl=False)
