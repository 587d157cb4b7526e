# SPDX-License-Identifier: Apache-2.0
"""delete-load-balancer: its address goes back."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("load-balancer", "NAME", "Delete load balancers and give their addresses back.")
