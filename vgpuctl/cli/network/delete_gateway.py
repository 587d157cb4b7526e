# SPDX-License-Identifier: Apache-2.0
"""delete-gateway: a tenant's networks have no way out any more."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command(
    "gateway", "", "Take a tenant's gateway away. Refused while floating addresses or forwarded ports come in by it."
)
