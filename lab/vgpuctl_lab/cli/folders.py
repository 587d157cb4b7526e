# SPDX-License-Identifier: Apache-2.0
"""The lab's folder that `--folder` names."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl_lab import LabFolder


def lab_folder(named: Path | None) -> "LabFolder":
    """The folder that is named, else the default one."""
    import vgpuctl_lab as lab

    return lab.LabFolder(named.expanduser().absolute()) if named else lab.default_folder()
