# SPDX-License-Identifier: Apache-2.0
"""A network's names and addresses."""

import ipaddress
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.errors import UsageError
from vgpuctl.model.network import first_free_address, interface_name, mac_address, parse_cidr


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
