# SPDX-License-Identifier: Apache-2.0
"""delete-gateway: a tenant's networks have no way out any more."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command(
    "gateway", "", "Delete a tenant's gateway. Refused while it has floating IPs or port forwards."
)
