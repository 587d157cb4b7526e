# SPDX-License-Identifier: Apache-2.0
"""The configuration of FRR's bgpd on one chassis, and what it says of its sessions."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.guests.templating import render_template
from vgpuctl.model.bgp import Announcement, Bgp
from vgpuctl.model.network import is_ipv6
from vgpuctl.model.printable import printable

ESTABLISHED = "Established"
_LAST_NUMBER = 2**32 - 2
_MOST_WORDS = 60


@dataclass(frozen=True)
class BgpSession:
    """One session as FRR has it. state: `Established`, or how far it is. sent: routes. up_s: None while it is down."""

    neighbour: str
    state: str
    sent: int = 0
    up_s: int | None = None

    @property
    def is_up(self) -> bool:
        """True if routes are exchanged."""
        return self.state == ESTABLISHED


@dataclass(frozen=True)
class _Route:
    prefix: str
    via: str
    number: int


def bgpd_text(
    bgp: Bgp, address: str, announcements: Sequence[Announcement], password: str | None, *, has_ipv6: bool
) -> str:
    """The file of one speaker. address: its own. has_ipv6: sessions carry IPv6 too, whatever is announced now.

    Outgoing routes are exactly the announcements; of incoming ones none is taken.
    """
    families = []
    for version, ip, hop, name in ((4, "ip", "ip next-hop", "ipv4"), (6, "ipv6", "ipv6 next-hop global", "ipv6")):
        own = [one for one in announcements if is_ipv6(one.prefix) == (version == 6)]
        if has_ipv6 or version == 4:
            vias = sorted({one.via for one in own})
            routes = list(_numbered(own))
            families.append({"version": version, "ip": ip, "hop": hop, "name": name, "vias": vias, "routes": routes})
    return render_template("bgpd.conf.j2", bgp=bgp, address=address, families=families, password=password)


def read_sessions(text: str) -> list[BgpSession]:
    """Read `show bgp summary json`, by neighbour. Raises ValueError for what is not an answer of it."""
    found: dict[str, BgpSession] = {}
    try:
        for family in ("ipv4Unicast", "ipv6Unicast"):
            for neighbour, one in json.loads(text).get(family, {}).get("peers", {}).items():
                state, sent = printable(str(one["state"])[:_MOST_WORDS]), int(one.get("pfxSnt", 0))
                before = found.get(neighbour)
                up_s = int(one["peerUptimeMsec"]) // 1000 if state == ESTABLISHED else None
                total = sent + (before.sent if before is not None else 0)
                found[neighbour] = BgpSession(printable(neighbour[:_MOST_WORDS]), state, total, up_s)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError("its answer is not a summary of BGP") from error
    return [found[name] for name in sorted(found)]


def _numbered(announcements: Sequence[Announcement]) -> Iterator[_Route]:
    """Give each prefix a number in its list that other prefixes do not change, so that a change touches its own."""
    taken: set[int] = set()
    for one in sorted(set(announcements), key=lambda one: (one.prefix, one.via)):
        number = zlib.crc32(one.prefix.encode()) % _LAST_NUMBER + 1
        while number in taken:
            number = number % _LAST_NUMBER + 1
        taken.add(number)
        yield _Route(one.prefix, one.via, number)
