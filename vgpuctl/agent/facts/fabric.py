# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, and whether a GPU behind NVSwitch can compute (fabric reference)."""

import re
from typing import Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import FabricFacts

_CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
_MODE = re.compile(r"^\s*FABRIC_MODE\s*=\s*(\d{1,18})", re.MULTILINE)


def read_mode(host: Host) -> Optional[int]:
    """Return FABRIC_MODE of Fabric Manager's configuration, None where there is none. Raises Problem."""
    found = _MODE.search(host.read_optional(_CONFIG) or "")
    return None if found is None else int(found[1])


def find_problem(host: Host, fabric: Optional[FabricFacts]) -> Optional[str]:
    """Say why a GPU with this fabric cannot compute; None when it can, or will once its partition is active.

    Raises Problem where the mode cannot be read.
    """
    if fabric is None or fabric.is_up():
        return None
    if fabric.is_between_partitions(None if fabric.state == "completed" else read_mode(host)):
        return None
    return f"its NVSwitch fabric is not set up: {fabric.describe()}"
