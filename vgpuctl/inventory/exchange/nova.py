# SPDX-License-Identifier: Apache-2.0
"""OpenStack Nova: parts of nova.conf of compute hosts and of nova-api, and the properties of flavors.

Sources: nova/conf/pci.py, nova/conf/devices.py and nova/pci/request.py; nova-specs, Epoxy (2025.1), "Enable VFIO
devices with kernel variant drivers" for `managed`; Nova's guide "Attaching virtual GPU devices to guests". A resource
class for each model or vGPU type needs PCI devices in Placement.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence

from vgpuctl.inventory.exchange.handed_out import ExportedType, HandedOut, ToolFile
from vgpuctl.sharing.kind import HandedAs

_HIGHEST_DOMAIN = 0xFFFF
_NOT_IN_CLASS = re.compile(r"[^A-Z0-9_]+")
_NOT_IN_FILE = re.compile(r"[^A-Za-z0-9._-]")
_DEVICE_TYPES = {HandedAs.TYPED_VF: "type-VF", HandedAs.PLAIN_VF: "type-VF"}


class _Collected:
    """The part of all hosts together: aliases by name, and the properties of flavors."""

    def __init__(self) -> None:
        self.aliases: dict[str, dict[str, str]] = {}
        self.properties: dict[str, str] = {}


def export_nova(devices: Sequence[HandedOut], remarks: list[str]) -> list[ToolFile]:
    """Write the files of all hosts. Limits of Nova go to `remarks`."""
    collected = _Collected()
    by_host: defaultdict[str, list[HandedOut]] = defaultdict(list)
    for one in devices:
        by_host[one.host].append(one)
    files = [
        ToolFile(
            f"nova/{_NOT_IN_FILE.sub('_', host)}.conf",
            (f"For nova-compute on {host}; aliases.conf belongs to it. Restart nova-compute after it.",),
            body,
        )
        for host, of_host in by_host.items()
        if (body := _compute(of_host, collected, remarks))
    ]
    if collected.aliases:
        lines = [f"alias = {json.dumps(one)}" for one in collected.aliases.values()]
        about = "For nova-api, and for every nova-compute that moves VMs: the same aliases everywhere."
        body = "\n".join(["[pci]", *lines, "", "[filter_scheduler]", "pci_in_placement = True", ""])
        files.append(ToolFile("nova/aliases.conf", (about,), body))
    if collected.properties:
        about = "Properties of flavors; FLAVOR is one of yours. Run with the credentials of an administrator."
        commands = [
            f'openstack flavor set --property "{wanted}" FLAVOR   # one {name}\n'
            for name, wanted in sorted(collected.properties.items())
        ]
        files.append(ToolFile("nova/flavors.txt", (about,), "".join(commands)))
    return files


def resource_class(name: str) -> str:
    """A custom resource class of Placement: `CUSTOM_VGPU_A40_8Q`."""
    return f"CUSTOM_{_NOT_IN_CLASS.sub('_', name.upper())}"[:255]


def _compute(devices: Sequence[HandedOut], collected: _Collected, remarks: list[str]) -> str:
    mdevs: dict[str, tuple[ExportedType, list[str]]] = {}
    specs: list[dict[str, str]] = []
    for one in devices:
        if int(one.gpu.address.rpartition(":")[0].rpartition(":")[0], 16) > _HIGHEST_DOMAIN:
            remarks.append(f"{one.title}: Nova knows PCI domains up to FFFF only; it is left out")
        elif one.how is HandedAs.MDEV:
            _add_mdevs(one, mdevs, collected, remarks)
        else:
            specs += _specs(one, collected, remarks)
    text = ""
    if mdevs:
        text += f"[devices]\nenabled_mdev_types = {','.join(one.mdev_type for one, _ in mdevs.values())}\n\n"
        for kind, parents in mdevs.values():
            text += f"# {kind.full_name}\n[mdev_{kind.mdev_type}]\ndevice_addresses = {','.join(parents)}\n"
            text += f"mdev_class = {resource_class(f'vgpu_{kind.name}')}\n\n"
    if specs:
        text += "[pci]\nreport_in_placement = True\n" + "".join(f"device_spec = {json.dumps(one)}\n" for one in specs)
    return f"{text.rstrip()}\n" if text else ""


def _add_mdevs(
    one: HandedOut, mdevs: dict[str, tuple[ExportedType, list[str]]], collected: _Collected, remarks: list[str]
) -> None:
    """A function is a parent of one type. Of VFs as many are named as the card takes vGPUs of the type."""
    if len(one.types) != 1:
        said = ", ".join(each.name for each in one.types[:6]) or "none"
        remarks.append(
            f"{one.title}: Nova makes one vGPU type on each function, and the types are {said}; "
            "it is left out: declare one in `types`, or give --profile"
        )
        return
    (kind,) = one.types
    parents = one.functions if len(one.functions) == 1 else one.functions[: kind.most]
    mdevs.setdefault(kind.mdev_type, (kind, []))[1].extend(parents)
    collected.properties[kind.name] = f"resources:{resource_class(f'vgpu_{kind.name}')}=1"


def _specs(one: HandedOut, collected: _Collected, remarks: list[str]) -> list[dict[str, str]]:
    if one.device_id is None:
        remarks.append(f"{one.title}: the PCI id of its VFs was not read; it is left out: run `vgpuctl list-gpus`")
        return []
    if one.how is not HandedAs.TYPED_VF:
        is_card = one.how is HandedAs.CARD
        name = one.model if is_card else f"{one.model}_VF"
        if is_card and one.gpu.companions:
            others = ", ".join(companion.address for companion in one.gpu.companions)
            remarks.append(f"{one.title}: Nova hands out single functions; {others} of the same card stay behind")
        return [_spec(one, function, name, "yes", collected) for function in one.functions]
    if not one.carried:
        remarks.append(
            f"{one.title}: Nova sets no vGPU type and no VF carries one; it is left out: declare `shares`, "
            "and run `vgpuctl apply-hosts`"
        )
    return [_spec(one, function, f"vGPU_{kind.name}", "no", collected) for function, kind in one.carried]


def _spec(one: HandedOut, function: str, name: str, managed: str, collected: _Collected) -> dict[str, str]:
    """One device. managed: `no` where the VF stays on its vendor's driver (Nova 31.0.0, 2025.1, and newer)."""
    ids = {"vendor_id": one.gpu.vendor_id, "product_id": str(one.device_id)}
    of_class = {"resource_class": resource_class(name if name.startswith("vGPU_") else f"gpu_{name}")}
    alias = name.lower().replace("_", "-")
    device_type = _DEVICE_TYPES.get(one.how, "type-PF" if one.gpu.total_vfs else "type-PCI")
    collected.aliases.setdefault(alias, {"name": alias, **ids, "device_type": device_type, **of_class})
    collected.properties[name] = f"pci_passthrough:alias={alias}:1"
    return {**ids, "address": function, **of_class, "managed": managed}
