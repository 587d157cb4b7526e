# SPDX-License-Identifier: Apache-2.0
"""delete-direct-connect: disconnect a tenant's network from its VLAN."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("direct-connect", "NETWORK", "Disconnect tenants' networks from their VLANs.")
