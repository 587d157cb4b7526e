# SPDX-License-Identifier: Apache-2.0
"""Configuration files of mig-parted, which the GPU operator's mig-manager reads too.

`mig-enabled: true` is the layout's kind mig, `mig-enabled: false` its kind off.
"""

import re
from collections.abc import Sequence
from typing import Any

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.inventory.exchange.configs import Frame, export_config, import_config
from vgpuctl.inventory.exchange.refusal import Left
from vgpuctl.model.layout import HostLayout, Layout, MigLayout, OffLayout
from vgpuctl.planner.mig_geometry import devices_of, instances_of, split_name
from vgpuctl.specs.document import YamlDocument
from vgpuctl.specs.layout import parse_mig_device
from vgpuctl.specs.value import Value

_PROFILE = re.compile(r"[1-9]\d*g\.\d+gb(?:[+-][a-z][a-z.,]*)*")
_MOST = 256


def import_mig_parted(document: YamlDocument, config: str | None, gpus: Sequence[Gpu] | None) -> HostLayout:
    """One configuration as a layout; see `configs.import_config`."""
    return import_config(_FRAME, document, config, gpus)


def export_mig_parted(layout: HostLayout, config: str, gpus: Sequence[Gpu] | None, left: Left) -> dict[str, Any]:
    """A layout as a file's content; see `configs.export_config`."""
    return export_config(_FRAME, layout, config, gpus, left)


def _read(entry: Value, keys: dict[str, Value]) -> Layout:
    enabled = keys["mig-enabled"].truth()
    devices = keys["mig-devices"].mapping_or_nothing() if "mig-devices" in keys else None
    if not enabled:
        if devices:
            raise keys["mig-devices"].refuse("names MIG devices, while mig-enabled is false")
        return OffLayout()
    if devices is None:
        raise entry.refuse("has no 'mig-devices'", hint="`mig-devices: {}` is MIG without instances")
    counts: dict[str, int] = {}
    for written, value in sorted(devices.items()):
        with value.located():
            name = parse_mig_device(written, what=value.words)
        if not _PROFILE.fullmatch(split_name(name)[0]):
            raise value.refuse("is not a MIG profile", hint="write it as 1g.5gb, 1g.5gb+me or 1c.2g.10gb")
        if name in counts:
            raise value.refuse(f"means {name}, which another key gives too")
        counts[name] = value.whole(0, _MOST)
    instances = instances_of(counts)
    if devices and not instances:
        raise keys["mig-devices"].refuse("has no device at all", hint="`mig-devices: {}` is MIG without instances")
    return MigLayout(instances)


def _write(layout: Layout) -> dict[str, Any] | str:
    if isinstance(layout, OffLayout):
        return {"mig-enabled": False}
    if not isinstance(layout, MigLayout):
        return f"kind {layout.kind} is more than MIG on or off"
    if any(one.start is not None for one in layout.instances):
        return "placements: mig-parted chooses them itself"
    return {"mig-enabled": True, "mig-devices": devices_of(layout.instances)}


_FRAME = Frame("mig-parted", "mig-configs", ("mig-enabled", "mig-devices"), ("mig-enabled",), _read, _write)
