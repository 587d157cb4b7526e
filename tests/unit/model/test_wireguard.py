# SPDX-License-Identifier: Apache-2.0
"""Parts of a VPN connection as people write them; nothing that they write wrongly is repeated if it may be a secret."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.wireguard import (
    endpoint_address,
    parse_endpoint,
    parse_prefix,
    parse_preshared_key,
    parse_public_key,
    tunnel_mtu_of,
)

KEY = "fE/wdxzl0klVp/IR8UcaoGUMjqaWi3jAd7KzHKFS6Ds="


def _key(number: int) -> str:
    return base64.b64encode(number.to_bytes(32, "little")).decode()


GOOD: tuple[tuple[Callable[..., Any], str, object], ...] = (
    (parse_public_key, KEY, KEY),
    (parse_preshared_key, f"{KEY}\n", SecretText.of(KEY)),
    (parse_endpoint, "198.51.100.7:51820", "198.51.100.7:51820"),
    (parse_endpoint, "198.51.100.7:00007", "198.51.100.7:7"),
    (parse_endpoint, "[2001:DB8::7]:51820", "[2001:db8::7]:51820"),
    (parse_prefix, "192.168.10.0/24", "192.168.10.0/24"),
    (parse_prefix, "192.168.10.7", "192.168.10.7/32"),
    (parse_prefix, "FD00:10::/64", "fd00:10::/64"),
)
BAD: tuple[tuple[Callable[..., Any], str, str], ...] = (
    (parse_public_key, "", "not a key of WireGuard"),
    (parse_public_key, "not-base64!", "not a key of WireGuard"),
    (parse_public_key, KEY[:-1], "not a key of WireGuard"),
    (parse_public_key, f" {KEY}", "not a key of WireGuard"),
    (parse_public_key, base64.b64encode(b"x" * 31).decode(), "not a key of WireGuard"),
    (parse_public_key, base64.b64encode(b"x" * 33).decode(), "not a key of WireGuard"),
    (parse_public_key, f"{KEY[:-2]}t=", "not a key of WireGuard"),  # wg(8) takes no key with bits behind its end
    (parse_public_key, f"{KEY}\nEndpoint = 192.0.2.1:1", "not a key of WireGuard"),
    (parse_public_key, _key(0), "low order"),
    (parse_public_key, _key(1), "low order"),
    (parse_public_key, _key(2**255 - 20), "low order"),
    (parse_public_key, _key(2**255 + 1), "low order"),
    (parse_preshared_key, _key(0), "all zeros"),
    (parse_preshared_key, f"{KEY}{KEY}", "not a key of WireGuard"),
    (parse_endpoint, "vpn.example.org:51820", "Expected 4 octets"),
    (parse_endpoint, "198.51.100.7", "not an address with a port"),
    (parse_endpoint, "198.51.100.7:0", "not an address with a port"),
    (parse_endpoint, "198.51.100.7:65536", "not an address with a port"),
    (parse_endpoint, "198.51.100.7:0000051820", "not an address with a port"),
    (parse_endpoint, "198.51.100.7:٧", "not an address with a port"),
    (parse_endpoint, "2001:db8::7:51820", "Expected 4 octets"),
    (parse_endpoint, "[fe80::1%eth0]:51820", "cannot"),
    (parse_endpoint, "[::ffff:198.51.100.7]:51820", "cannot"),
    (parse_endpoint, "127.0.0.1:51820", "cannot"),
    (parse_endpoint, "224.0.0.1:51820", "cannot"),
    (parse_prefix, "192.168.10.1/24", "has host bits set"),
    (parse_prefix, "0.0.0.0/0", "every address would be the other site's"),
    (parse_prefix, "::/0", "every address would be the other site's"),
    (parse_prefix, "0.0.0.0/1", "no site can have"),
    (parse_prefix, "169.254.0.0/30", "no site can have link-local"),
    (parse_prefix, "fe80::/64", "no site can have link-local"),
    (parse_prefix, "::ffff:10.0.0.0/104", "no site can have"),
    (parse_prefix, "192.168.10.0/24, 10.0.0.0/8", "is not a network"),
    (parse_prefix, "fd00::%eth0/64", "is not a network"),
)


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_what_is_written_well_has_one_form(parse: Callable[..., Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text", "said"), BAD)
def test_what_is_written_wrongly_is_refused(parse: Callable[..., Any], text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, what="the value")
    assert caught.value.message.startswith("the value")
    assert said in caught.value.message
    assert caught.value.hint
    if parse in (parse_public_key, parse_preshared_key) and text:
        assert text not in caught.value.message + str(caught.value.hint), "it may be a private key in the wrong place"


def test_an_endpoint_s_address_and_the_mtu_in_a_tunnel_in_a_tunnel() -> None:
    assert [endpoint_address(one) for one in ("198.51.100.7:51820", "[2001:db8::7]:51820")] == [
        "198.51.100.7",
        "2001:db8::7",
    ]
    assert [tunnel_mtu_of(mtu) for mtu in (1442, 8942)] == [1362, 1420], "outside packets of 1500 bytes pass at most"
