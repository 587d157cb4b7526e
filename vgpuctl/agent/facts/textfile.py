# SPDX-License-Identifier: Apache-2.0
"""The installed timer that writes the readings for node_exporter."""

import json
from typing import Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import textfile as wire
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.textfile import TextfileConfig


def read_config(host: Host) -> Optional[TextfileConfig]:
    """The installed settings; None for none, and for a file that cannot be read."""
    text = host.read_optional(wire.CONFIG)
    if text is None:
        return None
    try:
        return from_json(TextfileConfig, json.loads(text))
    except (WireError, ValueError):
        return None
