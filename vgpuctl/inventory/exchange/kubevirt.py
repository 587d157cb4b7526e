# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: the devices that its custom resource permits, the mediated devices that it makes, and a VM's `gpus`.

Sources: KubeVirt's CRD (api/core/v1: PermittedHostDevices, MediatedDevicesConfiguration), the user guide "Host Devices
Assignment" and "Mediated devices and virtual GPUs"; kubevirt/kubevirt#16890 for VFs that carry a vGPU type (1.9).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpuctl.inventory.exchange.handed_out import HandedOut, ToolFile, slug
from vgpuctl.sharing.kind import HandedAs
from vgpuctl.yaml_text import yaml_text


@dataclass
class _Permitted:
    """The content of the custom resource. devices, mdevs: resource by selector. nodes: mdev types by node."""

    devices: dict[str, str] = field(default_factory=dict)
    mdevs: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)

    def resources(self) -> list[str]:
        return sorted({*self.devices.values(), *self.mdevs.values()})


def export_kubevirt(devices: Sequence[HandedOut], remarks: list[str]) -> list[ToolFile]:
    """Write the custom resource's part and example VMs. Limits of KubeVirt go to `remarks`."""
    permitted = _Permitted()
    for one in devices:
        if one.how is HandedAs.MDEV:
            _add_mdevs(one, permitted, remarks)
        elif one.device_id is None:
            remarks.append(f"{one.title}: the PCI id of its VFs was not read; it is left out: run `vgpuctl list-gpus`")
        else:
            _add_functions(one, permitted, remarks)
    if not permitted.resources():
        return []
    about = (
        "Part of the custom resource KubeVirt; merge it into yours:",
        "kubectl patch kubevirt kubevirt -n kubevirt --type merge --patch-file FILE",
        "Lists are replaced as a whole.",
    )
    gpus = [{"name": f"gpu{number}", "deviceName": one} for number, one in enumerate(permitted.resources(), 1)]
    of_vms = ("Entries for spec.template.spec.domain.devices.gpus of a VM: take those that it needs.",)
    return [
        ToolFile("kubevirt/kubevirt.yaml", about, yaml_text(_resource(permitted))),
        ToolFile("kubevirt/gpus.yaml", of_vms, yaml_text({"gpus": gpus})),
    ]


def _add_mdevs(one: HandedOut, permitted: _Permitted, remarks: list[str]) -> None:
    if not one.are_named or not one.types:
        remarks.append(
            f"{one.title}: KubeVirt makes as many mediated devices as fit of each type it is told, and no type is "
            "named; it is left out: declare `types`, or give --profile"
        )
        return
    types = permitted.nodes.setdefault(one.hostname, [])
    types += [kind.mdev_type for kind in one.types if kind.mdev_type not in types]
    permitted.mdevs.update({kind.full_name: _resource_name(one, kind.name) for kind in one.types})
    if len(one.types) > 1:
        names = ", ".join(kind.name for kind in one.types)
        remarks.append(f"{one.title}: KubeVirt makes one type on each card and chooses which of {names} itself")


def _add_functions(one: HandedOut, permitted: _Permitted, remarks: list[str]) -> None:
    """KubeVirt tells PCI devices apart by their ids alone."""
    selector = f"{one.gpu.vendor_id}:{one.device_id}".upper()
    names = {
        HandedAs.CARD: [one.model],
        HandedAs.PLAIN_VF: [f"{one.model}_VF"],
        HandedAs.TYPED_VF: list(dict.fromkeys(kind.name for _, kind in one.carried)),
    }[one.how]
    if not names:
        remarks.append(
            f"{one.title}: KubeVirt sets no vGPU type and no VF carries one; it is left out: declare `shares`, "
            "and run `vgpuctl apply-hosts`"
        )
        return
    resource = _resource_name(one, names[0])
    kept = permitted.devices.setdefault(selector, resource)
    others = [name for name in names if _resource_name(one, name) != kept]
    if others:
        remarks.append(
            f"{one.title}: KubeVirt tells devices apart by {selector} alone, which is {kept}; "
            f"{', '.join(others)} would be handed out under that name"
        )
    if one.how is HandedAs.CARD and one.gpu.companions:
        remarks.append(f"{one.title}: KubeVirt hands out single functions; the other functions of the card stay behind")


def _resource(permitted: _Permitted) -> dict[str, Any]:
    allowed: dict[str, Any] = {}
    if permitted.devices:
        allowed["pciHostDevices"] = [
            {"pciVendorSelector": selector, "resourceName": name} for selector, name in permitted.devices.items()
        ]
    if permitted.mdevs:
        allowed["mediatedDevices"] = [
            {"mdevNameSelector": selector, "resourceName": name} for selector, name in permitted.mdevs.items()
        ]
    configuration: dict[str, Any] = {"permittedHostDevices": allowed}
    if permitted.nodes:
        configuration["mediatedDevicesConfiguration"] = {
            "mediatedDeviceTypes": list(dict.fromkeys(kind for types in permitted.nodes.values() for kind in types)),
            "nodeMediatedDeviceTypes": [
                {"nodeSelector": {"kubernetes.io/hostname": node}, "mediatedDeviceTypes": types}
                for node, types in permitted.nodes.items()
            ],
        }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": configuration},
    }


def _resource_name(one: HandedOut, name: str) -> str:
    """The name of an extended resource: at most 63 characters behind the vendor's domain."""
    return f"{one.domain}/{slug(name, '-') if '-' in name else slug(name, '_')}"[: len(one.domain) + 64]
