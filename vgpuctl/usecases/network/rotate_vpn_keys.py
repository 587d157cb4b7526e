# SPDX-License-Identifier: Apache-2.0
"""rotate-vpn-keys: a new key of our side of a VPN connection, and on request all that the other side needs."""

from dataclasses import dataclass, field, replace

from vgpuctl.errors import UsageError
from vgpuctl.guests.wireguard import peer_text
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.wireguard_keys import new_keys
from vgpuctl.specs.vpc_objects import KIND_OF
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpc_changes import Decision, change_objects
from vgpuctl.usecases.network.vpc_objects import find_object
from vgpuctl.usecases.network.vpn_keys import PRESHARED_KEY, read_secrets
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class RotatedKeys:
    """The public keys of both sides now. configuration: of the peer, with its private key, which nobody else has."""

    tenant: str
    name: str
    public_key: str
    peer_key: str
    configuration: str | None = field(default=None, repr=False)


def rotate_vpn_keys(services: Services, tenant: str, name: str, *, makes_peer: bool) -> RotatedKeys:
    """Replace the key of our side. makes_peer: that of the other side too, whose private key is only returned.

    Raises NotFound, and UsageError for a new key of a peer whose public key was given.
    """
    made: list[RotatedKeys] = []

    def decide(session: Session) -> Decision:
        there = find_object(session, tenant, KIND_OF[VpcKind.VPN_CONNECTION], name)
        assert isinstance(there, VpnConnection)
        if makes_peer and there.peer_key is not None:
            raise UsageError(
                f"the other side of VPN connection {name} of tenant {tenant} has made its key itself",
                hint="leave --peer out, and set its new key with `vgpuctl set-vpn-connection --peer-key`",
            )
        own, peer = new_keys(), new_keys() if makes_peer else None
        made_peer_key = there.made_peer_key if peer is None else peer.public
        private = SecretText.of(own.private)
        changed = replace(there, private_key=private, public_key=own.public, made_peer_key=made_peer_key)
        text = None
        if peer is not None:
            networks = [one for one in carried(session, tenant) if not one.request.isolated]
            subnets = tuple(str(subnet) for network in networks for subnet in network.subnets)
            preshared = read_secrets(session, tenant, there).get(PRESHARED_KEY)
            text = peer_text(tenant, changed, peer.private, preshared, subnets, tunnel_mtu(session))
        made[:] = [RotatedKeys(tenant, name, changed.public_key, changed.peer, text)]
        return Decision((changed,))

    change_objects(services, tenant, decide)
    return made[0]
