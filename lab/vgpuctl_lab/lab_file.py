# SPDX-License-Identifier: Apache-2.0
"""A lab in a YAML file: its hosts with their cards, and how many simulated ones (docs/lab.md)."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from vgpuctl.errors import UsageError
from vgpuctl.model.units import parse_mib
from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded, read_documents
from vgpuctl_lab.cards import HostShape, parse_host
from vgpuctl_lab.simulated.mix import DEFAULT_MIX


class _Simulated(msgspec.Struct, forbid_unknown_fields=True):
    count: int
    mix: str = DEFAULT_MIX
    latency_ms: float = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    hosts: dict[str, list[str]] = {}
    memory: str | int = "4GiB"
    simulated: _Simulated | None = None


@dataclass(frozen=True)
class LabFile:
    """What the file asks for. shapes: hosts with a kernel, of memory_mib each; simulated_count: 0 for none."""

    shapes: tuple[HostShape, ...]
    memory_mib: int
    simulated_count: int
    mix: str
    latency_ms: float


def read_lab_file(path: Path) -> LabFile:
    """Read a lab file. Raises UsageError that names the file and what is wrong."""
    try:
        documents = read_documents(decode(read_bounded(path)))
        file = msgspec.convert(documents[0] if len(documents) == 1 else documents, _File)
    except Malformed as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise UsageError(f"the lab file {place}: {error.what}", hint=error.hint) from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}", hint="docs/lab.md shows a lab file") from error
    if not file.hosts and file.simulated is None:
        raise UsageError(f"{path} names no host", hint="give it `hosts:` or `simulated:`")
    try:
        shapes = tuple(parse_host(f"{name}={','.join(cards)}") for name, cards in file.hosts.items())
        memory_mib = parse_mib(str(file.memory), what="memory")
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error
    simulated = file.simulated or _Simulated(count=0)
    if simulated.count < 0 or simulated.latency_ms < 0 or (file.simulated and simulated.count == 0):
        raise UsageError(f"{path}: simulated: count must be at least 1 and latency_ms at least 0")
    return LabFile(shapes, memory_mib, simulated.count, simulated.mix, simulated.latency_ms)
