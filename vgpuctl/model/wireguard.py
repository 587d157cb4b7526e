# SPDX-License-Identifier: Apache-2.0
"""How people write parts of a VPN connection: keys of WireGuard, the peer's endpoint, networks of the other site."""

import base64
import binascii
import ipaddress
import re

from vgpuctl.errors import UsageError
from vgpuctl.model.network import Subnet, read_subnet6
from vgpuctl.model.secret_text import SecretText

KEY_BYTES = 32
OVERHEAD = 80
"""Bytes of a packet in the tunnel beside its own: IPv6 40, UDP 8, WireGuard 32 (wg-quick(8) reckons so as well)."""
OUTER_MTU = 1500
"""What networks between two sites carry."""
_KEY_HINT = "`wg genkey | tee private | wg pubkey` prints a public key, `wg genpsk` a preshared one"
_LAST_PORT = 65535
_PORT = re.compile(r"[0-9]{1,5}")
_P = 2**255 - 19
# Orders 1, 2, 4 and 8 of Curve25519: with one of them every shared secret is zero. Source: RFC 7748, section 6.1, and
# the list of libsodium (x25519_ref10.c), here below 2^255.
_LOW_ORDER = {
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    _P - 1,
    _P,
    _P + 1,
}


def parse_public_key(text: str, *, what: str = "--peer-key") -> str:
    """Read the public key of a peer. Raises UsageError for what is no key, and for one with which nothing is secret."""
    key = _parse_key(text, what=what)
    number = int.from_bytes(base64.b64decode(key), "little") % 2**255
    if number in _LOW_ORDER:
        raise UsageError(f"{what} is a key of low order, with which everybody can read the tunnel", hint=_KEY_HINT)
    return key


def parse_preshared_key(text: str, *, what: str = "--preshared-key") -> SecretText:
    """Read a preshared key, which no message repeats. Raises UsageError."""
    key = _parse_key(text.strip(), what=what)
    if not any(base64.b64decode(key)):
        raise UsageError(f"{what} is all zeros, which is no secret", hint="`wg genpsk` prints one")
    return SecretText.of(key)


def _parse_key(text: str, *, what: str) -> str:
    """Read a key, which no message repeats: it may be a private one in the wrong place."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    # wg(8) takes the canonical form alone.
    if len(content) != KEY_BYTES or base64.b64encode(content).decode() != text:
        raise UsageError(f"{what} is not a key of WireGuard: {KEY_BYTES} bytes in base64", hint=_KEY_HINT)
    return text


def parse_endpoint(text: str, *, what: str = "--endpoint") -> str:
    """Read `198.51.100.7:51820` or `[2001:db8::7]:51820`. Raises UsageError."""
    hint = "write an address, no name, and a port of UDP: 198.51.100.7:51820 or [2001:db8::7]:51820"
    host, colon, port = text.rpartition(":")
    is_six = host.startswith("[") and host.endswith("]")
    if not colon or not _PORT.fullmatch(port) or not 1 <= int(port) <= _LAST_PORT:
        raise UsageError(f"{what} {text[:60]!a} is not an address with a port", hint=hint)
    try:
        address = ipaddress.IPv6Address(host[1:-1]) if is_six else ipaddress.IPv4Address(host)
    except ValueError as error:
        raise UsageError(f"{what} {text[:60]!a}: {error}", hint=hint) from error
    is_zoned = isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped)
    if is_zoned or _unusable(ipaddress.ip_network(str(address).partition("%")[0])):
        raise UsageError(f"{what} {text[:60]!a} cannot be the address of a host that is reached", hint=hint)
    return f"[{address}]:{int(port)}" if is_six else f"{address}:{int(port)}"


def endpoint_address(endpoint: str) -> str:
    """The address of an endpoint, as `parse_endpoint` gives it."""
    return endpoint.rpartition(":")[0].strip("[]")


def parse_prefix(text: str, *, what: str = "--peer-prefix") -> str:
    """Read a network of the other site. Raises UsageError for what no site can have."""
    hint = "write networks of the other site, such as 192.168.10.0/24 or fd00:10::/64"
    try:
        subnet: Subnet = read_subnet6(text) if ":" in text else ipaddress.IPv4Network(text)
    except ValueError as error:
        try:
            hint = f"did you mean {ipaddress.ip_network(text, strict=False)}?"
        except ValueError:
            pass  # More is wrong than bits of the host.
        raise UsageError(f"{what} {text[:60]!a} is not a network: {error}", hint=hint) from error
    if subnet.prefixlen == 0:
        raise UsageError(
            f"{what} {text}: every address would be the other site's, also that of the peer itself", hint=hint
        )
    if why := _unusable(subnet):
        raise UsageError(f"{what} {text}: no site can have {why}", hint=hint)
    return str(subnet)


def _unusable(subnet: Subnet) -> str | None:
    """Why no host of another site can have an address of a network, None where one can."""
    closed = (
        ("0.0.0.0/8", "addresses of this network"),
        ("127.0.0.0/8", "loopback addresses"),
        ("169.254.0.0/16", "link-local addresses"),
        ("224.0.0.0/4", "multicast addresses"),
        ("240.0.0.0/4", "reserved addresses"),
        ("::/8", "loopback, mapped or unspecified addresses"),
        ("fe80::/10", "link-local addresses"),
        ("ff00::/8", "multicast addresses"),
    )
    for written, words in closed:
        other = ipaddress.ip_network(written)
        if type(other) is type(subnet) and other.overlaps(subnet):
            return words
    return None


def tunnel_mtu_of(inner_mtu: int) -> int:
    """The MTU of a tunnel whose packets leave by a port with this MTU."""
    return min(inner_mtu, OUTER_MTU) - OVERHEAD
