# SPDX-License-Identifier: Apache-2.0
"""delete-floating-ip: release a VM's floating IP."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("floating-ip", "VM", "Release the floating IPs of VMs; other VMs may get them.")
