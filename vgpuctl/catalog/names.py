# SPDX-License-Identifier: Apache-2.0
"""Facts in a vGPU type's name, for types that the catalogue does not have (reference 3.5)."""

import re
from functools import cache

from vgpuctl.catalog.entries import CatalogType

_MIG_BACKED = re.compile(r".+-(?P<slices>\d{1,18})-\d+[ABCQ](?:ME|NOME|MEALL|GFX)?")
_SERIES = re.compile(r".+-\d+(?P<series>[ABCQ])\d?(?:ME|NOME|MEALL|GFX)?")
_VENDOR_PREFIX = re.compile(r"(?:GRID|NVIDIA) ")


@cache
def short_name(full_name: str) -> str:
    """Name of a vGPU type without vendor and board: `NVIDIA RTX Pro 6000 Blackwell DC-2B` is `DC-2B`.

    A name of another form keeps everything but the vendor.
    """
    last = full_name.rpartition(" ")[2]
    return last if series_of(last) else _VENDOR_PREFIX.sub("", full_name, count=1)


def is_mig_backed(name: str) -> bool:
    """True if a type's name has the form of a MIG-backed one: `A100X-1-5C`, not `A100X-5C`."""
    return _MIG_BACKED.fullmatch(name) is not None


def frame_rate_limit(entry: CatalogType) -> int:
    """45 frames a second for B types, 60 for all others: NVIDIA Virtual GPU Software User Guide."""
    return 45 if entry.series == "B" else 60


@cache
def gpu_instance_slices(name: str) -> int | None:
    """Compute slices of the GPU instance a MIG-backed type sits in (`A100X-3-20C`: 3), None for other types."""
    match = _MIG_BACKED.fullmatch(name)
    return int(match["slices"]) if match else None


@cache
def series_of(name: str) -> str | None:
    """The series letter (A, B, C or Q) of an NVIDIA type's name; None for names of another form."""
    match = _SERIES.fullmatch(name)
    return match["series"] if match else None
