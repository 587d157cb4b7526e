# SPDX-License-Identifier: Apache-2.0
"""What a WireGuard tunnel is made from: the files of wg(8) for both sides, and those of ip(8) for our side's routes."""

from collections.abc import Sequence

from vgpuctl.guests.templating import render_template
from vgpuctl.model.network import is_ipv6
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.model.wireguard import tunnel_mtu_of


def tunnel_text(vpn: VpnConnection, private_key: str, preshared_key: str | None) -> str:
    """The file of wg(8) for our side."""
    return render_template("wireguard.conf.j2", vpn=vpn, private_key=private_key, preshared_key=preshared_key)


def peer_text(
    tenant: str,
    vpn: VpnConnection,
    private_key: str,
    preshared_key: str | None,
    subnets: Sequence[str],
    inner_mtu: int,
) -> str:
    """The file of wg-quick(8) for the other side. private_key: of it. subnets: the tenant's."""
    address = vpn.external_address6 if is_ipv6(vpn.address) else vpn.external_address
    versions = {is_ipv6(one) for one in vpn.addresses}
    return render_template(
        "wireguard-peer.conf.j2",
        tenant=tenant,
        vpn=vpn,
        private_key=private_key,
        preshared_key=preshared_key,
        subnets=[one for one in subnets if is_ipv6(one) in versions],
        endpoint=f"[{address}]:{vpn.port}" if is_ipv6(address) else f"{address}:{vpn.port}",
        mtu=tunnel_mtu_of(inner_mtu),
    )


def routes_text(
    vpn: VpnConnection,
    tunnel: str,
    interface: str,
    subnets: Sequence[tuple[str, str | None]],
    inner_mtu: int,
    *,
    version: int,
) -> str:
    """Lines of `ip -batch` for one IP version: what is forwarded between the tunnel and the tenant's networks.

    tunnel: its interface. interface: the port in the tenant's VPC. subnets: the tenant's networks, with the router to
    each; None for the one that the port is in.
    """
    return render_template(
        "wireguard-routes.j2",
        tunnel=tunnel,
        interface=interface,
        mtu=tunnel_mtu_of(inner_mtu),
        prefixes=[one for one in vpn.prefixes if is_ipv6(one) == (version == 6)],
        subnets=[one for one in subnets if is_ipv6(one[0]) == (version == 6)],
    )
