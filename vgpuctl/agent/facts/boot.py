# SPDX-License-Identifier: Apache-2.0
"""What is installed to restore the layout at boot, and what came of it at this boot."""

import hashlib
import json
from typing import Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFacts
from vgpuctl.agent.wire.decode import WireError, from_json


def read(host: Host) -> Optional[BootFacts]:
    """Read it, None where nothing is installed."""
    text = host.read_optional(wire.MANIFEST)
    if text is None:
        return None
    is_enabled = all(host.disk_link(path) is not None for path in wire.UNIT_LINKS)
    result = host.read_optional(wire.RESULT)
    facts = BootFacts(digest(text), is_enabled)
    if result is None:
        return facts
    try:
        told = from_json(BootFacts, {"manifest": facts.manifest, "is_enabled": is_enabled, **json.loads(result)})
    except (WireError, ValueError) as error:
        return BootFacts(facts.manifest, is_enabled, problems=(f"{wire.RESULT} cannot be read: {error}",))
    return told


def digest(text: str) -> str:
    """The sha256 of a file's text in hex, without a newline at its end."""
    return hashlib.sha256(text.rstrip("\n").encode()).hexdigest()
