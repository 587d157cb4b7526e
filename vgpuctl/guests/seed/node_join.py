# SPDX-License-Identifier: Apache-2.0
"""The script that lets a guest join its cluster. It holds the join secrets, and is nowhere but in the seed."""

import base64
from dataclasses import replace

from vgpuctl.guests.templating import render_template
from vgpuctl.node_config.join.files import NodeFile
from vgpuctl.node_config.join.setup import NodeSetup


def node_script(setup: NodeSetup) -> str:
    """Write the script. It runs once in a guest's life, after the script of its GPU and before those of user-data."""
    return render_template("node-join.sh.j2", setup=replace(setup, files=tuple(map(_as_base64, setup.files))))


def _as_base64(file: NodeFile) -> NodeFile:
    if file.is_base64:
        return file
    return replace(file, content=base64.b64encode(file.content.encode()).decode(), is_base64=True)
