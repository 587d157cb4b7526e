# SPDX-License-Identifier: Apache-2.0
"""Processes that compute on AMD's GPUs through /dev/kfd, one node for all cards (Linux drivers/gpu/drm/amd/amdkfd)."""

from typing import List, Optional

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host

NODE = "/dev/kfd"
FOLDER = "/sys/class/kfd/kfd"
DRIVER = "amdgpu"


def may_use(host: Host, pid: int, address: str) -> bool:
    """Tell whether a process that has /dev/kfd open may compute on a card.

    The driver lists memory and queues by process and GPU; where it does not, every process counts for every card.
    """
    if pci.read_driver(host, address) != DRIVER:
        return False
    identifiers = read_identifiers(host, address)
    if identifiers is None:
        return True
    folder = f"{FOLDER}/proc/{pid}"
    if host.listdir_optional(folder) is None:
        return bool(identifiers)
    queues = [host.read_optional(f"{folder}/queues/{name}/gpuid") for name in _names(host, f"{folder}/queues")]
    return any(
        one in queues or (host.read_optional(f"{folder}/vram_{one}") or "0").strip() != "0" for one in identifiers
    )


def read_identifiers(host: Host, address: str) -> Optional[List[str]]:
    """Return the driver's own numbers of a card (one for each partition), None where it shows no topology."""
    nodes = host.listdir_optional(f"{FOLDER}/topology/nodes")
    if nodes is None:
        return None
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    found = []
    for node in nodes:
        text = host.read_optional(f"{FOLDER}/topology/nodes/{node}/properties") or ""
        properties = dict(line.split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2)
        if (properties.get("domain", "0"), properties.get("location_id")) == (str(int(domain, 16)), str(location)):
            found.append((host.read_optional(f"{FOLDER}/topology/nodes/{node}/gpu_id") or "0").strip())
    return [one for one in found if one != "0"]


def _names(host: Host, folder: str) -> List[str]:
    return host.listdir_optional(folder) or []
