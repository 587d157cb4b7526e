# SPDX-License-Identifier: Apache-2.0
"""Definitions of mdevctl: a file for each mediated device, `/etc/mdevctl.d/PARENT/UUID` (reference 2.4).

Definitions that start by themselves (`"start": "auto"`) are the shares of a layout of kind vgpu.
"""

import uuid as uuids
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.catalog import short_name
from vgpuctl.errors import InventoryError
from vgpuctl.inventory.exchange.refusal import Left, host_reasons
from vgpuctl.inventory.exchange.vgpu_device_manager import time_sliced_layout
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, VgpuLayout
from vgpuctl.planner.layout.shares import share_uuid
from vgpuctl.sharing.kinds import vgpu_kind_on
from vgpuctl.sharing.matching import entries_for
from vgpuctl.sharing.type_names import likely_name
from vgpuctl.specs.document import read_document
from vgpuctl.specs.value import Value
from vgpuctl.trusted_files import NAMED

_SUBJECT = "a definition of mdevctl"
_CALLOUTS = "scripts.d"
Definitions = dict[str, dict[str, dict[str, Any]]]


def import_mdevctl(path: Path, facts: HostFacts, left: Left) -> HostLayout:
    """The definitions of a folder like /etc/mdevctl.d, or of a file that `mdevctl list -d --dumpjson` wrote.

    facts: of the host that has them; they tell the GPU of a parent and the name of a type id. Raises InventoryError
    with file and line. Definitions that a layout cannot say go to `left`.
    """
    counts: dict[str, Counter[str]] = {}
    parents = {function.address: gpu for gpu in facts.gpus for function in gpu.vfs}
    parents |= {gpu.address: gpu for gpu in facts.gpus}
    for parent, identity, value in _definitions(path):
        fields = value.fields(("mdev_type", "start", "attrs"), required=("mdev_type", "start"))
        _check_uuid(value, identity)
        type_id, start = fields["mdev_type"].text(), fields["start"].text()
        attributes = fields["attrs"].items() if "attrs" in fields else []
        gpu = parents.get(parent)
        if gpu is None:
            left.out(f"{value.origin}: {parent} is no GPU of the host")
        elif start not in ("auto", "manual"):
            raise fields["start"].refuse(f"is {start!r}", hint="it can be auto or manual")
        elif start == "manual":
            left.out(f"{value.origin}: {identity} is started by hand; a layout's shares exist always")
        elif attributes:
            left.out(f"{fields['attrs'].origin}: {identity} has attributes, which a layout cannot say")
        else:
            name = likely_name(gpu, type_id)
            if name is None:
                raise fields["mdev_type"].refuse(f"is {type_id!r}, which {gpu.address} does not offer")
            if catalog.is_mig_backed(name):
                left.out(f"{value.origin}: {name} sits in a MIG instance, which mdevctl says nothing of")
            else:
                counts.setdefault(gpu.address, Counter())[name] += 1
    entries = (
        GpuLayout(GpuMatch(address=address), time_sliced_layout(shares)) for address, shares in sorted(counts.items())
    )
    return HostLayout(gpus=tuple(entries))


def export_mdevctl(layout: HostLayout, facts: HostFacts, left: Left) -> Definitions:
    """The layout's shares as definitions, by parent and UUID.

    Shares that exist keep their UUID; for the others it is the one that apply-hosts would give them.
    """
    left.out_all(host_reasons(layout, "mdevctl"))
    found: Definitions = {}
    used: set[GpuMatch] = set()
    for gpu in sorted(facts.gpus, key=lambda one: one.address):
        for entry in entries_for(gpu, layout.gpus):
            used.add(entry.match)
            reason = _reason_against(gpu, entry)
            if reason is not None:
                left.out(f"{gpu.address}: {reason}")
                continue
            assert isinstance(entry.layout, VgpuLayout)
            for parent, identity, type_id in _devices(gpu, entry.layout, facts.hostname, left):
                found.setdefault(parent, {})[identity] = {"mdev_type": type_id, "start": "auto", "attrs": []}
    left.out_all([f"{one.match}: no GPU of the host fits it" for one in layout.gpus if one.match not in used])
    return found


