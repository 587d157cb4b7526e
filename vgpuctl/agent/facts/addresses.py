# SPDX-License-Identifier: Apache-2.0
"""The host's own IPv4 addresses, of every interface (Linux net/ipv4/fib_trie.c: `/32 host LOCAL` under an address)."""

import re
from typing import Optional, Tuple

from vgpuctl.agent.host import Host

PATH = "/proc/net/fib_trie"
_LOCAL = re.compile(r"\|-- (?P<address>\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")


def read(host: Host) -> Optional[Tuple[str, ...]]:
    """Return the addresses, loopback included, in order; None where the kernel does not tell."""
    text = host.read_optional(PATH)
    if text is None:
        return None
    return tuple(sorted({match["address"] for match in _LOCAL.finditer(text)}))
