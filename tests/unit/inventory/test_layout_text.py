# SPDX-License-Identifier: Apache-2.0
"""A layout that is written down reads back as the same layout, whatever it declares."""

import tempfile
from pathlib import Path

from hypothesis import given, settings

from tests.unit.inventory.layouts import host_layouts
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.layout_text import layout_yaml
from vgpuctl.model.layout import HostLayout


def read(text: str) -> HostLayout | None:
    """Read a file of host_vars."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "hosts.ini").write_text("h1\n")
        (folder / "host_vars").mkdir()
        (folder / "host_vars" / "h1.yml").write_text(text)
        return load_inventory([folder / "hosts.ini"]).layout("h1")


@settings(max_examples=80, deadline=None)
@given(host_layouts())
def test_a_layout_that_is_written_reads_back(layout: HostLayout) -> None:
    assert read(layout_yaml(layout)) == layout
