# SPDX-License-Identifier: Apache-2.0
"""delete-port-forward: a port of the gateway's address is closed."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command("port-forward", "[PROTOCOL/]PORT", "Forward ports of the gateway's address no more.")
