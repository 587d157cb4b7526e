# SPDX-License-Identifier: Apache-2.0
"""The table of the inventory variable `vgpu_fencing`: how a host is powered off for good (docs/maintenance.md)."""

from vgpuctl.model.fencing import Fencing
from vgpuctl.specs.field import Field, Table, Text, Whole
from vgpuctl.specs.health import program_path

FENCING_VARIABLE = "vgpu_fencing"

FENCING = Table(
    "vgpu_fencing",
    Fencing,
    (
        Field(
            "command",
            Text(program_path, pattern="^/"),
            "Command run on the operator's machine that powers the host off, and ends with 0 when it is off",
            metavar="COMMAND",
        ),
        Field("timeout", Whole(1, 3600), "Its time limit in seconds", "timeout_s"),
    ),
)
