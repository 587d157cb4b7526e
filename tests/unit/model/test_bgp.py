# SPDX-License-Identifier: Apache-2.0
"""BGP of an external network as operators write it; what cannot be is refused, and nothing else gets into a file."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.guests.frr import BgpSession, bgpd_text, read_sessions
from vgpuctl.model.bgp import (
    Announcement,
    Bgp,
    BgpNeighbour,
    BgpSpeaker,
    check_bgp,
    describe_neighbour,
    describe_speaker,
    parse_as,
    parse_neighbour,
    parse_password,
    parse_speaker,
)

BGP = Bgp(65010, (BgpNeighbour("203.0.113.1", 65000),), (BgpSpeaker("gpu1", "203.0.113.2"),))
WHERE: dict[str, Any] = {
    "cidr": "203.0.113.0/24",
    "gateway": "203.0.113.1",
    "pool": ("203.0.113.10", "203.0.113.99"),
    "chassis": ("gpu1", "gpu2"),
}
BAD: tuple[tuple[Callable[..., Any], str, str], ...] = (
    (parse_as, "", "is not the number of an AS"),
    (parse_as, "-1", "is not the number of an AS"),
    (parse_as, "4294967295", "is not the number of an AS"),
    (parse_as, "65000.1", "is not the number of an AS"),
    (parse_as, "٦", "is not the number of an AS"),
    (parse_as, "0", "is reserved (RFC 7607)"),
    (parse_as, "23456", "is reserved"),
    (parse_as, "65535", "is reserved"),
    (parse_neighbour, "203.0.113.1", "is not the number of an AS"),
    (parse_neighbour, "203.0.113.1=65000\n redistribute kernel", "is not the number of an AS"),
    (parse_neighbour, "router=65000", "has no IPv4 address"),
    (parse_neighbour, "2001:db8::1=65000", "has no IPv4 address"),
    (parse_speaker, "203.0.113.2", "names no chassis"),
    (parse_speaker, "gpu 1=203.0.113.2", "names no chassis"),
    (parse_speaker, "gpu1=203.0.113.2/24", "has no IPv4 address"),
    (parse_password, "", "is not a password"),
    (parse_password, "two words", "is not a password"),
    (parse_password, "secret\nneighbor 1.2.3.4 remote-as 1", "is not a password"),
    (parse_password, "x" * 81, "is not a password"),
)
CANNOT_BE: tuple[tuple[Bgp, str], ...] = (
    (replace(BGP, neighbours=()), "needs a neighbour and a speaker"),
    (replace(BGP, speakers=()), "needs a neighbour and a speaker"),
    (replace(BGP, announces=()), "would announce nothing"),
    (replace(BGP, neighbours=(BgpNeighbour("198.51.100.1", 65000),)), "is not in 203.0.113.0/24"),
    (replace(BGP, neighbours=(BgpNeighbour("203.0.113.255", 65000),)), "is not in 203.0.113.0/24"),
    (replace(BGP, neighbours=(BgpNeighbour("203.0.113.50", 65000),)), "has an address of the pool"),
    (replace(BGP, neighbours=BGP.neighbours * 2), "has the address of neighbour 203.0.113.1"),
    (replace(BGP, speakers=(BgpSpeaker("gpu1", "203.0.113.10"),)), "has an address of the pool"),
    (replace(BGP, speakers=(BgpSpeaker("gpu1", "203.0.113.1"),)), "has the address of neighbour"),
    (
        replace(BGP, neighbours=(BgpNeighbour("203.0.113.3", 1),), speakers=(BgpSpeaker("gpu1", "203.0.113.1"),)),
        "has the gateway's address",
    ),
    (replace(BGP, speakers=(BgpSpeaker("gpu3", "203.0.113.2"),)), "gpu3 is no chassis"),
    (replace(BGP, speakers=(*BGP.speakers, BgpSpeaker("gpu1", "203.0.113.3"))), "gpu1 has two BGP speakers"),
)


@pytest.mark.parametrize(("parse", "text", "said"), BAD)
def test_what_is_written_wrongly_is_refused(parse: Callable[..., Any], text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, what="the value")
    assert said in caught.value.message
    assert caught.value.hint
    assert parse is not parse_password or not text or text not in caught.value.message + str(caught.value.hint)


def test_what_is_written_well_is_written_so_again() -> None:
    assert parse_as("4294967294") == 4294967294
    assert describe_neighbour(parse_neighbour("203.0.113.1=65000")) == "203.0.113.1=65000"
    assert describe_speaker(parse_speaker("gpu-1.example=203.0.113.2")) == "gpu-1.example=203.0.113.2"
    assert parse_password("Sesame-1\n").reveal() == "Sesame-1"


@pytest.mark.parametrize(("bgp", "said"), CANNOT_BE)
def test_sessions_that_cannot_be_are_refused(bgp: Bgp, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_bgp(bgp, **WHERE)
    assert said in caught.value.message


def test_a_speaker_s_file_lets_out_the_announcements_alone_and_nothing_in() -> None:
    check_bgp(BGP, **WHERE)
    routes = [
        Announcement("203.0.113.20/32", "203.0.113.10"),
        Announcement("203.0.113.21/32", "203.0.113.11"),
        Announcement("2001:db8:100::/64", "2001:db8:ff::10"),
    ]
    text = bgpd_text(BGP, "203.0.113.2", routes, "Sesame-1", has_ipv6=True)
    lines = [line.strip() for line in text.splitlines()]
    permits = [line.partition(" permit ")[2] for line in lines if "prefix-list OURS" in line and " permit " in line]
    assert sorted(permits) == sorted(one.prefix for one in routes)
    networks = [line.removeprefix("network ") for line in lines if line.startswith("network ")]
    assert sorted(networks) == sorted(f"{one.prefix} route-map VIA-{one.via}" for one in routes)
    for command, version in (("ip", 4), ("ipv6", 6)):
        assert f"{command} prefix-list OURS{version} seq 4294967295 deny any" in lines
        assert f"{command} prefix-list NOTHING{version} seq 5 deny any" in lines
        assert f"neighbor 203.0.113.1 prefix-list NOTHING{version} in" in lines
        assert f"neighbor 203.0.113.1 prefix-list OURS{version} out" in lines
    assert "neighbor 203.0.113.1 password Sesame-1" in lines
    fewer = bgpd_text(BGP, "203.0.113.2", routes[1:], "Sesame-1", has_ipv6=True).splitlines()
    gone = {line.strip() for line in text.splitlines()} - {line.strip() for line in fewer}
    assert "address-family ipv6 unicast" in bgpd_text(BGP, "203.0.113.2", (), None, has_ipv6=True), "nothing ends"
    assert "ipv6" not in bgpd_text(BGP, "203.0.113.2", (), None, has_ipv6=False)
    assert all("203.0.113.20" in line or "203.0.113.10" in line for line in gone), "others' lines stay as they are"


def test_what_frr_says_is_read_strictly() -> None:
    text = '{"ipv4Unicast": {"peers": {"203.0.113.1": FOUR}}, "ipv6Unicast": {"peers": {"203.0.113.1": SIX}}}'
    up = json.dumps({"state": "Established", "pfxSnt": 3, "peerUptimeMsec": 61_000})
    assert read_sessions(text.replace("FOUR", up).replace("SIX", up)) == [
        BgpSession("203.0.113.1", "Established", 6, 61)
    ]
    down = json.dumps({"state": "Active\x1b[31m", "peerUptimeMsec": 0})
    (session,) = read_sessions(text.replace("FOUR", down).replace("SIX", down))
    assert not session.is_up
    assert "\x1b" not in session.state
    assert read_sessions("{}") == []
    for wrong in ("", "[]", "null", '{"ipv4Unicast": []}', text, text.replace("FOUR", "[]").replace("SIX", "{}")):
        with pytest.raises(ValueError, match="not a summary"):
            read_sessions(wrong)
