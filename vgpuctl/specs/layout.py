# SPDX-License-Identifier: Apache-2.0
"""The tables of a host's declared layout, the inventory variable `vgpu` (docs/layout.md).

A new key is a row here, an attribute in model/layout.py and the place that uses it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from vgpuctl import catalog
from vgpuctl.errors import UsageError
from vgpuctl.model.guest_memory import exact_page_size, parse_page_size
from vgpuctl.model.layout import (
    ComputeMode,
    FabricMode,
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    LayoutKind,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    TuningBounds,
    TuningLayout,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.vgpu_params import (
    VgpuParams,
    parse_vgpu_param,
    show_vgpu_param,
)
from vgpuctl.planner.mig_geometry import devices_of, instances_of, part_problem, split_name
from vgpuctl.specs.chassis import CHASSIS
from vgpuctl.specs.field import (
    Choice,
    Field,
    Named,
    Number,
    Repeated,
    Section,
    Table,
    Text,
    Truth,
    Whole,
    text_like,
)
from vgpuctl.specs.layout_match import MATCH_FIELD
from vgpuctl.specs.layout_params import FUNCTION_FIELDS, check_function_params, check_params
from vgpuctl.specs.layout_tuning import TUNE_SECTION, TUNING_FIELDS, checked
from vgpuctl.specs.telemetry import TELEMETRY
from vgpuctl.specs.value import Value

LAYOUT_VARIABLE = "vgpu"
VERSION = 1

_UNIT = re.compile(r"(?!-)[A-Za-z0-9:_.\\@-]+")
_UNIT_ENDING = re.compile(r".+\.(?:service|socket|timer|target)")
_COUNT = Whole(1, 256)
_SCHEDULER_KEYS = ("policy", "time_slice_ms", "time_slice_us")
_WITH_VGPUS = (LayoutKind.VGPU, LayoutKind.MIG_VGPU)
_WITH_MIG = (LayoutKind.MIG, LayoutKind.MIG_VGPU, LayoutKind.HOST)


class BoundDriver(StrEnum):
    """Drivers that a whole card can be bound to ahead of a VM."""

    VFIO_PCI = "vfio-pci"


@dataclass(frozen=True)
class WrittenGpu:
    """An entry of `gpus` as a file has it; each kind has some of the keys."""

    match: GpuMatch
    kind: LayoutKind
    driver: BoundDriver | None = None
    virtual_functions: bool | None = None
    size_mode: SizeMode | None = None
    scheduler: SchedulerLayout | None = None
    types: tuple[str, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()
    vgpu_params: VgpuParams = ()
    geometry: tuple[tuple[str, int], ...] = ()
    placements: tuple[tuple[str, tuple[int, ...]], ...] = ()
    count: int = 0
    vf_params: VgpuParams = ()
    pf_params: VgpuParams = ()
    power_limit_mw: int | None = None
    gpu_clocks_mhz: tuple[int, int] | None = None
    memory_clocks_mhz: tuple[int, int] | None = None
    ecc: bool | None = None
    compute_mode: ComputeMode | None = None
    tune: TuningBounds | None = None


def parse_type(text: str, /, *, what: str) -> str:
    """Read the name of a vGPU type of a layout, whose entry says the model. Raises UsageError."""
    return catalog.profile_name(text).name


def parse_mig_device(text: str, /, *, what: str) -> str:
    """Read the name of a MIG device or profile: `1g.10gb`, `1c.2g.10gb`, and as NVML prints it, `MIG 1g.10gb`.

    Raises UsageError for a part of an instance that does not exist.
    """
    name = " ".join(text.lower().split()).removeprefix("mig ")
    if (problem := part_problem(name)) is not None:
        raise UsageError(f"{what} {problem}")
    return name


_TYPE = Text(parse_type)
_MIG_DEVICE = Text(parse_mig_device)


def _parse_unit(text: str, /, *, what: str) -> str:
    name = text if _UNIT_ENDING.fullmatch(text) else f"{text}.service"
    if not _UNIT.fullmatch(name):
        raise UsageError(f"{what} is {text!r}, not the name of a systemd unit")
    return name


def _gpu(values: dict[str, Any], entry: Value) -> GpuLayout:
    one, keys = GPU.build(values), entry.named(GPU.keys)
    _check_scheduler(one, keys)
    _check_types(one, keys)
    check_params(one.vgpu_params, (*one.types, *dict(one.shares)), keys)
    check_function_params(one.vf_params, one.pf_params, keys)
    tuning = TuningLayout(**{each.name: getattr(one, each.name) for each in fields(TuningLayout)})
    bounds = one.tune or TuningBounds()
    return GpuLayout(one.match, _layout_of(one, keys), str(entry.origin), checked(tuning, bounds, keys), bounds)


def _written_gpu(gpu: GpuLayout) -> WrittenGpu:
    layout = gpu.layout
    given = {one.name: getattr(layout, one.name) for one in fields(layout) if one.name != "instances"}
    if isinstance(layout, MigLayout | MigVgpuLayout | OwnLayout):
        placed = sorted((one.profile, one.start) for one in layout.instances if one.start is not None)
        starts = {profile: tuple(start for name, start in placed if name == profile) for profile, _ in placed}
        given |= {"geometry": tuple(devices_of(layout.instances).items()), "placements": tuple(starts.items())}
    tuning = {one.name: getattr(gpu.tuning, one.name) for one in fields(gpu.tuning)}
    tune = None if gpu.bounds == TuningBounds() else gpu.bounds
    return WrittenGpu(gpu.match, layout.kind, **given, **tuning, tune=tune)


def _layout_of(one: WrittenGpu, keys: Mapping[str, Value]) -> Layout:
    vgpus = (one.size_mode, one.scheduler, one.types, one.shares, tuple(sorted(one.vgpu_params)))
    match one.kind:
        case LayoutKind.PASSTHROUGH:
            return PassthroughLayout(None if one.driver is None else str(one.driver))
        case LayoutKind.VGPU:
            return VgpuLayout(one.virtual_functions, *vgpus)
        case LayoutKind.MIG:
            return MigLayout(_instances(one, keys))
        case LayoutKind.MIG_VGPU:
            return MigVgpuLayout(_instances(one, keys), *vgpus)
        case LayoutKind.VF:
            return VfLayout(one.count, tuple(sorted(one.vf_params)), tuple(sorted(one.pf_params)))
        case LayoutKind.OFF:
            return OffLayout()
        case LayoutKind.HOST:
            return _own_layout(one, keys)


def _own_layout(one: WrittenGpu, keys: Mapping[str, Value]) -> OwnLayout:
    written = keys.get("geometry", keys.get("placements"))
    if written is not None and not one.geometry:
        raise written.refuse("names no MIG device", hint="name them in `geometry`, or leave it out for the whole card")
    return OwnLayout(_instances(one, keys) if one.geometry else ())


def _check_scheduler(one: WrittenGpu, keys: Mapping[str, Value]) -> None:
    if one.scheduler is None:
        return
    policy, inside = one.scheduler.policy, keys["scheduler"].named(_SCHEDULER_KEYS)
    if one.size_mode is SizeMode.MIXED and not policy.works_with_mixed_size():
        raise inside["policy"].refuse(
            f"is {policy}, which contradicts size_mode mixed-size",
            hint="mixed sizes work with best-effort and equal-share",
        )
    if one.scheduler.time_slice_us is not None and not policy.has_time_slice():
        raise inside["time_slice_ms"].refuse(f"contradicts policy {policy}, which has no time slice")


def _check_types(one: WrittenGpu, keys: Mapping[str, Value]) -> None:
    """Refuse types and shares that the kind cannot have, or that contradict each other."""
    listed = zip(one.types, keys["types"].items() if one.types else (), strict=True)
    shares = _by_normal_name(_TYPE, keys["shares"]) if one.shares else {}
    is_in_mig = one.kind is LayoutKind.MIG_VGPU
    for name, value in (*listed, *shares.items()):
        if catalog.is_mig_backed(name) != is_in_mig:
            what, kind = ("does not sit", "vgpu") if is_in_mig else ("sits", "mig-vgpu")
            raise value.refuse(
                f"contradicts the kind: type {name} {what} in a MIG instance", hint=f"{name} belongs to kind {kind}"
            )
    for name, value in shares.items():
        if one.types and name not in one.types:
            raise value.refuse(f"contradicts types: {name} is not one of {', '.join(one.types)}")
    if one.kind is LayoutKind.VGPU and one.size_mode is not SizeMode.MIXED and catalog.sizes_differ(list(shares)):
        raise keys["shares"].refuse(
            "has types of different sizes, which contradicts equal sizes", hint="declare size_mode: mixed-size"
        )


def _by_normal_name(names: Text, value: Value) -> dict[str, Value]:
    """The entries of a mapping that was read, by the names that it was read with."""
    return {names.parse(written, what=one.words): one for written, one in value.mapping().items()}


def _instances(one: WrittenGpu, keys: Mapping[str, Value]) -> tuple[WantedInstance, ...]:
    """The instances of `geometry` (device: how many) with `placements` (profile: slots); each slot is for one."""
    for name, value in keys["geometry"].mapping().items():
        if split_name(_MIG_DEVICE.parse(name, what=value.words))[1] and one.kind is LayoutKind.MIG_VGPU:
            raise value.refuse("is a part of a GPU instance", hint="vGPUs sit in whole instances, without parts")
    devices = dict(one.geometry)
    placed = _by_normal_name(_MIG_DEVICE, keys["placements"]) if one.placements else {}
    geometry = Counter(instance.profile for instance in instances_of(devices))
    for name, slots in one.placements:
        value = placed[name]
        if name not in geometry:
            raise value.refuse("is for a profile that the geometry does not have")
        if len(slots) > geometry[name]:
            raise value.refuse(f"has {len(slots)} slots, but the geometry has {geometry[name]} of {name}")
        for number, (slot, item) in enumerate(zip(slots, value.items(), strict=True)):
            if slot in slots[:number]:
                raise item.refuse(f"is {slot} a second time")
    return instances_of(devices, dict(one.placements))


def _layout(values: dict[str, Any], entry: Value) -> HostLayout:
    parts = entry.mapping()
    places = {
        f"{name}.{key}": str(value.origin)
        for name in ("network", "uplinks", "fabric")
        if name in parts and isinstance(parts[name].content, dict)
        for key, value in parts[name].mapping().items()
    }
    layout = replace(LAYOUT.build({**values, "origin": str(entry.origin)}), places=places)
    found: dict[GpuMatch, Value] = {}
    for gpu, item in zip(layout.gpus, entry.mapping()["gpus"].items() if layout.gpus else [], strict=True):
        written = item.mapping()["match"]
        if found.setdefault(gpu.match, written) is not written:
            raise written.refuse(
                f"is for {gpu.match}, as is the entry at {found[gpu.match].origin}", hint="one entry per match"
            )
    return layout


GPU = Table(
    "vgpu.gpus",
    WrittenGpu,
    (
        MATCH_FIELD,
        Field("kind", Choice(LayoutKind), "Use of the GPUs; it decides which other keys they have", is_required=True),
        Field(
            "driver",
            Choice(BoundDriver),
            "Driver to bind the card to now; without it libvirt binds the card when a VM starts",
            kinds=(LayoutKind.PASSTHROUGH,),
        ),
        Field(
            "virtual_functions",
            Truth(),
            "Put vGPUs on VFs; without it, as the board needs",
            kinds=(LayoutKind.VGPU,),
        ),
        Field(
            "size_mode",
            Choice(SizeMode),
            "Sizes of the vGPUs of one GPU, or of one MIG instance: equal or mixed",
            kinds=_WITH_VGPUS,
        ),
        Field(
            "scheduler.policy",
            Choice(SchedulerPolicy),
            "How vGPUs share the time of a GPU",
            is_required=True,
            kinds=_WITH_VGPUS,
        ),
        Field(
            "scheduler.time_slice_ms",
            Number(1, 30, scale=1000),
            "Time slice in milliseconds, not with best-effort; without it, the driver's",
            "scheduler.time_slice_us",
            kinds=_WITH_VGPUS,
        ),
        Field(
            "types",
            _TYPE,
            "vGPU types that may exist; others are reported as a difference and left alone",
            metavar="TYPE",
            is_list=True,
            at_least_one=True,
            repeated=Repeated.REFUSED,
            default="every type",
            kinds=_WITH_VGPUS,
        ),
        Field(
            "shares",
            Named(_TYPE, _COUNT),
            "Least number of vGPUs of each type, which exist before any VM asks for them",
            metavar="TYPE to number",
            kinds=_WITH_VGPUS,
        ),
        Field(
            "vgpu_params",
            Text(parse_vgpu_param, show_vgpu_param),
            "Parameters of each vGPU, NAME=0 or NAME=1 (docs/vgpu-parameters.md); a VM's own win",
            metavar="NAME=VALUE",
            is_list=True,
            at_least_one=True,
            example="[frame_rate_limiter=0]",
            kinds=_WITH_VGPUS,
        ),
        Field(
            "geometry",
            Named(_MIG_DEVICE, _COUNT),
            "MIG devices; {} is MIG without any; kind host may leave it out; no parts (1c.2g.10gb) with mig-vgpu",
            metavar="MIG device to number",
            is_required=True,
            kinds=_WITH_MIG,
            may_lack=(LayoutKind.HOST,),
        ),
        Field(
            "placements",
            Named(_MIG_DEVICE, Whole(0, 63), are_lists=True),
            "Memory slots at which GPU instances of a profile begin; other instances go where they fit",
            metavar="MIG profile to list of slots",
            kinds=_WITH_MIG,
        ),
        Field("count", _COUNT, "Number of VFs", is_required=True, kinds=(LayoutKind.VF,)),
        *FUNCTION_FIELDS,
        *TUNING_FIELDS,
    ),
    (Section("scheduler", "The vGPU scheduler"), TUNE_SECTION),
    kinds_by="kind",
    make=_gpu,
    unmake=_written_gpu,
)
LAYOUT = Table(
    "vgpu",
    HostLayout,
    (
        Field("version", Whole(VERSION, VERSION), "Version of this schema", is_required=True),
        Field("gpus", GPU, "Declared GPUs, one entry for each match", is_list=True),
        Field(
            "kernel_arguments",
            text_like(
                r"[^\s\"']+(?:\"[^\"]*\")?",
                "one kernel argument",
                hint="write one kernel argument per item, such as iommu=pt",
            ),
            "Words that the running kernel's command line must hold; a reboot fixes a missing one",
            metavar="WORD",
            is_list=True,
            repeated=Repeated.REFUSED,
        ),
        Field(
            "stop_services",
            Text(_parse_unit),
            "Units to stop while drivers, MIG modes and VFs change, and to start again; only those that run",
            metavar="UNIT",
            is_list=True,
            repeated=Repeated.REFUSED,
        ),
        Field(
            "hugepages",
            Named(Text(parse_page_size, exact_page_size), Whole(0, 1 << 30)),
            "Huge pages over all NUMA nodes, for VMs with --hugepages: {1GiB: 64, 2MiB: 0}",
            metavar="page size to number",
        ),
        Field(
            "uplinks",
            Named(Text(), text_like(r"[^\s/:]{1,15}", "the name of a network interface")),
            "Interface of the host for each physical network; with `network`, each becomes a bridge",
            metavar="network to interface",
        ),
        Field("network", CHASSIS, "The host as one of OVN's chassis (docs/networks.md)"),
        Field(
            "fabric.mode",
            Choice(FabricMode),
            "Fabric Manager's mode: bare for the host itself, shared for VMs with whole GPUs, vgpu for VMs with vGPUs",
            is_required=True,
        ),
        Field("telemetry", TELEMETRY, "Readings that the host writes for node_exporter (docs/monitoring.md)"),
    ),
    (Section("fabric", "The NVSwitches of the host"),),
    make=_layout,
)
