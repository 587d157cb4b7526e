# SPDX-License-Identifier: Apache-2.0
"""delete-direct-line: a tenant's own line is taken out of a network."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("direct-line", "NETWORK", "Take tenants' own lines out of their networks.")
