# SPDX-License-Identifier: Apache-2.0
"""The devices of a host for a tool that hands out its GPUs in place of vgpuctl (docs/exports.md).

A declared layout says the form of each GPU; a GPU without one is taken as it stands. Limits go to the
remarks, one sentence each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType
from vgpuctl.model.layout import GpuLayout
from vgpuctl.sharing.kind import HandedAs, SharingKind
from vgpuctl.sharing.kinds import KINDS, VGPU_KINDS, existing_vgpus
from vgpuctl.sharing.matching import entries_for

_VENDORS = {"10de": "nvidia.com", "1002": "amd.com", "8086": "intel.com"}
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class ExportedType:
    """A vGPU type. type_id: as the host writes it, `558` or `nvidia-558`. full_name: as the driver prints it.

    most: on one GPU.
    """

    type_id: str
    name: str
    full_name: str
    most: int | None

    @property
    def mdev_type(self) -> str:
        """The name of a mediated device's type, which Proxmox uses for VFs with types as well."""
        return f"nvidia-{self.type_id}" if self.type_id.isdigit() else self.type_id


@dataclass(frozen=True)
class HandedOut:
    """The devices of one GPU, all of one form.

    host: its name in the inventory; hostname: its own. functions: what is handed out, or what mdevs are made under.
    device_id, subsystem_id: of these functions, None where nobody read them. types: those that are wanted, or all that
    the GPU offers; are_named: somebody said which. carried: the types that VFs carry now, by address.
    """

    host: str
    hostname: str
    gpu: Gpu
    how: HandedAs
    functions: tuple[str, ...]
    device_id: str | None
    subsystem_id: str | None
    types: tuple[ExportedType, ...] = ()
    are_named: bool = False
    carried: tuple[tuple[str, ExportedType], ...] = ()

    @property
    def model(self) -> str:
        """The board's short name: `A40`, `Flex_170`; its PCI id where nobody knows it."""
        gpu = self.gpu
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        name = board.name if board is not None else gpu.name or f"{gpu.vendor_id}_{gpu.device_id}"
        return slug(re.sub(r"^(NVIDIA|AMD|Intel)\s+", "", name), "_")

    @property
    def domain(self) -> str:
        """The DNS name of the vendor."""
        return _VENDORS.get(self.gpu.vendor_id, "vgpuctl.io")

    @property
    def title(self) -> str:
        """GPU and host, for sentences."""
        return f"GPU {self.gpu.address} of {self.host}"


@dataclass(frozen=True)
class ToolFile:
    """One file for a tool. path: below the folder of the export. about: what it is for, as comments ahead of body."""

    path: str
    about: tuple[str, ...]
    body: str

    def text(self, command: str, remarks: Sequence[str]) -> str:
        """The whole file. command: that wrote it. remarks: what the tool cannot be told, as comments too."""
        lines = [f"Written by `vgpuctl {command}`; see docs/exports.md.", *self.about]
        lines += [f"LIMIT: {one}" for one in remarks]
        return "".join(f"# {line}\n" for line in lines) + self.body


def slug(text: str, joint: str) -> str:
    """Letters and digits of a text, with one joint for whatever is between them."""
    return _NOT_IN_NAME.sub(joint, text).strip(joint)


def handed_out(
    host: str, facts: HostFacts, layout: Sequence[GpuLayout], profile: str | None, remarks: list[str]
) -> list[HandedOut]:
    """The devices of each GPU of a host. profile: the vGPU type to hand out where the layout names none or several."""
    found = []
    for gpu in facts.gpus:
        title = f"GPU {gpu.address} of {host}"
        entries = entries_for(gpu, layout)
        if len(entries) > 1:
            remarks.append(f"{title}: several entries of the layout fit it; it is left out")
            continue
        kind, reason = _kind_of(gpu, entries[0] if entries else None)
        if kind is None:
            remarks.append(f"{title}: {reason}; it is left out")
            continue
        if not entries:
            remarks.append(f"{title}: no layout is declared; it is exported as it stands, {kind.handed_as.value}")
        found.append(_devices(host, facts, gpu, kind, entries[0] if entries else None, profile, remarks))
    return found


def _kind_of(gpu: Gpu, entry: GpuLayout | None) -> tuple[SharingKind | None, str]:
    if entry is None:
        offered = [kind for kind in (*VGPU_KINDS, *reversed(KINDS)) if kind.sharing in gpu.sharing]
        return (offered[0], "") if offered else (None, "it offers nothing to VMs as it stands")
    declared = [kind for kind in KINDS if entry.layout.kind in kind.layouts]
    if not declared:
        return None, f"its layout {entry.layout.kind} gives nothing to VMs"
    if len(declared) == 1 and not declared[0].is_on_vf:
        return declared[0], ""
    usable = [kind for kind in declared if kind.sharing in gpu.sharing]
    if not usable:
        return None, f"it is not in its layout {entry.layout.kind}: run `vgpuctl apply-hosts`"
    return usable[0], ""


def _devices(
    host: str,
    facts: HostFacts,
    gpu: Gpu,
    kind: SharingKind,
    entry: GpuLayout | None,
    profile: str | None,
    remarks: list[str],
) -> HandedOut:
    offered = {catalog.short_name(one.name): _offered(one) for one in gpu.types}
    by_id = {one.type_id: one for one in offered.values()}
    carried = tuple(
        (one.function, by_id[one.type_id])
        for one in existing_vgpus(gpu)
        if one.type_id is not None and one.type_id in by_id
    )
    layout = entry.layout if entry is not None else None
    declared = (*getattr(layout, "types", ()), *dict(getattr(layout, "shares", ())))
    wanted = (profile,) if profile is not None else declared or tuple(one.name for _, one in carried)
    types = [offered[name] for name in dict.fromkeys(wanted) if name in offered]
    missing = [name for name in dict.fromkeys(wanted) if name not in offered]
    if missing and gpu.types:
        remarks.append(f"GPU {gpu.address} of {host}: it does not offer {', '.join(missing)}")
    functions = tuple(one.address for one in gpu.vfs) if kind.is_on_vf else (gpu.address,)
    return HandedOut(
        host=host,
        hostname=facts.hostname,
        gpu=gpu,
        how=kind.handed_as,
        functions=functions,
        device_id=gpu.vf_device_id if kind.is_on_vf else gpu.device_id,
        subsystem_id=gpu.vf_subsystem_id if kind.is_on_vf else gpu.subsystem_id,
        types=tuple(types) if wanted else tuple(offered.values()),
        are_named=bool(wanted),
        carried=tuple((function, one) for function, one in carried if not types or one in types),
    )


def _offered(one: VgpuType) -> ExportedType:
    return ExportedType(one.type_id, catalog.short_name(one.name), one.full_name, one.max_instances)
