# SPDX-License-Identifier: Apache-2.0
"""delete-floating-address: a VM's outside address goes back."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("floating-address", "VM", "Take VMs' outside addresses back; other VMs may get them.")
