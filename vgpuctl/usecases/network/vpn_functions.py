# SPDX-License-Identifier: Apache-2.0
"""The network function of a VPN connection: a namespace with a WireGuard tunnel, where the tenant's gateway is."""

from collections.abc import Iterator

from vgpuctl.agent.wire.network_function import (
    FunctionCommand,
    FunctionFile,
    FunctionQuery,
    NetworkFunction,
    interface_of,
)
from vgpuctl.errors import StateError
from vgpuctl.guests.wireguard import routes_text, tunnel_text
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.vpc import Vpc
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.ovn.gateways import chassis_order
from vgpuctl.ovn.wireguard_keys import is_pair
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpn_keys import PRESHARED_KEY, PRIVATE_KEY, read_secrets

NEEDS = ("wg",)
_KIND = str(VpcKind.VPN_CONNECTION)


def vpn_places(vpc: Vpc) -> Iterator[FunctionPlace]:
    """One function for each VPN connection, on the first chassis of the tenant's gateway that is in service."""
    networks = {network.request.name: network for network in vpc.networks if not network.request.isolated}
    external = vpc.external_network
    order = [] if external is None else chassis_order(vpc.tenant, external.chassis, vpc.aside)
    for vpn in vpc.vpns if order else ():
        if vpn.network in networks and vpn.addresses:
            network = networks[vpn.network]
            yield FunctionPlace(_KIND, vpc.tenant, vpn.name, 1, network, vpn.addresses, order[0], vpn.prefixes)


def vpn_function(session: Session, vpc: Vpc, place: FunctionPlace) -> NetworkFunction:
    """What runs there: the kernel's tunnel, or wireguard-go where the kernel has none.

    Everything that differs between two VPN connections is in the files: the commands run again when these change.
    Raises StateError for keys that do not belong together, StoreUnusable without the store's key.
    """
    vpn = next(one for one in vpc.vpns if one.name == place.owner)
    secrets = read_secrets(session, vpc.tenant, vpn)
    private = secrets.get(PRIVATE_KEY, "")
    if not is_pair(private, vpn.public_key):
        raise StateError(
            f"the store has no private key for VPN connection {vpn.name} of tenant {vpc.tenant}",
            hint=f"`vgpuctl rotate-vpn-keys {vpn.name} --tenant {vpc.tenant}` makes another",
        )
    port, tunnel = place.port(vpc.mtu), interface_of(place.name, 1)
    files = [FunctionFile("wireguard.conf", tunnel_text(vpn, private, secrets.get(PRESHARED_KEY)), is_secret=True)]
    commands = [
        FunctionCommand(
            ("ip", "link", "add", "dev", tunnel, "type", "wireguard"),
            tolerates="File exists",
            otherwise=("wireguard-go", tunnel),
        ),
        FunctionCommand(("wg", "syncconf", tunnel, "{files}/wireguard.conf")),
    ]
    subnets = _subnets(vpc, place)
    for version in sorted({4, *(6 for one in port.addresses if ":" in one)}):
        text = routes_text(vpn, tunnel, port.interface, subnets, vpc.mtu, version=version)
        files.append(FunctionFile(f"routes{version}", text))
        commands.append(FunctionCommand(("ip", f"-{version}", "-batch", f"{{files}}/routes{version}")))
    queries = tuple(
        FunctionQuery(what, ("wg", "show", tunnel, what)) for what in ("endpoints", "latest-handshakes", "transfer")
    )
    return NetworkFunction(
        _KIND, (port,), tuple(files), tuple(commands), queries=queries, forwards=True, needs=NEEDS, links=(tunnel,)
    )


def _subnets(vpc: Vpc, place: FunctionPlace) -> list[tuple[str, str | None]]:
    """The tenant's routed networks, with the router to each; None for the one that the function's port is in."""
    routers = {
        subnet.version: gateway for subnet, gateway in zip(place.network.subnets, place.network.gateways, strict=True)
    }
    return [
        (str(subnet), None if network.id == place.network.id else routers[subnet.version])
        for network in vpc.networks
        if not network.request.isolated
        for subnet in network.subnets
        if subnet.version in routers
    ]
