# SPDX-License-Identifier: Apache-2.0
"""A host's layout from the text of its variable `vgpu`."""

from pathlib import Path

from vgpuctl.inventory import load_inventory
from vgpuctl.model.layout import HostLayout


def read_layout(folder: Path, text: str) -> HostLayout:
    """Write the variable into a folder for the host `h1`, and read it from there."""
    (folder / "hosts.yml").write_text("g: {hosts: {h1: }}\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    (folder / "host_vars" / "h1.yml").write_text(f"vgpu:\n{lines}")
    layout = load_inventory([folder / "hosts.yml"]).layout("h1")
    assert layout is not None
    return layout
