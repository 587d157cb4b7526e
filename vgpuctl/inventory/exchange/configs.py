# SPDX-License-Identifier: Apache-2.0
"""The frame that NVIDIA's two configuration files share: named lists of entries, each for some of the GPUs.

An entry has `devices` (`all`, or indexes among NVIDIA's GPUs in the order of their addresses) and may have
`device-filter` (PCI ids as `0xDDDDVVVV`, device before vendor); both must fit. Nothing says which of two entries counts
for a GPU that both fit, so that is refused.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory.exchange.refusal import Left, host_reasons
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, Layout
from vgpuctl.model.plural import counted
from vgpuctl.sharing.matching import entries_for
from vgpuctl.specs.document import YamlDocument
from vgpuctl.specs.value import Value

VERSION = "v1"
NVIDIA = "10de"
_HIGHEST_INDEX = 1023
_DEVICE_ID = re.compile(r"0x([0-9a-f]{4})([0-9a-f]{4})", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_WITHOUT_HOST = "give --host HOST, whose GPUs tell which address an index is"


@dataclass(frozen=True)
class Frame:
    """One of the two formats.

    tool: its name. configs: the key of the named lists. own_keys: of an entry beside the ones that both have; required
    ones of them. read: an entry's keys as a layout. write: a layout as such keys, or the reason why not.
    """

    tool: str
    configs: str
    own_keys: tuple[str, ...]
    required: tuple[str, ...]
    read: Callable[[Value, dict[str, Value]], Layout]
    write: Callable[[Layout], dict[str, Any] | str]


@dataclass(frozen=True)
class _Selected:
    """One entry. models: `vendor:device`, empty for every model. indexes: None for all GPUs."""

    value: Value
    models: tuple[str, ...]
    indexes: tuple[int, ...] | None
    layout: Layout

    def fits(self, index: int, gpu: Gpu) -> bool:
        """True if the entry is for this GPU: of several boards with its PCI id, those that offer the entry's types."""
        model = f"{gpu.vendor_id}:{gpu.device_id}"
        if self.models and model not in self.models:
            return False
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        meant = boards_that_offer(model, self.layout) if self.models else ()
        if board is not None and meant and board not in meant:
            return False
        return self.indexes is None or index in self.indexes


