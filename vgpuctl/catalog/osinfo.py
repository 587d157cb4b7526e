# SPDX-License-Identifier: Apache-2.0
"""Sizes that operating systems ask for, from libosinfo's database (package osinfo-db) where it is installed.

One small file is read for one system. Source of the format: osinfo-db, data/schema/osinfo.rng.in (0.3.x, 2016-2025).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl.model.units import MIB
from vgpuctl.trusted_files import FOUND, opened

# A file of the administrator's folder replaces the package's (libosinfo, osinfo_loader.c).
FOLDERS = ("/etc/osinfo", "/usr/share/osinfo")
_ARCHITECTURES = ("x86_64", "all")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class OsSizes:
    """Memory, vCPUs and disk that a system asks for; None where the database does not say."""

    memory_mib: int | None = None
    vcpus: int | None = None
    disk_mib: int | None = None


@dataclass(frozen=True)
class OsResources:
    """The least that a system runs with, and what its maker recommends."""

    minimum: OsSizes = OsSizes()
    recommended: OsSizes = OsSizes()


@cache
def read_resources(name: str, folders: tuple[str, ...] = FOLDERS) -> OsResources | None:
    """Read what the database says of one system; None where it has no such file, or a damaged one.

    name: `VENDOR/SYSTEM`, as in `debian.org/debian-12`, the file's place below the database's folder `os`.
    """
    for folder in folders:
        path = Path(folder, "os", f"{name}.xml")
        try:
            with opened(path, FOUND) as file:
                data = file.read(_MOST_BYTES)
            if b"<!DOCTYPE" in data:  # the database has none, and entities could grow without bound
                continue
            root = ElementTree.XML(data)
        except (OSError, ElementTree.ParseError, ValueError, LookupError):
            continue  # the last two come of an encoding that the parser does not know
        found = root.findall("os/resources")
        return OsResources(_sizes(found, "minimum"), _sizes(found, "recommended"))
    return None


def _sizes(resources: list[ElementTree.Element], kind: str) -> OsSizes:
    """The sizes for x86-64, else those for every architecture."""
    for architecture in _ARCHITECTURES:
        for one in resources:
            part = one.find(kind)
            if one.get("arch") == architecture and part is not None:
                return OsSizes(_number(part, "ram", MIB), _number(part, "n-cpus", 1), _number(part, "storage", MIB))
    return OsSizes()


def _number(part: ElementTree.Element, name: str, unit: int) -> int | None:
    text = (part.findtext(name) or "").strip()
    return int(text) // unit if text.isdecimal() and len(text) <= 18 else None
