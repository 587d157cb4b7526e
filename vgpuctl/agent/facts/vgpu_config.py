# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vgpuConfig.xml: the vGPU types each GPU supports, readable without any GPU bound (reference 3.5)."""

import re
from typing import TYPE_CHECKING, Dict, Optional

from vgpuctl.agent.facts.pci import Function
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import MIB
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

VGPU_CONFIG = "/usr/share/nvidia/vgpu/vgpuConfig.xml"


@dataclass(frozen=True)
class ConfiguredType:
    """One type of vgpuConfig.xml. max_instances: on the GPU that was asked about."""

    type_id: str
    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int] = None


def read(host: Host) -> "Optional[Element]":
    """Read vgpuConfig.xml, None when this host has none. Raises Problem when it cannot be understood."""
    text = host.read_optional(VGPU_CONFIG)
    if text is None:
        return None
    # Only hosts with NVIDIA's vGPU software pay for it.
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    except ElementTree.ParseError as error:
        raise Problem(ProblemCode.UNREADABLE, f"{VGPU_CONFIG} is not XML: {error}", path=VGPU_CONFIG) from error


def configured_types(config: "Element", gpu: Function) -> Dict[str, ConfiguredType]:
    """Return {type id: type} that vgpuConfig.xml supports on a GPU; the subsystem decides where it is named."""
    maxima = {
        supported.get("vgpuId", ""): _number(supported.findtext("maxVgpus"))
        for entry in config.iter("pgpu")
        if _is_this_gpu(entry.find("devId"), gpu)
        for supported in entry.iter("supportedVgpu")
    }
    found = {}
    for entry in config.iter("vgpuType"):
        type_id = entry.get("id", "")
        if type_id in maxima:
            size = _number(entry.findtext("profileSize"))
            framebuffer = size // MIB if size else None
            found[type_id] = ConfiguredType(type_id, entry.get("name", type_id), framebuffer, maxima[type_id] or None)
    return found


def _is_this_gpu(identity: "Optional[Element]", gpu: Function) -> bool:
    if identity is None or _number(identity.get("deviceId")) != int(gpu.device_id, 16):
        return False
    subsystem = _number(identity.get("subsystemId"))
    own = int(gpu.subsystem_id.split(":")[1], 16) if gpu.subsystem_id else None
    return not subsystem or own is None or subsystem == own


def _number(text: Optional[str]) -> Optional[int]:
    try:
        return int(text or "", 0)
    except ValueError:
        return None
