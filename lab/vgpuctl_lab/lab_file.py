# SPDX-License-Identifier: Apache-2.0
"""A lab in a YAML file: its hosts with their cards, and how many simulated ones (docs/lab.md)."""

from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.units import SIZE_HINT, exact_mib, parse_mib
from vgpuctl.specs.document import read_document
from vgpuctl.specs.field import Text
from vgpuctl.specs.reading import read_value
from vgpuctl.specs.value import Value
from vgpuctl.trusted_files import NAMED
from vgpuctl_lab.cards import HostShape, parse_host
from vgpuctl_lab.simulated.mix import DEFAULT_MIX

_MEMORY = Text(parse_mib, exact_mib, hint=SIZE_HINT)
_USUAL_MEMORY_MIB = 4096
_MOST_HOSTS = 100_000
_LONGEST_LATENCY_MS = 60_000


@dataclass(frozen=True)
class LabFile:
    """The content of the file. shapes: hosts with a kernel, of memory_mib each; simulated_count: 0 for none."""

    shapes: tuple[HostShape, ...]
    memory_mib: int
    simulated_count: int
    mix: str
    latency_ms: float


def read_lab_file(path: Path) -> LabFile:
    """Read a lab file. Raises UsageError with file, line and key."""
    try:
        document = read_document(str(path), NAMED)
        if document.warnings:
            raise InventoryError(document.warnings[0], hint="write each key once")
        return _read(Value(document.data, document.origin(), "", name="lab", subject="a lab file"))
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint or "docs/lab.md shows a lab file") from error


def _read(root: Value) -> LabFile:
    entries = root.fields(("hosts", "memory", "simulated"))
    hosts = entries["hosts"].mapping() if "hosts" in entries else {}
    simulated = (
        entries["simulated"].fields(("count", "mix", "latency_ms"), required=("count",))
        if "simulated" in entries
        else {}
    )
    if not hosts and not simulated:
        raise root.refuse("has no host", hint="give it `hosts:` or `simulated:`")
    return LabFile(
        tuple(_host(name, cards) for name, cards in hosts.items()),
        read_value(_MEMORY, entries["memory"]) if "memory" in entries else _USUAL_MEMORY_MIB,
        simulated["count"].whole(1, _MOST_HOSTS) if simulated else 0,
        simulated["mix"].text() if "mix" in simulated else DEFAULT_MIX,
        simulated["latency_ms"].number(0, _LONGEST_LATENCY_MS) if "latency_ms" in simulated else 0,
    )


def _host(name: str, cards: Value) -> HostShape:
    with cards.located():
        return parse_host(f"{name}={','.join(card.text() for card in cards.items())}")
