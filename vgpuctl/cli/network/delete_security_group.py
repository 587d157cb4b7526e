# SPDX-License-Identifier: Apache-2.0
"""delete-security-group: a named allow-list goes."""

from vgpuctl.cli.network.vpc_objects import delete_command

command = delete_command(
    "security-group",
    "NAME",
    "Delete security groups. Refused while VMs are in them or rules of other groups name them.",
)
