# SPDX-License-Identifier: Apache-2.0
"""A network's names and addresses."""

import ipaddress
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.errors import UsageError
from vgpuctl.model.network import (
    Backend,
    Network,
    NetworkRequest,
    NetworkState,
    count_usable,
    first_free_address,
    interface_name,
    last_free_address,
    link_local,
    mac_address,
    monitor_of,
    parse_cidr,
    parse_cidr6,
    parse_resolver,
)


@given(st.uuids())
def test_every_interface_name_fits_the_kernel(network_id: uuid.UUID) -> None:
    assert re.fullmatch(r"vg[0-9a-f]{12}", interface_name(str(network_id)))


@given(st.text())
def test_every_mac_address_is_unicast_and_locally_administered(seed: str) -> None:
    assert re.fullmatch(r"52(:[0-9a-f]{2}){5}", mac_address(seed))
    assert int(mac_address(seed)[:2], 16) & 0b11 == 0b10


@given(st.sets(st.integers(0, 15)))
def test_the_lowest_free_address_is_given_until_there_is_none(numbers: set[int]) -> None:
    subnet = ipaddress.IPv4Network("10.0.0.16/28")
    free = [str(subnet[number]) for number in range(1, 15) if number not in numbers]
    assert first_free_address(subnet, [str(subnet[number]) for number in numbers]) == (free[0] if free else None)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10.0.0.1/24", "did you mean 10.0.0.0/24?"),
        ("10.0.0.0/30", "/8 to /29"),
        ("10.0.0.0", "/8 to /29"),
        ("0.0.0.0/0", "/8 to /29"),
        ("0.0.0.0/8", "such as"),
        ("127.0.0.0/8", "such as"),
        ("169.254.0.0/16", "such as"),
        ("224.0.0.0/24", "such as"),
        ("240.0.0.0/8", "such as"),
        ("2001:db8::/64", "IPv4"),
        ("front", "IPv4"),
        ("10.0.0.0/24\n", "IPv4"),
    ],
)
def test_addresses_that_no_guest_can_use_are_refused(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cidr(text)
    assert hint in (caught.value.hint or "")


def test_an_ipv6_network_gives_its_first_addresses_whatever_the_other_version_has_taken() -> None:
    subnet = ipaddress.IPv6Network("fd00:1::/64")
    assert first_free_address(subnet, ["fd00:1::1", "10.0.0.1", "fd00:1::3"]) == "fd00:1::2"
    assert last_free_address(subnet, ["10.0.0.254", monitor_of(subnet)]) == "fd00:1::fffe"
    assert (monitor_of(subnet), count_usable(subnet)) == ("fd00:1::ffff", 0xFFFF)
    taken = [str(subnet[number]) for number in range(1, 0x10000)]
    assert first_free_address(subnet, taken) is last_free_address(subnet, taken) is None
    four = ipaddress.IPv4Network("10.0.0.0/29")
    assert (last_free_address(four, ["fd00:1::5"]), count_usable(four)) == ("10.0.0.6", 6)


@given(st.text())
def test_a_link_local_address_is_that_of_its_mac_address(seed: str) -> None:
    mac = mac_address(seed)
    tail = ipaddress.IPv6Address(link_local(mac)).packed[8:]
    assert tail[3:5] == b"\xff\xfe"
    assert bytes((tail[0] ^ 2, *tail[1:3], *tail[5:])) == bytes.fromhex(mac.replace(":", ""))
    assert ipaddress.IPv6Address(link_local(mac)).is_link_local


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("fd00:1::1/64", "host bits set", "did you mean fd00:1::/64?"),
        ("fd00:1::/48", "/48 cannot be used", "exactly /64"),
        ("fd00:1::/65", "/65 cannot be used", "exactly /64"),
        ("fd00:1::/127", "/127 cannot be used", "exactly /64"),
        ("fd00:1::", "/128 cannot be used", "exactly /64"),
        ("::ffff:10.0.0.0/120", "IPv4 addresses in IPv6", "such as fd00:1::/64"),
        ("::ffff:0:0/96", "IPv4 addresses in IPv6", "such as fd00:1::/64"),
        ("fe80::/64", "link-local", "such as fd00:1::/64"),
        ("fe80::%1/64", "no zone", "did you mean fe80::"),
        ("ff02::/64", "multicast", "such as fd00:1::/64"),
        ("2002:c000:204::/64", "6to4", "such as"),
        ("2001:0:1::/64", "Teredo", "such as"),
        ("::/64", "neither unique local", "such as"),
        ("::/0", "neither unique local", "such as"),
        ("::1/128", "neither unique local", "such as"),
        ("fc00::/64", "neither unique local", "such as"),
        ("fec0::/64", "neither unique local", "such as"),
        ("64:ff9b::/64", "neither unique local", "such as"),
        ("10.0.0.0/24", "is not an IPv6 network", "fd00:1::/64"),
        ("fd00:1::/64\n", "is not an IPv6 network", "fd00:1::/64"),
        ("front", "is not an IPv6 network", "fd00:1::/64"),
    ],
)
def test_ipv6_addresses_that_no_network_can_have_are_refused(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cidr6(text)
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_ipv6_addresses_are_kept_in_their_normal_form() -> None:
    assert str(parse_cidr6("FD00:0001:0::/64")) == "fd00:1::/64"
    assert str(parse_cidr6("2001:DB8:0:1::/64")) == "2001:db8:0:1::/64"
    assert [parse_resolver(one, what="--dns") for one in ("192.0.2.53", "FD00::53")] == ["192.0.2.53", "fd00::53"]


@pytest.mark.parametrize(
    "text", ["fe80::1", "fe80::1%eth0", "ff02::fb", "::", "::1", "::ffff:192.0.2.53", "x", "", "1"]
)
def test_a_resolver_that_no_guest_can_ask_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--dns"):
        parse_resolver(text, what="--dns")


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (("10.0.0.0/24", "fd00:1::/64"), ("10.0.1.0/24", "fd00:1::/64"), True),
        (("10.0.0.0/24", "fd00:1::/64"), ("10.0.0.128/25", "fd00:2::/64"), True),
        (("10.0.0.0/24", "fd00:1::/64"), ("10.0.1.0/24", "fd00:2::/64"), False),
        ((None, "fd00:1::/64"), ("10.0.1.0/24", None), False),
        ((None, "fd00:1::/64"), (None, "fd00:1::/64"), True),
    ],
)
def test_networks_overlap_in_either_version(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None], *, overlap: bool
) -> None:
    made = [
        Network("id", NetworkRequest("n", "t", cidr, backend=Backend.OVN, cidr6=cidr6), NetworkState.CREATED)
        for cidr, cidr6 in (one, other)
    ]
    assert made[0].overlaps(made[1]) is made[1].overlaps(made[0]) is overlap
