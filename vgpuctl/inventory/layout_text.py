# SPDX-License-Identifier: Apache-2.0
"""A host's layout written down as the variable `vgpu` that reads back as the same layout (docs/layout.md)."""

from typing import Any

from vgpuctl.model.layout import HostLayout
from vgpuctl.specs.layout import LAYOUT, LAYOUT_VARIABLE
from vgpuctl.specs.writing import write_entry
from vgpuctl.yaml_text import yaml_text


def layout_variable(layout: HostLayout) -> dict[str, Any]:
    """The mapping under `vgpu:`, without empty keys."""
    return write_entry(LAYOUT, layout)


def layout_yaml(layout: HostLayout) -> str:
    """A file of `host_vars` that declares the layout."""
    return yaml_text({LAYOUT_VARIABLE: layout_variable(layout)})
