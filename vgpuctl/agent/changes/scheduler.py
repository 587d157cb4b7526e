# SPDX-License-Identifier: Apache-2.0
"""Set the vGPU scheduler of a GPU (reference 3.4). It lasts until the driver is unloaded."""

from vgpuctl.agent.facts import mdev, nvml_vgpu, pci, scheduler, sriov
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import required
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.agent.wire.measure_states import POLICIES
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetVgpuScheduler


def ensure(host: Host, step: SetVgpuScheduler, *, dry_run: bool) -> Change:
    """Set policy and time slice, while no VM runs on the GPU.

    NVML then tells the policy alone, so the read-back compares a time slice only where it tells one.
    Raises Problem: `bad-policy`, `no-vgpu-scheduler` where the driver tells none, `held` while a VM runs, NVML's.
    """
    address = step.address
    wanted = SchedulerFacts(step.policy, step.time_slice_us)
    if step.policy not in POLICIES:
        raise Problem(ProblemCode.BAD_POLICY, f"{step.policy!r} is none of {', '.join(POLICIES)}")
    pci.require(host, address)
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"reading the vGPU scheduler of {address}"):
            before = nvml_vgpu.read_scheduler(nvml, device)
        before = scheduler.completed(before, scheduler.read(host).get(address))
        if before is None:
            raise Problem(
                ProblemCode.NO_VGPU_SCHEDULER,
                f"the driver of {address} tells no vGPU scheduler",
                hint="its VFs must be enabled; else set it at boot by RmPVMRL in /etc/modprobe.d",
            )
        if before == wanted:
            return Change(step.op, address, _said(before), _said(before), changed=False)
        _require_no_vm(host, address)
        if not dry_run:
            host.writes += 1
            with nvml.refusals(f"setting the vGPU scheduler of {address} to {_said(wanted)}"):
                nvml_vgpu.set_scheduler(nvml, device, step.policy, step.time_slice_us)
                after = nvml_vgpu.read_scheduler(nvml, device)
            if scheduler.completed(after, wanted) != wanted:
                read = _said(after) if after else "none"
                raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{address} accepted {_said(wanted)} but reads {read}")
            scheduler.write(host, address, wanted)
    return Change(step.op, address, _said(before), _said(wanted), changed=True)


def _require_no_vm(host: Host, address: str) -> None:
    nodes = OpenNodes(host)
    functions = [address, *(vf for _, vf in sriov.read_functions(host, address))]
    for function in functions:
        require_unheld(nodes, function, nodes.holders_of_function(function))
    for device in mdev.read_of(host, functions):
        require_unheld(nodes, f"the mediated device {device.uuid}", nodes.holders_of_mdev(device.uuid))


def _said(scheduler: SchedulerFacts) -> str:
    if scheduler.time_slice_us is None:
        return scheduler.policy
    return f"{scheduler.policy} with {scheduler.time_slice_us} us"
