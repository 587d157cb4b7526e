# SPDX-License-Identifier: Apache-2.0
"""The ranges of vGPU versions that NVIDIA drivers negotiate between host and guest.

When a guest driver loads, both sides take the highest version that both know; without one the guest driver does not
load. A range is (major, minor) of the "external" version. Source: NVIDIA/open-gpu-kernel-modules,
src/nvidia/inc/kernel/vgpu/vgpu_version.h at the tags 555.42 to 595.45 (VGX_MAJOR_VERSION_… and the table from internal
to external versions); the file has the branches before 555 as steps of that table only, without their lower end.
"""

import re
from dataclasses import dataclass

Version = tuple[int, int]


@dataclass(frozen=True)
class VgpuRange:
    """Versions that drivers of one branch negotiate, as far as a tag shows them.

    first, last: the releases of the branch (the number behind the first dot) that are known to have it. highest: the
    highest version; several where the source allows several. lowest: None where the source does not say.
    """

    branch: int
    first: int
    last: int
    highest: tuple[Version, ...]
    lowest: Version | None


RANGES = (
    VgpuRange(535, 0, 999, ((0x11, 1), (0x12, 1)), None),
    VgpuRange(550, 0, 999, ((0x14, 1),), None),
    VgpuRange(555, 42, 58, ((0x15, 1),), (0x07, 1)),
    VgpuRange(560, 28, 35, ((0x16, 1),), (0x07, 1)),
    VgpuRange(565, 57, 77, ((0x17, 1),), (0x07, 1)),
    VgpuRange(570, 86, 86, ((0x18, 1),), (0x07, 1)),
    VgpuRange(570, 211, 999, ((0x18, 2),), (0x12, 1)),
    VgpuRange(575, 51, 64, ((0x19, 1),), (0x07, 1)),
    VgpuRange(580, 65, 142, ((0x1A, 1),), (0x12, 1)),
    VgpuRange(590, 44, 48, ((0x1B, 1),), (0x18, 1)),
    VgpuRange(595, 44, 45, ((0x1C, 1),), (0x18, 1)),
)
BRANCHES = tuple(sorted({one.branch for one in RANGES}))

_DRIVER = re.compile(r"(\d{3})(?:\.(\d{1,9})(?:\.\d+)*)?")


def parse_driver(text: str) -> tuple[int, int | None] | None:
    """Read branch and release of a driver's version: `570.133.10` is (570, 133), `570` (570, None). None for others."""
    found = _DRIVER.fullmatch(text)
    return None if found is None else (int(found[1]), None if found[2] is None else int(found[2]))


def ranges_of(branch: int, release: int | None) -> tuple[VgpuRange, ...]:
    """The ranges that a driver may have: one where a tag shows it, several between two tags, none if unknown."""
    there = [one for one in RANGES if one.branch == branch]
    exact = [one for one in there if release is not None and one.first <= release <= one.last]
    return tuple(exact or there)
