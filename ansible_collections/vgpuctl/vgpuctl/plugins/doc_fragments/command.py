# SPDX-License-Identifier: Apache-2.0
"""The options that all modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of ARGUMENTS of module_utils/command.py."""

    DOCUMENTATION = """
options:
  executable:
    description: The command to run.
    type: path
    default: vgpuctl
  inventory:
    description: Inventories for vgpuctl; E(VGPUCTL_INVENTORY) otherwise.
    type: list
    elements: path
    default: []
  database:
    description: The store's address; E(VGPUCTL_DATABASE_URL) or vgpuctl's own default otherwise.
    type: str
"""
