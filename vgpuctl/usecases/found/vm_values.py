# SPDX-License-Identifier: Apache-2.0
"""The values of a VM that its events have as `before` and `after`."""

from collections.abc import Sequence

from vgpuctl.model.event import Values
from vgpuctl.model.lease import Lease
from vgpuctl.model.vgpu_params import show_vgpu_param
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.quota.vm_limits import show_limits


def sizes_of(vm: Vm, leases: Sequence[Lease]) -> Values:
    """The values that resize-vm changes, with host and shares. max_downtime_s: None for no limit. limits: those set."""
    shares = [f"{lease.share.profile} on {lease.share.function}" for lease in leases]
    return {
        "vcpus": vm.request.vcpus,
        "memory_mib": vm.request.memory_mib,
        "gpus": [gpu.text for gpu in vm.request.gpus],
        "vgpu_params": list(map(show_vgpu_param, vm.request.vgpu_params)),
        "max_downtime_s": vm.request.max_downtime_s,
        "limits": show_limits(vm.request),
        "host": vm.host,
        "shares": shares,
    }


def values_of(vm: Vm, leases: Sequence[Lease], state: VmState | None = None) -> Values:
    """Its state (or the given one), its host and its shares."""
    shares = [f"{lease.share.profile} on {lease.share.function}" for lease in leases]
    return {"state": str(state or vm.state), "host": vm.host, "shares": shares}