def nvidia_gpus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that the tools count, in their order."""
    return sorted((gpu for gpu in gpus if gpu.vendor_id == NVIDIA), key=lambda gpu: gpu.address)


def import_config(frame: Frame, document: YamlDocument, config: str | None, gpus: Sequence[Gpu] | None) -> HostLayout:
    """One named configuration of a file as a layout.

    config: None where the file has only one. gpus: of the host it is for, None where no host was named; then the
    entries must do without indexes. Raises InventoryError with file and line.
    """
    top = Value(document.data, document.origin(), "", name="file", subject=f"{frame.tool}'s file")
    fields = top.fields(("version", frame.configs), required=("version", frame.configs))
    if fields["version"].content != VERSION:
        raise fields["version"].refuse(f"is {fields['version'].content!r}", hint=f"this vgpuctl reads {VERSION}")
    named = fields[frame.configs].mapping()
    selected = [_read_entry(frame, entry) for entry in _choose(fields[frame.configs], named, config).items()]
    if not selected:
        raise fields[frame.configs].refuse("has an empty configuration", hint="an entry says at least `devices: all`")
    if all(one.indexes is None for one in selected):
        return HostLayout(gpus=_by_model(selected))
    if gpus is None:
        first = next(one for one in selected if one.indexes is not None)
        raise first.value.refuse("counts GPUs, which needs a host", hint=_WITHOUT_HOST)
    return HostLayout(gpus=_by_address(selected, nvidia_gpus(gpus)))


def _choose(configs: Value, named: dict[str, Value], config: str | None) -> Value:
    listed = ", ".join(named)
    if config is None:
        if len(named) == 1:
            return next(iter(named.values()))
        raise configs.refuse(f"has {len(named)} configurations", hint=f"choose one with --config: {listed}")
    if config not in named:
        raise configs.refuse(f"has no configuration {config!r}", hint=f"it has {listed}")
    return named[config]


def _read_entry(frame: Frame, entry: Value) -> _Selected:
    keys = entry.fields(("device-filter", "devices", *frame.own_keys), required=("devices", *frame.required))
    is_filtered = "device-filter" in keys and keys["device-filter"].content is not None
    models = _read_models(keys["device-filter"]) if is_filtered else ()
    return _Selected(entry, models, _read_indexes(keys["devices"]), frame.read(entry, keys))


def _read_models(value: Value) -> tuple[str, ...]:
    items = value.items() if isinstance(value.content, list) else [value]
    models: list[str] = []
    for item in items:
        text = item.text(hint='quote it: "0x20B010DE"')
        match = _DEVICE_ID.fullmatch(text)
        if match is None or match[2].lower() != NVIDIA:
            raise item.refuse(f"is {text!r}, not a PCI id of NVIDIA", hint='write device and vendor, as "0x20B010DE"')
        models.append(f"{match[2]}:{match[1]}".lower())
    return tuple(dict.fromkeys(models))


def _read_indexes(value: Value) -> tuple[int, ...] | None:
    if value.content == "all":
        return None
    if not isinstance(value.content, list):
        raise value.refuse(f"is {value.content!r}", hint="write `all`, or indexes as [0, 1]")
    return tuple(dict.fromkeys(item.whole(0, _HIGHEST_INDEX) for item in value.items()))


def _by_model(selected: Sequence[_Selected]) -> tuple[GpuLayout, ...]:
    found: dict[GpuMatch, _Selected] = {}
    shared = _contested(selected)
    for one in selected:
        for match in _matches_of(one, shared):
            for other_match, other in found.items():
                both = match == other_match or GpuMatch() in (match, other_match)
                if both and one.layout != other.layout:
                    raise _contradiction(one, other, str(match if match.board else other_match))
            found.setdefault(match, one)
    return tuple(GpuLayout(match, one.layout, str(one.value.origin)) for match, one in found.items())


def _contested(selected: Sequence[_Selected]) -> set[str]:
    """The models for which entries want different things, and whose boards can be told apart by the types."""
    wanted: dict[str, set[Layout]] = {}
    for one in selected:
        for model in one.models:
            wanted.setdefault(model, set()).add(one.layout)
    return {
        model
        for model, layouts in wanted.items()
        if len(layouts) > 1 and all(boards_that_offer(model, layout) for layout in layouts)
    }


def _matches_of(one: _Selected, contested: set[str]) -> list[GpuMatch]:
    found: list[GpuMatch] = []
    for model in one.models:
        if model in contested:
            found += [GpuMatch(board=board.name) for board in boards_that_offer(model, one.layout)]
        else:
            found.append(GpuMatch(board=model))
    return found or [GpuMatch()]


def boards_that_offer(model: str, layout: Layout) -> tuple[catalog.Board, ...]:
    """Of several boards with one PCI id (`vendor:device`), those with all vGPU types that a layout names.

    Empty where the id means one board or none, or where the types tell nothing.
    """
    boards = [board for board in catalog.boards().values() if model in (board.pci, *board.also_pci)]
    names = [name for name, _ in getattr(layout, "shares", ())]
    if len(boards) < 2 or not names:
        return ()
    offering = [one for one in boards if all(catalog.type_by_name(one, name) is not None for name in names)]
    return tuple(offering) if len(offering) < len(boards) else ()


def _by_address(selected: Sequence[_Selected], gpus: Sequence[Gpu]) -> tuple[GpuLayout, ...]:
    for one in selected:
        for index in one.indexes or ():
            if index >= len(gpus):
                raise one.value.refuse(
                    f"is for GPU {index}", hint=f"the host has {counted(len(gpus), 'GPU')} of NVIDIA, from 0"
                )
    entries: list[GpuLayout] = []
    for index, gpu in enumerate(gpus):
        fitting = [one for one in selected if one.fits(index, gpu)]
        for one in fitting[1:]:
            if one.layout != fitting[0].layout:
                raise _contradiction(one, fitting[0], f"GPU {index} at {gpu.address}")
        if fitting:
            match = GpuMatch(address=gpu.address)
            entries.append(GpuLayout(match, fitting[0].layout, str(fitting[0].value.origin)))
    return tuple(entries)


def _contradiction(one: _Selected, other: _Selected, what: str) -> InventoryError:
    return one.value.refuse(
        f"wants {what} otherwise than the entry at {other.value.origin}", hint="make them fit different GPUs"
    )


def export_config(
    frame: Frame, layout: HostLayout, config: str, gpus: Sequence[Gpu] | None, left: Left
) -> dict[str, Any]:
    """A layout as the content of a file with one named configuration.

    gpus: of the host, needed where the layout tells single GPUs apart, None where they are not known. Whatever the
    format has no place for goes to `left`. Raises UsageError where GPUs are needed and not known.
    """
    left.out_all(host_reasons(layout, frame.tool))
    if needs_gpus(layout):
        if gpus is None:
            raise UsageError(f"the layout tells single GPUs apart, which {frame.tool} does by index: read the host")
        entries = _entries_by_index(frame, layout, nvidia_gpus(gpus), left)
    else:
        entries = _entries_by_model(frame, layout, left)
    if not entries:
        left.out(f"no entry is left that {frame.tool} could have")
    return {"version": VERSION, frame.configs: {config: entries}}


def config_text(content: dict[str, Any]) -> str:
    """The file's text."""
    text: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=None)
    return text


