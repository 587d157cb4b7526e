# SPDX-License-Identifier: Apache-2.0
"""Values as the pages write them: sizes, shares, times, and links to objects."""

import math
from enum import Enum
from urllib.parse import quote

from vgpuctl.agent.wire.measures import measure
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.printable import printable
from vgpuctl.model.times import format_duration, format_time

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_ACRONYMS = {word.lower(): word for word in ("CPU", "ECC", "JPEG", "MIG", "NVLink", "OFA", "PCIe", "RSS", "SM", "SRAM")}
_ACRONYMS |= {"vcpu": "vCPU", "vcpus": "vCPUs", "arr": "ARR"}
_THOUSANDS = ("", "k", "M", "G", "T")
_SUFFIXES = {
    "_celsius": "°C",
    "_watts": "W",
    "_joules": "J",
    "_hertz": "Hz",
    "_seconds": "s",
    "_bytes_per_second": "B/s",
    "_bits_per_second": "bit/s",
}


def finalize(value: object) -> object:
    """Write a value for people, as text that only shows: no control characters, no change of direction.

    Raises TypeError for an object that has no words of its own: those of Python are for programmers.
    """
    if hasattr(value, "__html__"):
        return value
    if isinstance(value, str):
        return printable(str(value))
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(finalize(one)) for one in value)
    if isinstance(value, (dict, Enum)) or type(value).__str__ is object.__str__:
        raise TypeError(f"a page has no words for a {type(value).__name__}")
    return printable(str(value))


def mib(value: float) -> str:
    """Write a size in MiB: `48 GiB`, `512 MiB`."""
    return size(value * 2**20)


def size(value: float) -> str:
    """Write a number of bytes: `1.5 GiB`."""
    return _scaled(value, 1024, _BYTES)


def percent(ratio: float) -> str:
    """Write a ratio as percent: `43 %`, `0.4 %`."""
    shown = ratio * 100
    return f"{shown:.1f} %" if 0 < abs(shown) < 10 and abs(shown - round(shown)) >= 0.05 else f"{shown:.0f} %"


def amount(name: str, value: float) -> str:
    """Write the value of a measure in the unit that its name tells."""
    if not math.isfinite(value):
        return str(value)
    if name.endswith("_ratio"):
        return percent(value)
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("_timestamp_seconds"):
        return f"{when(value)} UTC"
    if name.endswith("_seconds") and value >= 60:
        return duration(value)
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix):
            return f"{_scaled(value, 1000, _THOUSANDS, gap=' ')}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def measured_lines(kind: str, measured: Measured) -> list[tuple[str, str, str]]:
    """Name, labels and value of everything that was measured of one object, and the reason of each missing value.

    kind: as in agent/wire/measures.py. Of several values with labels those of 0 are left out; a measure that is 1 for
    the state that holds has the state as its value.
    """
    lines = []
    for name, labels, value in measured.values:
        if labels and not value:
            continue
        is_state = bool(labels) and value == 1 and _is_state(kind, name)
        if is_state:
            lines.append((title(name), "", ", ".join(labels)))
        else:
            lines.append((title(name), ", ".join(labels), amount(name, value)))
    return lines + [(title(name), "", f"{word}: {reason}") for name, word, reason in measured.missing]


def _is_state(kind: str, name: str) -> bool:
    try:
        return not (found := measure(kind, name)).is_counter and found.text.startswith(
            ("1 for ", "1 while ", "Source ")
        )
    except KeyError:
        return False


def title(name: str) -> str:
    """Write the name of a measure for people: `utilization_ratio` as `Utilization`."""
    words = name
    for suffix in ("_ratio", "_bytes", "_timestamp_seconds", *_SUFFIXES):
        words = words.removesuffix(suffix)
    first, *rest = (_ACRONYMS.get(word, word) for word in words.split("_"))
    return " ".join((first[:1].upper() + first[1:], *rest))


def when(at: float) -> str:
    """Write a time in UTC, `unknown` for one that no calendar has."""
    try:
        return format_time(at)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def duration(seconds: float) -> str:
    """Write a duration: `3m12s`."""
    return format_duration(max(0.0, seconds)) if math.isfinite(seconds) else "for ever"


def short_address(address: str) -> str:
    """Write a PCI address without the domain that nearly every GPU has."""
    return address.removeprefix("0000:")


def host_link(host: str) -> str:
    """The page of a host."""
    return f"/hosts/{_part(host)}"


def gpu_link(host: str, gpu: str) -> str:
    """The page of a GPU."""
    return f"{host_link(host)}/gpus/{_part(gpu)}"


def tenant_link(tenant: str) -> str:
    """The page of a tenant."""
    return f"/tenants/{_part(tenant)}"


def vm_link(tenant: str, vm: str) -> str:
    """The page of a VM."""
    return f"{tenant_link(tenant)}/vms/{_part(vm)}"


def _part(name: str) -> str:
    return quote(name, safe=":", errors="replace")


def _scaled(value: float, base: int, units: tuple[str, ...], *, gap: str = "") -> str:
    left, number = abs(value), 0
    while left >= base and number < len(units) - 1:
        left /= base
        number += 1
    digits = f"{left:.1f}".removesuffix(".0") if left < 100 else f"{left:.0f}"
    return f"{'-' if value < 0 else ''}{digits} {units[number]}".rstrip() + (gap if not units[number] else "")
