# SPDX-License-Identifier: Apache-2.0
"""Who holds a device: processes with its VFIO group, VFIO character device or vendor node open (reference 4.2)."""

import re
from collections import defaultdict
from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.facts import iommu, kfd, nvidia, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.problem_codes import ProblemCode

_NODES = ("/dev/vfio/", "/dev/nvidia", "/dev/dri/", "/dev/snd/", kfd.NODE)
_PERSISTENCED = "nvidia-persistenced"
_DRM_NODE = re.compile(r"(?:card|renderD|controlD)[0-9]+")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class OpenNodes:
    """Every node of VFIO, of a GPU's driver and of a sound card that a process has open, read once.

    pids: look into these processes alone. problem: why nobody can be told, None where the processes could be read.
    """

    def __init__(self, host: Host, pids: Optional[Sequence[int]] = None) -> None:
        self._host = host
        self.problem: Optional[str] = None
        try:
            links, self.unreadable = host.process_links(pids)
        except Problem as problem:
            links, self.unreadable, self.problem = [], 0, problem.message
        self._pids: Dict[str, List[int]] = defaultdict(list)
        for pid, target in links:
            if target.startswith(_NODES) and pid not in self._pids[target]:
                self._pids[target].append(pid)

    def holders_of_function(self, address: str) -> Tuple[Holder, ...]:
        """Return who holds a PCI function through VFIO, by pid."""
        device = pci.folder(address)
        return self._holders(vfio_nodes(self._host, device))

    def holders_of_mdev(self, uuid: str) -> Tuple[Holder, ...]:
        """Return who holds a mediated device through VFIO, by pid."""
        return self._holders(vfio_nodes(self._host, f"/sys/bus/mdev/devices/{uuid}"))

    def users(self, address: str) -> Tuple[Holder, ...]:
        """Return who has a node of a card's driver open, or computes on it through /dev/kfd, by pid.

        nvidia-persistenced is none of them: it keeps cards open for nobody.
        """
        return tuple(one for one in self._node_holders(address) if not _is_persistence(one))

    def persistence(self, address: str) -> Tuple[Holder, ...]:
        """Return nvidia-persistenced where it has a node of the card open."""
        return tuple(one for one in self._node_holders(address) if _is_persistence(one))

    def _node_holders(self, address: str) -> Tuple[Holder, ...]:
        folder = pci.folder(address)
        names = self._host.listdir_optional(f"{folder}/drm") or []
        nodes = [f"/dev/dri/{name}" for name in names if _DRM_NODE.fullmatch(name)]
        minor = nvidia.read_minor(self._host, address)
        if minor is not None:
            nodes.append(f"/dev/nvidia{minor}")
        computing = [pid for pid in self._pids.get(kfd.NODE, ()) if kfd.may_use(self._host, pid, address)]
        return self._holders(nodes, computing)

    def users_of_sound(self, address: str) -> Tuple[Holder, ...]:
        """Return who has a device of a sound function open, by pid."""
        folder = f"{pci.folder(address)}/sound"
        cards = self._host.listdir_optional(folder) or []
        names = [name for card in cards for name in self._host.listdir_optional(f"{folder}/{card}") or ()]
        return self._holders([f"/dev/snd/{name}" for name in names])

    def _holders(self, nodes: List[str], others: Sequence[int] = ()) -> Tuple[Holder, ...]:
        pids = sorted({pid for node in nodes for pid in self._pids.get(node, ())} | set(others))
        return tuple(describe(self._host, pid) for pid in pids)


def _is_persistence(holder: Holder) -> bool:
    # The kernel's name of a process has 15 characters.
    return holder.command[:15] == _PERSISTENCED[:15]


def vfio_nodes(host: Host, device: str) -> List[str]:
    """Return the nodes through which a device (sysfs folder) can be held: its group and its own character device."""
    nodes = []
    group = iommu.read_group_of(host, device)
    if group is not None:
        nodes += [f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}"]
    return nodes + [f"/dev/vfio/devices/{name}" for name in host.listdir_optional(f"{device}/vfio-dev") or []]


def describe(host: Host, pid: int) -> Holder:
    """Say who a process is; QEMU's `-uuid` is the VM's."""
    line = host.read_optional(f"/proc/{pid}/cmdline") or ""
    words = [word for word in line.split("\0") if word]
    command = words[0].rsplit("/", 1)[-1] if words else host.read_optional(f"/proc/{pid}/comm")
    return Holder(pid, command or "unknown", _vm_uuid(words))


def require_unheld(nodes: OpenNodes, what: str, holders: Tuple[Holder, ...]) -> None:
    """Refuse to touch something that a process holds, or whose holders cannot be seen.

    Raises Problem: `held` names the first process and its VM, `holders-unknown` when processes are hidden.
    """
    if holders:
        first = holders[0]
        owner = f"{first.command}, pid {first.pid}" + (f", VM {first.vm_uuid}" if first.vm_uuid else "")
        more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
        raise Problem(
            ProblemCode.HELD,
            f"{what} is held by {owner}{more}",
            hint="stop the VM or the process first" if first.vm_uuid else "stop that process first",
        )
    if nodes.problem is not None:
        raise Problem(ProblemCode.HOLDERS_UNKNOWN, f"cannot tell who holds {what}: {nodes.problem}")
    if nodes.unreadable:
        raise Problem(
            ProblemCode.HOLDERS_UNKNOWN,
            f"cannot tell who holds {what}: {nodes.unreadable} processes are hidden from this user",
            hint="let the agent run as root: ansible_become=true",
        )


def _vm_uuid(words: List[str]) -> Optional[str]:
    for option, value in zip(words, words[1:]):
        if option in ("-uuid", "--uuid") and _UUID.fullmatch(value):
            return value.lower()
    return None
