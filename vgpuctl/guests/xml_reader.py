# SPDX-License-Identifier: Apache-2.0
"""The one reader of libvirt's XML: of a bounded size, without a document type, its numbers bounded too."""

import re
from xml.etree import ElementTree

from vgpuctl.errors import GuestError

# libvirt's own limit of one text on the wire (VIR_NET_MESSAGE_STRING_MAX, src/rpc/virnetprotocol.x).
MOST_CHARACTERS = 4 * 2**20
_WHOLE = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})")


def read_xml(text: str) -> ElementTree.Element:
    """Parse what libvirt dumped. Raises GuestError for anything else, entities included."""
    if len(text) > MOST_CHARACTERS:
        raise GuestError(f"libvirt sent XML of {len(text)} characters, more than {MOST_CHARACTERS}")
    if "<!DOCTYPE" in text:
        raise GuestError("libvirt sent XML with a document type, which it never writes")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as broken:
        raise GuestError(f"libvirt sent XML that cannot be read: {broken}") from broken


def read_whole(text: str | None) -> int | None:
    """Read a whole number of at most 18 digits; None for anything else."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def read_hex(text: str | None) -> int | None:
    """Read a number such as `0x1f` or `1f`, of at most 32 bits; None for anything else."""
    match = _HEX.fullmatch(text or "")
    return int(match[1], 16) if match else None
