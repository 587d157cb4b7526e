# SPDX-License-Identifier: Apache-2.0
"""The systemd units of libvirt's daemons, as hints name them: libvirtd alone, or one for each kind of object."""

import re

BOTH = "`systemctl status libvirtd.socket virtqemud.socket` on the host: the one that is enabled must be active"
_SOCKET = re.compile(r"/(libvirt|virt[a-z]+d)(?:-admin)?-sock\b")


def hint_of(answer: str) -> str:
    """Return how to start the daemon whose socket a message of libvirt names; both kinds where it names none."""
    named = _SOCKET.search(answer)
    if named is None:
        return BOTH
    daemon = "libvirtd" if named[1] == "libvirt" else named[1]
    # libvirt's client looks for libvirtd where it finds no modular daemon.
    other = "" if daemon != "libvirtd" else " (on a host with modular daemons: virtqemud.socket)"
    return f"on the host: `systemctl enable --now {daemon}.socket`{other}; `journalctl -u {daemon}` says why it ended"