def needs_gpus(layout: HostLayout) -> bool:
    """True if the entries can be told apart only on the host itself.

    Both tools want entries that do not overlap, so an entry for all GPUs beside others needs indexes too.
    """
    if any(entry.match.rank == 2 for entry in layout.gpus):
        return True
    if len(layout.gpus) < 2:
        return False
    models = [model for entry in layout.gpus for model in _models_of(entry.match)]
    return len(set(models)) < len(models) or any(entry.match == GpuMatch() for entry in layout.gpus)


def _models_of(match: GpuMatch) -> list[str]:
    if match.board is None:
        return []
    if _PCI_ID.fullmatch(match.board.lower()):
        return [match.board.lower()]
    return [model for board in catalog.boards_named(match.board) for model in (board.pci, *board.also_pci)]


def _entries_by_model(frame: Frame, layout: HostLayout, left: Left) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for entry in layout.gpus:
        keys = frame.write(entry.layout)
        if isinstance(keys, str):
            left.out(f"{entry.match}: {keys}")
            continue
        models = _models_of(entry.match)
        foreign = [model for model in models if not model.startswith(NVIDIA)]
        if foreign:
            left.out(f"{entry.match}: {frame.tool} knows NVIDIA's GPUs only")
            continue
        shared = _boards_beside(entry.match, models)
        if shared:
            left.out(f"{entry.match}: {shared[0]} has the same PCI id, by which {frame.tool} tells models apart")
            continue
        chosen = {"device-filter": [_device_id(model) for model in models]} if models else {}
        entries.append({**chosen, "devices": "all", **keys})
    return entries


def _boards_beside(match: GpuMatch, models: Sequence[str]) -> list[str]:
    if match.board is None or _PCI_ID.fullmatch(match.board.lower()):
        return []
    meant = catalog.boards_named(match.board)
    return [
        board.name
        for board in catalog.boards().values()
        if board not in meant and any(model in (board.pci, *board.also_pci) for model in models)
    ]


def _entries_by_index(frame: Frame, layout: HostLayout, gpus: Sequence[Gpu], left: Left) -> list[dict[str, Any]]:
    meant: dict[Layout, list[int]] = {}
    used: set[GpuMatch] = set()
    for index, gpu in enumerate(gpus):
        fitting = entries_for(gpu, layout.gpus)
        used |= {entry.match for entry in fitting}
        if len(fitting) > 1:
            raise UsageError(f"the layout has two entries as narrow as each other for {gpu.address}")
        for entry in fitting:
            keys = frame.write(entry.layout)
            if isinstance(keys, str):
                left.out(f"{gpu.address}: {keys}")
            else:
                meant.setdefault(entry.layout, []).append(index)
    for entry in layout.gpus:
        if entry.match not in used:
            left.out(f"{entry.match}: no GPU of NVIDIA on the host fits it")
    entries: list[dict[str, Any]] = []
    for wanted, indexes in meant.items():
        written = frame.write(wanted)
        assert not isinstance(written, str)
        entries.append({"devices": indexes, **written})
    return entries


def _device_id(model: str) -> str:
    vendor, device = model.upper().split(":")
    return f"0x{device}{vendor}"
