# SPDX-License-Identifier: Apache-2.0
"""The input of the checks, and questions that several of them ask."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl import catalog
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.diagnostics import GpuDiagnostics, HostDiagnostics, LogLine, UnitDiagnostics
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.catalog.entries import Board
from vgpuctl.model.layout import HostLayout, Layout, LayoutKind, TuningLayout
from vgpuctl.model.lease import Lease
from vgpuctl.sharing.matching import entries_for

NVIDIA = "10de"


@dataclass(frozen=True)
class DomainDiagnostics:
    """One domain of the host's libvirt. devices: PCI addresses and mdev UUIDs that its definition names.

    is_autostarted: libvirt itself starts it with the host. is_made: vgpuctl made it, or adopted it.
    """

    name: str
    uuid: str
    is_active: bool
    devices: tuple[str, ...]
    is_autostarted: bool = False
    is_made: bool = False


@dataclass(frozen=True)
class TunnelState:
    """One tunnel of the host. port: UDP. is_silent: the other end sent packets and none arrived.

    refused: the kernel's word when packets to the other end were refused. bfd: what BFD says, None without it.
    """

    remote: str
    port: int
    is_silent: bool = False
    refused: str | None = None
    bfd: str | None = None


@dataclass(frozen=True)
class Examined:
    """One host. layout: None where none is declared. made: shares that a layout made. domains: None when not asked.

    tunnels: as packets between the hosts of this run show them. vms: UUIDs of the host's VMs in the store.
    elsewhere: the other hosts on which the store has VMs whose domains are here, by UUID. functions: what is wrong with
    programs of tenants' networks on the host, a sentence each.
    """

    facts: HostFacts
    diagnostics: HostDiagnostics
    layout: HostLayout | None = None
    leases: Sequence[Lease] = ()
    made: Collection[str] = ()
    domains: Sequence[DomainDiagnostics] | None = None
    tunnels: Sequence[TunnelState] = ()
    vms: Collection[str] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    functions: Sequence[str] = ()

    def nvidia_gpus(self) -> Iterator[Gpu]:
        """NVIDIA's GPUs of the host."""
        return (gpu for gpu in self.facts.gpus if gpu.vendor_id == NVIDIA)

    def layout_of(self, gpu: Gpu) -> Layout | None:
        """The GPU's declared layout, None without one or with several."""
        entries = entries_for(gpu, self.layout.gpus) if self.layout else []
        return entries[0].layout if len(entries) == 1 else None

    def tuning_of(self, gpu: Gpu) -> TuningLayout:
        """The declared settings of the whole card."""
        entries = entries_for(gpu, self.layout.gpus) if self.layout else []
        return entries[0].tuning if len(entries) == 1 else TuningLayout()

    def kind_of(self, gpu: Gpu) -> LayoutKind | None:
        """The kind of the GPU's declared layout."""
        layout = self.layout_of(gpu)
        return layout.kind if layout is not None else None

    def is_for_vgpus(self, gpu: Gpu) -> bool:
        """True if vGPUs are declared for the GPU, or there already."""
        return self.kind_of(gpu) in (LayoutKind.VGPU, LayoutKind.MIG_VGPU) or bool(gpu.types)

    def diagnostics_of(self, gpu: Gpu) -> GpuDiagnostics:
        """The GPU's diagnostics; empty ones if none were read."""
        return next((one for one in self.diagnostics.gpus if one.address == gpu.address), GpuDiagnostics(gpu.address))

    def unit(self, name: str) -> UnitDiagnostics | None:
        """systemd's state of a unit, None where systemd was not asked."""
        return next((one for one in self.diagnostics.units if one.name == name), None)

    def said(self, check: CheckId) -> list[str]:
        """Log lines for a check, with the log's name; of those about any device the ones about a GPU."""
        return [f"{line.source}: {line.text}" for line in self._lines(check)]

    def said_of_functions(self, check: CheckId) -> Iterator[tuple[Gpu | None, str]]:
        """The same lines, each with the card that it is about; None for a line that names no device."""
        for line in self._lines(check):
            gpu = next((one for one in self.facts.gpus if line.device in functions_of(one)), None)
            if line.device is None or gpu is not None:
                yield gpu, f"{line.source}: {line.text}"

    def _lines(self, check: CheckId) -> Iterator[LogLine]:
        known = {None, *(one.address for one in self.facts.unread_functions)}
        for gpu in self.facts.gpus:
            known |= {*functions_of(gpu), *(gpu.topology.bridges if gpu.topology is not None else ())}
        return (line for line in self.diagnostics.lines if line.check == check and line.device in known)


def functions_of(gpu: Gpu) -> set[str]:
    """The addresses of a card's functions and VFs."""
    return {gpu.address, *(one.address for one in gpu.companions), *(one.address for one in gpu.vfs)}


def board_of(gpu: Gpu) -> Board | None:
    """The GPU's board as the catalogue has it."""
    return catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)


def name_of(gpu: Gpu) -> str:
    """The GPU's name for people."""
    board = board_of(gpu)
    return board.name if board is not None else gpu.name or f"{gpu.vendor_id}:{gpu.device_id}"
