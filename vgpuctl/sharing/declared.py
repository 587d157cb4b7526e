# SPDX-License-Identifier: Apache-2.0
"""The gate of the declared layout: a declared GPU serves only what its entry in `vgpu:` says (docs/placement.md).

Placing asks it with the facts of the store, and the check right before building asks it again with fresh ones.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.cdi import FILE
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.vf_health import NVIDIA_VENDOR
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.layout import GpuLayout, LayoutKind, MigVgpuLayout, SizeMode, VgpuLayout
from vgpuctl.sharing.matching import entries_for, fits

_ONLY_USE = {
    LayoutKind.PASSTHROUGH: "so it is given away as a whole only",
    LayoutKind.VGPU: "so it serves time-sliced vGPUs only",
    LayoutKind.MIG_VGPU: "so it serves vGPUs in MIG instances only",
    LayoutKind.MIG: "so its MIG instances are the host's own",
    LayoutKind.VF: "so it serves plain VFs only",
    LayoutKind.OFF: "so it serves no VM",
    LayoutKind.HOST: "so it is for containers of the host and serves no VM",
}


@dataclass(frozen=True)
class Declared:
    """The declaration for one GPU. entry: None without one.

    doubt: why the entry cannot be told, as a sentence without subject; the GPU then serves nothing.
    is_in_containers: containers of the host can take it now, whatever is declared. containers_doubt: why nobody knows.
    """

    entry: GpuLayout | None = None
    doubt: str | None = None
    is_in_containers: bool = False
    containers_doubt: str | None = None

    @property
    def is_passthrough(self) -> bool:
        """True if the GPU is declared to be given away as a whole."""
        return self.entry is not None and self.entry.layout.kind is LayoutKind.PASSTHROUGH

    @property
    def is_hosts_own(self) -> bool:
        """True if the GPU is the host's own, as declared or as containers have it, so that nothing of it is free."""
        return self.is_in_containers or (self.entry is not None and self.entry.layout.kind is LayoutKind.HOST)

    def remedy(self, host: str) -> str:
        """How the operator changes what the GPU serves."""
        run = f"run `vgpuctl apply-hosts --limit {host}`"
        if self.containers_doubt is not None:
            return f"see `vgpuctl check-hosts --limit {host}`"
        if self.is_in_containers and self.entry is None:
            return f"declare `vgpu:` of {host} (`version: 1` is enough), then {run}"
        if self.is_in_containers and self.entry is not None and self.entry.layout.kind is not LayoutKind.HOST:
            return run
        place = f" at {self.entry.origin}" if self.entry is not None and self.entry.origin else ""
        return f"change `vgpu:` of {host}{place}, then {run}"


UNDECLARED = Declared()


def containers_unknown(facts: HostFacts) -> str | None:
    """Why it is not known which GPUs containers have; None where it is known, or where no agent looked."""
    return facts.why_unread("cdi") if facts.cdi is None else facts.cdi.unknown


def declared_of(gpu: Gpu, facts: HostFacts, entries: Sequence[GpuLayout]) -> Declared:
    """Find what is declared for a GPU of a host, and whether containers have it. entries: of the host's layout.

    A GPU that shows no UUID may be the one that an entry names by a UUID which no GPU of the host shows.
    """
    found = _entry_of(gpu, facts.gpus, entries) if entries else UNDECLARED
    if facts.cdi is not None and gpu.address in facts.cdi.gpus:
        return replace(found, is_in_containers=True)
    unknown = containers_unknown(facts)
    return found if unknown is None or gpu.vendor_id != NVIDIA_VENDOR else replace(found, containers_doubt=unknown)


def _entry_of(gpu: Gpu, gpus: Sequence[Gpu], entries: Sequence[GpuLayout]) -> Declared:
    found = entries_for(gpu, entries)
    if len(found) > 1:
        places = " and ".join(f"{one.match} ({one.origin or 'no origin'})" for one in found)
        return Declared(found[0], f"is meant by {places}, which contradict each other")
    if gpu.uuid is None and not (found and found[0].match.rank == 2):
        for entry in entries:
            if entry.match.uuid is not None and not any(fits(entry.match, one) for one in gpus):
                return Declared(entry, f"shows no UUID, and may be the GPU of {entry.match}; match it by address")
    return Declared(found[0]) if found else UNDECLARED


def refuse_use(declared: Declared, layouts: Collection[LayoutKind]) -> str | None:
    """Say why a GPU is not used in this way, None when it may be. layouts: that serve this use."""
    if declared.doubt is not None:
        return f"it {declared.doubt}"
    kind = None if declared.entry is None else declared.entry.layout.kind
    if declared.entry is not None and kind is not None and kind not in layouts:
        return f"it is declared {kind}{_at(declared.entry)}, {_ONLY_USE[kind]}"
    if declared.containers_doubt is not None:
        return f"nobody knows whether containers of the host have it: {declared.containers_doubt}"
    return f"containers of the host can take it: {FILE} has it" if declared.is_in_containers else None


def refuse_type(declared: Declared, gpu: Gpu, name: str) -> str | None:
    """Give the reason why a vGPU type (its short name) is not served by a GPU with vGPUs, None when it is.

    Vgpus that the layout keeps ready in equal-size mode leave no room for another size.
    """
    entry = declared.entry
    if entry is None or not isinstance(entry.layout, VgpuLayout | MigVgpuLayout):
        return None
    layout = entry.layout
    is_mig_backed = gpu_instance_slices(name) is not None
    if is_mig_backed != isinstance(layout, MigVgpuLayout):
        return f"it is declared {layout.kind}{_at(entry)}, {_ONLY_USE[layout.kind]}"
    if layout.types and name not in layout.types:
        return f"its layout{_at(entry)} allows {', '.join(layout.types)}, not {name}"
    if isinstance(layout, VgpuLayout) and layout.shares and layout.size_mode is not SizeMode.MIXED:
        kept = layout.shares[0][0]
        sizes = _size_of(gpu, kept), _size_of(gpu, name)
        if None not in sizes and sizes[0] != sizes[1]:
            return f"its layout{_at(entry)} keeps {kept} ready, and all vGPUs of it are of that size; not {name}"
    return None


def refuse_display(declared: Declared, gpu: Gpu) -> str | None:
    """Say that the host shows something on a card, None where it may lose it: where it is declared for passthrough."""
    return gpu.displays[0] if gpu.displays and not declared.is_passthrough else None


def _size_of(gpu: Gpu, name: str) -> int | None:
    """The framebuffer of a type in MiB: as the host says, else as the catalogue knows it."""
    for offered in gpu.types:
        if catalog.short_name(offered.name) == name and offered.framebuffer_mib is not None:
            return offered.framebuffer_mib
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    known = catalog.type_by_name(board, name) if board is not None else None
    return known.fb_mib if known is not None else None


def _at(entry: GpuLayout) -> str:
    return f" ({entry.origin})" if entry.origin else ""
