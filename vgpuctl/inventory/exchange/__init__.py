# SPDX-License-Identifier: Apache-2.0
"""Layouts in other tools' files: read from them, and written back as them (docs/exchange.md)."""

from vgpuctl.inventory.exchange.configs import config_text, needs_gpus
from vgpuctl.inventory.exchange.handed_out import HandedOut, ToolFile, handed_out
from vgpuctl.inventory.exchange.kubevirt import export_kubevirt
from vgpuctl.inventory.exchange.mdevctl import definition_paths, dumped, export_mdevctl, import_mdevctl
from vgpuctl.inventory.exchange.mig_parted import export_mig_parted, import_mig_parted
from vgpuctl.inventory.exchange.nova import export_nova
from vgpuctl.inventory.exchange.proxmox import export_proxmox
from vgpuctl.inventory.exchange.refusal import Left
from vgpuctl.inventory.exchange.vgpu_device_manager import export_vgpu_device_manager, import_vgpu_device_manager

__all__ = [
    "HandedOut",
    "Left",
    "ToolFile",
    "config_text",
    "definition_paths",
    "dumped",
    "export_kubevirt",
    "export_mdevctl",
    "export_mig_parted",
    "export_nova",
    "export_proxmox",
    "export_vgpu_device_manager",
    "handed_out",
    "import_mdevctl",
    "import_mig_parted",
    "import_vgpu_device_manager",
    "needs_gpus",
]
