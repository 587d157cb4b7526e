# SPDX-License-Identifier: Apache-2.0
"""The NVLinks of a lab host, as plain values: every agent on every simulated host loads them."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CardLinks:
    """The NVLinks of a card. count: of links, which lead to the peers in turn: link 5 of 3 peers to the third.

    peers: addresses. has_switch: the peers are NVSwitches. has_fabric: NVML tells of the fabric. module: the place on
    the baseboard, from 1; 0 for a card that is on none.
    """

    version: int = 0
    count: int = 0
    peers: tuple[str, ...] = ()
    has_switch: bool = False
    has_fabric: bool = False
    module: int = 0

    def peer(self, link: int) -> str:
        """The address at the other end of a link."""
        return self.peers[link % len(self.peers)]


NO_LINKS = CardLinks()
FABRIC_CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
_SETTING = re.compile(r"^[ \t]*([A-Z_]+)[ \t]*=[ \t]*(\S*)", re.MULTILINE)


def fabric_config(mode: int) -> str:
    """The configuration of Fabric Manager as its package has it, with a FABRIC_MODE; one with partitions restarts."""
    return (
        f"FABRIC_MODE={mode}\nFABRIC_MODE_RESTART={int(mode > 0)}\nSTATE_FILE_NAME=/tmp/fabricmanager.state\n"
        "FM_CMD_BIND_INTERFACE=127.0.0.1\nFM_CMD_PORT_NUMBER=6666\nFM_CMD_UNIX_SOCKET_PATH=\nUNIX_SOCKET_PATH=\n"
    )


def fabric_settings(root: Path) -> dict[str, str]:
    """Fabric Manager's configuration on the disk; the last of two values counts."""
    try:
        return dict(_SETTING.findall((root / FABRIC_CONFIG.lstrip("/")).read_text()))
    except FileNotFoundError:
        return {}


def configured_mode(root: Path) -> int:
    """FABRIC_MODE of the configuration."""
    value = fabric_settings(root).get("FABRIC_MODE", "")
    return int(value) if value.isdecimal() else 0
