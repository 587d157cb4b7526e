# SPDX-License-Identifier: Apache-2.0
"""The host's own use of a card: its primary display and its console (Linux drivers/pci/vgaarb.c, fbcon.c)."""

import re
from typing import Tuple

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host

CONSOLES = "/sys/class/vtconsole"
_FRAMEBUFFER = re.compile(r"fb[0-9]+")


def read(host: Host, address: str) -> Tuple[str, ...]:
    """Return sentences about "it"; none on a host whose console is on no display.

    `boot_vga` alone tells little: a host without any other VGA device marks a card that shows nothing.
    """
    consoles = read_consoles(host)
    if not consoles:
        return ()
    found = []
    if (host.read_optional(f"{pci.folder(address)}/boot_vga") or "").strip() == "1":
        found.append(f"it is the host's primary display (boot_vga), with the console on {', '.join(consoles)}")
    for name in host.listdir_optional(f"{pci.folder(address)}/graphics") or ():
        if _FRAMEBUFFER.fullmatch(name) and any("frame buffer" in console for console in consoles):
            found.append(f"the host's console is on its framebuffer {name}")
    return tuple(found)


def read_consoles(host: Host) -> Tuple[str, ...]:
    """Return what the host's text consoles are bound to, such as `frame buffer device`, without the dummy."""
    found = []
    for name in host.listdir_optional(CONSOLES) or ():
        bound = (host.read_optional(f"{CONSOLES}/{name}/bind") or "").strip() == "1"
        title = (host.read_optional(f"{CONSOLES}/{name}/name") or "").strip()
        title = re.sub(r"^\([SM]\) ", "", title)
        if bound and "dummy" not in title:
            found.append(title or name)
    return tuple(found)
