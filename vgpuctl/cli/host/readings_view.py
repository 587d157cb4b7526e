# SPDX-License-Identifier: Apache-2.0
"""Readings of a host for people: a line for each measure in the units of the field, missing ones with their reason."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime

from vgpuctl.agent.wire.readings import HostReadings, Measured
from vgpuctl.cli.shown.output import print_line

_WIDTH, _TITLE_WIDTH = 80, 30
# Suffix of a measure's name, divisor, unit, digits after the point.
_UNITS = (
    ("_ratio", 0.01, "%", 0),
    ("_watts", 1, "W", 0),
    ("_joules", 3_600_000, "kWh", 2),
    ("_celsius", 1, "°C", 0),
    ("_rate_hertz", 1, "a second", 0),
    ("_limit_hertz", 1, "a second", 0),
    ("_hertz", 1_000_000, "MHz", 0),
    ("_slice_seconds", 0.001, "ms", 2),
    ("_latency_seconds", 0.001, "ms", 2),
    ("reading_seconds", 0.001, "ms", 0),
    ("reading_cpu_seconds", 0.001, "ms", 0),
    ("_seconds", 1, "s", 1),
)
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIMESTAMP = "_timestamp_seconds"


def print_readings(readings: HostReadings) -> None:
    """Print everything that was measured."""
    for title, names, measured in _objects(readings):
        print_line()
        print_line(f"Readings of {title}")
        for name, text in names:
            print_line(f"  {name:{_TITLE_WIDTH}} {text}")
        for name, text in rows(measured):
            print_line(f"  {name:{_TITLE_WIDTH}} {text}")
        _print_missing(measured)
    if readings.unread:
        print_line()
        print_line("Not read")
        for sentence in readings.unread:
            _print_wrapped("  ", sentence)


def _objects(readings: HostReadings) -> Iterator[tuple[str, list[tuple[str, str]], Measured]]:
    """Title, names and measures of each object."""
    yield "the host", [], readings.measured
    for gpu in readings.gpus:
        yield f"GPU {gpu.address}  {gpu.model or gpu.driver or 'without a driver'}", [], gpu.measured
    for one in readings.instances:
        yield f"GPU instance {one.id} of {one.gpu}  {one.profile}", [], one.measured
    for vgpu in readings.vgpus:
        names = [("GPU", vgpu.gpu), ("VM", vgpu.vm_uuid or "unknown")]
        yield f"vGPU {vgpu.device or 'of unknown device'}  {vgpu.profile}", names, vgpu.measured
    for vm in readings.vms:
        yield f"VM {vm.name}", [("UUID", vm.uuid), ("tenant", vm.tenant or "none of vgpuctl's")], vm.measured


def rows(measured: Measured) -> Iterator[tuple[str, str]]:
    """(title, value with unit) of each measure; of one that has a value for each state, the states that are on."""
    done: set[str] = set()
    for name, labels, value in measured.values:
        if name in done:
            continue
        if not labels:
            yield title_of(name), format_value(name, value)
            continue
        done.add(name)
        several = measured.all(name)
        if _is_states(name, several):
            yield title_of(name), ", ".join(" ".join(one) for one, is_on in several if is_on) or "none"
            continue
        for own, number in several:
            yield f"{title_of(name)} {' '.join(own)}", format_value(name, number)


def _is_states(name: str, several: tuple[tuple[tuple[str, ...], float], ...]) -> bool:
    is_flag = all(value in (0, 1) for _, value in several) and all(len(labels) == 1 for labels, _ in several)
    return is_flag and _unit_of(name) is None and name not in ("ecc_errors", "remapped_rows", "nvlink_errors")


def title_of(name: str) -> str:
    """A measure's name for people: without its unit."""
    if name.endswith("_seconds") and not name.endswith((_TIMESTAMP, "_slice_seconds", "_latency_seconds")):
        return f"{name.removesuffix('_seconds').replace('_', ' ')} time"
    for suffix in (_TIMESTAMP, "_ratio", "_watts", "_joules", "_celsius", "_hertz", "_bytes", "_seconds", "_info"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def format_value(name: str, value: float) -> str:
    """A measure's value in the unit of the field."""
    if name.endswith(_TIMESTAMP):
        try:
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        except (ValueError, OverflowError, OSError):
            return f"{value:g} s since 1970"
    if name.endswith("_bytes"):
        return _format_bytes(value)
    unit = _unit_of(name)
    if unit is None:
        return f"{value:,.0f}" if value == int(value) else f"{value:g}"
    divisor, word, digits = unit
    return f"{value / divisor:,.{digits}f} {word}"


def _unit_of(name: str) -> tuple[float, str, int] | None:
    if name.endswith("_bytes"):
        return 1, "B", 0
    return next(((divisor, word, digits) for suffix, divisor, word, digits in _UNITS if name.endswith(suffix)), None)


def _format_bytes(value: float) -> str:
    size, unit = value, 0
    while size >= 1024 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_BYTES[unit]}" if unit == 0 else f"{size:.1f} {_BYTES[unit]}"


def _print_missing(measured: Measured) -> None:
    """Print the missing measures, those of one reason together."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, why, reason in measured.missing:
        by_reason.setdefault((why.replace("-", " "), reason), []).append(title_of(name))
    for (why, reason), names in by_reason.items():
        _print_wrapped("  ", f"{why}: {', '.join(names)}: {reason}")


def _print_wrapped(indent: str, text: str) -> None:
    for line in textwrap.wrap(text, _WIDTH - len(indent) - 2, subsequent_indent="  ") or [""]:
        print_line(f"{indent}{line}")
