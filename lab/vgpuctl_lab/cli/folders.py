# SPDX-License-Identifier: Apache-2.0
"""The lab's folder that `--folder` names."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl_lab import LabFolder


def lab_folder(named: Path | None) -> "LabFolder":
    """The folder that is named, else the default one. Raises UsageError for a user without a home."""
    import vgpuctl_lab as lab
    from vgpuctl.user_folders import expanded

    return lab.LabFolder(expanded(named).absolute()) if named else lab.default_folder()
