# SPDX-License-Identifier: Apache-2.0
"""Another version of the sources beside this one, measured by the same code."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def sources(folder: Path, checkout: Path) -> Path:
    """Make a folder for PYTHONPATH: vgpuctl of the checkout, and the measuring code and the lab of this one."""
    folder.mkdir()
    (folder / "vgpuctl").symlink_to(checkout / "vgpuctl")
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "vgpuctl_lab").symlink_to(ROOT / "lab/vgpuctl_lab")
    return folder
