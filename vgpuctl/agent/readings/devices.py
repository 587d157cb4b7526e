# SPDX-License-Identifier: Apache-2.0
"""The device of a vGPU that NVML does not name: the VF that the VM's QEMU has open (vendor-specific VFIO)."""

from collections import defaultdict
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from vgpuctl.agent.facts import sharing, sriov
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.host import Host
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.readings.vgpu import RunningVgpu
from vgpuctl.agent.wire.envelope import Problem


class Devices:
    """The VFs that VMs hold, looked up only if some vGPU needs them. domains: by name, of libvirt's own files."""

    def __init__(self, host: Host, domains: Mapping[str, RunningDomain]) -> None:
        self._host = host
        self._domains = {one.uuid: one for one in domains.values()}
        self._nodes: Optional[OpenNodes] = None

    def find(self, address: str, vgpus: Sequence[RunningVgpu], unread: List[str]) -> Dict[int, str]:
        """Return the VFs of vGPUs of one GPU by NVML's number; what stays ambiguous is left out.

        vgpus: all running ones. Several of one VM are told apart by their type, then by their order in the guest.
        """
        nameless = [one for one in vgpus if one.device is None and one.vm_uuid is not None]
        if not nameless:
            return {}
        try:
            held = self._held(address, {(one.vm_uuid or "").lower() for one in nameless})
        except Problem as problem:
            unread.append(f"{address}: the VFs of its vGPUs are unknown: {problem.message}")
            return {}
        wanted: Dict[Tuple[str, int], List[RunningVgpu]] = defaultdict(list)
        for one in nameless:
            wanted[(one.vm_uuid or "").lower(), one.type_id].append(one)
        found: Dict[int, str] = {}
        for (vm_uuid, type_id), several in wanted.items():
            functions = held.get((vm_uuid, type_id), [])
            if len(functions) != len(several):
                continue
            if len(several) > 1:
                functions = self._in_order(vm_uuid, functions)
                several = sorted(several, key=lambda one: one.guest_address or "")
                if len({one.guest_address for one in several}) < len(several):
                    continue
            found.update(zip((one.number for one in several), functions))
        return found

    def _held(self, address: str, vm_uuids: Set[str]) -> Dict[Tuple[str, int], List[str]]:
        """Return the VFs of a GPU with a vGPU that a VM holds, by the VM and the type. Raises Problem."""
        nodes = self._open_nodes(vm_uuids)
        found: Dict[Tuple[str, int], List[str]] = defaultdict(list)
        for _, vf in sriov.read_functions(self._host, address):
            type_id = sharing.read_type_of_function(self._host, vf)
            if type_id is None:
                continue
            for holder in nodes.holders_of_function(vf):
                if holder.vm_uuid is not None:
                    found[holder.vm_uuid, int(type_id)].append(vf)
        return found

    def _open_nodes(self, vm_uuids: Set[str]) -> OpenNodes:
        """Return what processes have open: those of VMs whose process libvirt names, else all of the host's."""
        if self._nodes is None:
            pids = [one.pid for one in self._domains.values() if one.pid is not None]
            is_named = all(one in self._domains and self._domains[one].pid is not None for one in vm_uuids)
            self._nodes = OpenNodes(self._host, pids if is_named else None)
        return self._nodes

    def _in_order(self, vm_uuid: str, functions: Sequence[str]) -> List[str]:
        """Return the VFs in the order of their addresses in the guest, none if libvirt's file does not have all."""
        domain = self._domains.get(vm_uuid)
        known = [] if domain is None else [one for one in domain.functions if one in functions]
        return known if len(known) == len(functions) else []