def dumped(definitions: Definitions) -> list[dict[str, Any]]:
    """Definitions in the form of `mdevctl list -d --dumpjson`."""
    if not definitions:
        return []
    return [{parent: [{identity: one} for identity, one in devices.items()] for parent, devices in definitions.items()}]


def definition_paths(definitions: Definitions) -> Sequence[tuple[str, dict[str, Any]]]:
    """Each definition with its path below /etc/mdevctl.d."""
    return [
        (f"{parent}/{identity}", one) for parent, devices in definitions.items() for identity, one in devices.items()
    ]


def _definitions(path: Path) -> Iterator[tuple[str, str, Value]]:
    if not path.is_dir():
        yield from _dumped_definitions(path)
        return
    for folder in _listed(path):
        if not folder.is_dir() or folder.name == _CALLOUTS:
            continue
        for file in _listed(folder):
            document = read_document(str(file), NAMED)
            yield folder.name, file.name, Value(document.data, document.origin(), "", name=file.name, subject=_SUBJECT)


def _dumped_definitions(path: Path) -> Iterator[tuple[str, str, Value]]:
    document = read_document(str(path), NAMED)
    top = Value(document.data, document.origin(), "", name="file", subject=_SUBJECT)
    for parents in top.items():
        for parent, devices in parents.mapping().items():
            for device in devices.items():
                for identity, value in device.mapping().items():
                    yield parent, identity, value


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    except OSError as exc:
        raise InventoryError(f"{folder}: the folder cannot be read: {exc.strerror}") from exc


def _check_uuid(value: Value, identity: str) -> None:
    try:
        uuids.UUID(identity)
    except ValueError as exc:
        raise value.refuse(f"is called {identity!r}, not by a UUID") from exc


def _reason_against(gpu: Gpu, entry: GpuLayout) -> str | None:
    layout = entry.layout
    if not isinstance(layout, VgpuLayout):
        return f"kind {layout.kind}: mdevctl knows mediated devices only"
    for name in ("virtual_functions", "scheduler", "types"):
        if getattr(layout, name):
            return f"{name}: mdevctl has no place for it"
    if layout != time_sliced_layout(dict(layout.shares)):
        return "virtual_functions or size_mode: mdevctl has no place for it"
    kind = vgpu_kind_on(gpu)
    if layout.shares and (kind is None or not kind.has_uuid):
        return "its vGPUs are no mediated devices, or its VFs are not enabled yet"
    return None


def _devices(gpu: Gpu, layout: VgpuLayout, hostname: str, left: Left) -> Iterator[tuple[str, str, str]]:
    """Parent, UUID and type id of each share; those that exist come first."""
    ids = {short_name(one.name): one.type_id for one in gpu.types}
    free = _free_parents(gpu)
    taken = {mdev.uuid for mdev in gpu.mdevs}
    for name, wanted in layout.shares:
        if name not in ids:
            left.out(f"{gpu.address}: it does not offer {name}")
            continue
        existing = sorted((one for one in gpu.mdevs if one.type_id == ids[name]), key=lambda one: one.uuid)[:wanted]
        for mdev in existing:
            yield mdev.parent, mdev.uuid, ids[name]
        for number in range(len(existing), wanted):
            parent = next(free, None)
            if parent is None:
                left.out(f"{gpu.address}: it has no free VF for {wanted - number} of {wanted} x {name}")
                break
            identity = share_uuid(hostname, gpu.address, name, number, taken)
            taken.add(identity)
            yield parent, identity, ids[name]


def _free_parents(gpu: Gpu) -> Iterator[str]:
    kind = vgpu_kind_on(gpu)
    if kind is not None and not kind.is_on_vf:
        while True:
            yield gpu.address
    for function in gpu.vfs:
        if function.mdev_uuid is None and not function.holders:
            yield function.address
