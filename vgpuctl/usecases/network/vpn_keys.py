# SPDX-License-Identifier: Apache-2.0
"""The keys of VPN connections: made once, sealed in the store, read where a tunnel is made."""

import json
from dataclasses import replace

from vgpuctl.errors import UsageError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import printed_name
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.wireguard_keys import new_keys
from vgpuctl.store.store import Session

PRIVATE_KEY, PRESHARED_KEY = "private_key", "preshared_key"


def with_keys(session: Session, tenant: str, wanted: VpnConnection) -> VpnConnection:
    """The VPN connection with the keys that it brings along, else those of the store, else a new key of our side.

    What is new of its secrets is sealed. Raises UsageError for a peer with our own key, StoreUnusable without the
    store's key where secrets change.
    """
    there = next((one for one in session.vpc_objects(tenant, VpnConnection) if one.key == wanted.key), None)
    if wanted.private_key is None or not wanted.private_key.has_content():
        if there is None:
            made = new_keys()
            wanted = replace(wanted, private_key=SecretText.of(made.private), public_key=made.public)
        else:
            peer = wanted.made_peer_key or there.made_peer_key
            wanted = replace(wanted, private_key=there.private_key, public_key=there.public_key, made_peer_key=peer)
    if wanted.peer_key is not None:
        wanted = replace(wanted, made_peer_key="")
    if wanted.peer_key == wanted.public_key:
        raise UsageError(
            f"the peer of VPN connection {wanted.name} of tenant {tenant} has our own public key",
            hint="give the public key of the other site",
        )
    _seal(session, tenant, there, wanted)
    if there is not None and there.public_key != wanted.public_key:
        session.add_event(
            EventKind.VPN_KEYS_ROTATED,
            printed_name(tenant, wanted.name),
            tenant=tenant,
            before={"public_key": there.public_key, "peer_key": there.peer},
            after={"public_key": wanted.public_key, "peer_key": wanted.peer},
        )
    return wanted


def read_secrets(session: Session, tenant: str, vpn: VpnConnection) -> dict[str, str]:
    """The secrets of a VPN connection, by what they are; none of a new one. Raises StoreUnusable without the key."""
    sealed = session.object_secret(tenant, vpn.kind, vpn.name)
    found: dict[str, str] = {} if sealed is None else json.loads(sealed.reveal())
    return found


def _seal(session: Session, tenant: str, there: VpnConnection | None, wanted: VpnConnection) -> None:
    """Seal what differs of the secrets of a VPN connection."""
    changed: dict[str, str | None] = {}
    for name in (PRIVATE_KEY, PRESHARED_KEY):
        before, after = None if there is None else getattr(there, name), getattr(wanted, name)
        if before != after:
            changed[name] = None if after is None else after.reveal()
    if changed:
        secrets = {**({} if there is None else read_secrets(session, tenant, wanted)), **changed}
        text = json.dumps({name: one for name, one in secrets.items() if one is not None}, sort_keys=True)
        session.set_object_secret(tenant, wanted.kind, wanted.name, SecretText.of(text))
