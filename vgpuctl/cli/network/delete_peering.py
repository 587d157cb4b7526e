# SPDX-License-Identifier: Apache-2.0
"""delete-peering: two tenants' networks are joined no more."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("peering", "TENANT", "Want to be joined with TENANT no more; nothing joins the two then.")
