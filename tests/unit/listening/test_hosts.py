# SPDX-License-Identifier: Apache-2.0
"""Names that a server answers to, and addresses that count as one client."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.listening.hosts import AskedHost, client_of, is_served, read_allowed_host, read_authority


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpus.example", AskedHost("gpus.example")),
        ("GPUS.Example.:9635", AskedHost("gpus.example", 9635)),
        ("127.0.0.1:1", AskedHost("127.0.0.1", 1)),
        ("[2001:DB8:0::1]:80", AskedHost("2001:db8::1", 80)),
        ("[::ffff:192.0.2.1]", AskedHost("192.0.2.1")),
        ("a_b.svc", AskedHost("a_b.svc")),
        ("127.1", AskedHost("127.1")),  # no address, and no name that anybody serves
    ],
)
def test_what_a_host_header_says(text: str, found: AskedHost) -> None:
    assert read_authority(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a..b", "-a", "a-", "a b", " a", "a:", "a:0", "a:65536", "a:1:2", ":80", "a@b", "a/b"),
        *("a\\b", "a%00", "é", "[", "[]", "[::1", "::1", "[::1]x", "[fe80::1%eth0]", "[1.2.3.4]:", "a," * 2, "a" * 64),
        *("a?b", "a#b", "a\n", "a\0", "[::1]:٣", "[:::]", "a." * 200),
    ],
)  # fmt: skip
def test_what_is_no_host(text: str) -> None:
    assert read_authority(text) is None


@pytest.mark.parametrize(
    ("name", "arrived_at", "is_ours"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.2", "192.0.2.1", False),
        ("127.0.0.1", "192.0.2.1", False),
        ("localhost", "192.0.2.1", False),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("127.5.5.5", "::1", True),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("fe80::1", "fe80::1%eth0", True),
        ("0.0.0.0", "0.0.0.0", True),
        ("gpus.example", "192.0.2.1", True),
        ("a.svc", "192.0.2.1", True),
        ("a.b.svc", "192.0.2.1", False),
        ("svc", "192.0.2.1", False),
        ("gpus.example.evil", "127.0.0.1", False),
        ("localhost", "", False),
    ],
)
def test_the_address_that_a_connection_came_to_may_be_asked_for(name: str, arrived_at: str, is_ours: bool) -> None:
    assert is_served(name, arrived_at, ("gpus.example", "*.svc")) == is_ours


def test_names_of_the_option() -> None:
    for text, read in (
        ("GPUS.example.", "gpus.example"),
        ("*.Svc.example", "*.svc.example"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[::1]", "::1"),
        ("10.0.0.9", "10.0.0.9"),
    ):
        assert read_allowed_host(text) == read
    for text in ("", "*", "*.", "*.svc", "a:80", "http://a", "a/b", "*.10.0.0.9", "**.a.b", "a.*.b", "[::1]:1", "-x"):
        with pytest.raises(UsageError, match="is no name of a host"):
            read_allowed_host(text)


def test_a_machine_with_a_whole_ipv6_network_is_one_client() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") != client_of("2001:db8:0:1::1")
    assert client_of("192.0.2.1") == client_of("::ffff:192.0.2.1") != client_of("192.0.2.2")
    assert client_of("") == ""
