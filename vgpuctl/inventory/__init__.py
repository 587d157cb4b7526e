# SPDX-License-Identifier: Apache-2.0
"""The Ansible-style inventory: which hosts there are, in which groups, and how to log in to them."""

from vgpuctl.inventory.load import Inventory, load_inventory

__all__ = ["Inventory", "load_inventory"]
