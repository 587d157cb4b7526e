# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks as flags and files give them: addresses of either IP version, or of both."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.network import Backend
from vgpuctl.specs.network import list_differences, read_network_flags
from vgpuctl.specs.tenant import read_tenant_files


def _read(given: dict[str, object], backend: Backend = Backend.OVN) -> tuple[str | None, str | None]:
    made = read_network_flags("front", "acme", given, default_backend=backend)
    return made.cidr, made.cidr6


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"cidr": "10.0.0.0/24"}, ("10.0.0.0/24", None)),
        ({"cidr6": "FD00:1::/64"}, (None, "fd00:1::/64")),
        ({"cidr": "10.0.0.0/24", "cidr6": "fd00:1::/64"}, ("10.0.0.0/24", "fd00:1::/64")),
        ({"cidr6": "fd00:1::/64", "dns": ("fd00:53::1",)}, (None, "fd00:1::/64")),
    ],
)
def test_a_network_has_addresses_of_one_version_or_of_both(
    given: dict[str, object], found: tuple[str | None, str | None]
) -> None:
    assert _read(given) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "has no addresses"),
        ({"cidr": "10.0.0.0/24", "dns": ("fd00:53::1",)}, "fd00:53::1: it has no IPv6 addresses"),
        ({"cidr6": "fd00:1::/64", "dns": ("192.0.2.53",)}, "192.0.2.53: it has no IPv4 addresses"),
        ({"cidr6": "fd00:1::/64", "dns": ("fe80::1",)}, "link-local"),
        ({"cidr6": "fd00:1::/64", "host": "gpu1"}, "libvirt carries IPv4 alone"),
        ({"cidr6": "fd00:1::/64", "backend": "libvirt"}, "libvirt carries IPv4 alone"),
        ({"cidr": "10.0.0.0/24", "cidr6": "fd00:1::/64", "backend": "libvirt"}, "libvirt carries IPv4 alone"),
        ({"cidr": "fd00:1::/64"}, "is not a network"),
        ({"cidr6": "10.0.0.0/24"}, "is not an IPv6 network"),
    ],
)
def test_a_network_that_no_backend_carries_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        _read(given)
    assert caught.value.hint


def test_a_tenants_file_names_the_line_of_a_wrong_network(tmp_path: Path) -> None:
    file = tmp_path / "acme.yml"
    head = "version: 1\ntenant: acme\nnetworks:\n"
    file.write_text(f"{head}  front: {{cidr: 10.0.0.0/24, cidr6: 'fd00:1::/64'}}\n  six: {{cidr6: 'fd00:2::/64'}}\n")
    (tenant,) = read_tenant_files(file, default_backend=Backend.OVN)
    assert [(one.cidr, one.cidr6) for one in tenant.networks] == [("10.0.0.0/24", "fd00:1::/64"), (None, "fd00:2::/64")]
    front, six = tenant.networks
    assert list_differences(six, front)[:2] == [
        "cidr: none there, 10.0.0.0/24 wanted",
        "cidr6: fd00:2::/64 there, fd00:1::/64 wanted",
    ]
    for text, said in (("{}", "has no addresses"), ("{cidr6: 'fd00::/48'}", "/48 cannot be used")):
        file.write_text(f"{head}  front: {text}\n")
        with pytest.raises(InventoryError, match=said) as caught:
            read_tenant_files(file, default_backend=Backend.OVN)
        assert "acme.yml:4" in caught.value.message
