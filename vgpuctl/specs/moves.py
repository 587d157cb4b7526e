# SPDX-License-Identifier: Apache-2.0
"""The table of the inventory variable `vgpu_moves`: how running VMs move to and from a host (docs/moves.md)."""

import re

from vgpuctl.errors import UsageError
from vgpuctl.model.move_link import MoveLink, MoveNetwork, leads_back
from vgpuctl.specs.field import Choice, Field, Table, Text, Whole

MOVES_VARIABLE = "vgpu_moves"
# A name or an address, as it stands in a URI: QEMU is given it, so nothing may end the host part.
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}")


def _parse_address(text: str, /, *, what: str) -> str:
    if _ADDRESS.fullmatch(text) is None:
        raise UsageError(
            f"{what}: {text[:80]!a} is no address of a host", hint="write a name or an address: 10.0.0.7, fd00::7"
        )
    if leads_back(text):
        raise UsageError(
            f"{what}: by {text} no host reaches another one",
            hint="write the address of the network for moves: 10.0.0.7",
        )
    return text


MOVES = Table(
    "vgpu_moves",
    MoveLink,
    (
        Field(
            "network",
            Choice(MoveNetwork),
            "What keeps the guests' memory secret on its way: trusted (the network itself) or tls",
            example="trusted",
        ),
        Field(
            "address",
            Text(_parse_address),
            "Address or name by which other hosts reach this one for moves",
            metavar="ADDRESS",
            example="10.0.0.7",
        ),
        Field(
            "bandwidth_mbps",
            Whole(1, 1_000_000),
            "The most that one move may send or receive, in Mbit/s",
            metavar="MBIT",
            example="8000",
        ),
    ),
)
