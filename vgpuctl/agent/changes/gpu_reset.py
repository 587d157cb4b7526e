# SPDX-License-Identifier: Apache-2.0
"""Reset a GPU through its own driver, so that a pending MIG mode counts (reference 5.1)."""

from vgpuctl.agent.changes.mig_mode import describe, read_mode
from vgpuctl.agent.changes.sriov import require_unused
from vgpuctl.agent.facts import pci
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, ResetGpu

_PROGRAM = "nvidia-smi"
_TIMEOUT_S = 120.0


def ensure(host: Host, step: ResetGpu, *, dry_run: bool) -> Change:
    """Reset a GPU whose MIG mode is pending; its VFs and GPU instances are gone afterwards. NVML has no such call.

    Raises Problem: `no-mig`, `held` while a process has the GPU open, `vfs-in-use` while a vGPU exists,
    `reset-refused` with what nvidia-smi said, `program-missing`.
    """
    address = step.address
    pci.require(host, address)
    before = read_mode(host, address)
    if before[0] == before[1]:
        return Change(step.op, address, describe(before), describe(before), changed=False)
    nodes = OpenNodes(host)
    require_unheld(nodes, address, nodes.users(address))
    require_unused(host, address)
    wanted = (before[1], before[1])
    if not dry_run:
        with host.kernel_log() as log:
            done = host.run([_PROGRAM, "--gpu-reset", "-i", address], timeout_s=_TIMEOUT_S, changes=True)
            after = read_mode(host, address)
            if done.status or after != wanted:
                said = " ".join((done.output + done.errors).split()) or "nothing"
                raise Problem(
                    ProblemCode.RESET_REFUSED,
                    f"{address} was not reset, its MIG mode is {describe(after)}; nvidia-smi said: {said}",
                    path=_PROGRAM,
                    kernel_lines=log.lines(),
                    hint="stop what uses the GPU, or reboot the host",
                )
    return Change(step.op, address, describe(before), describe(wanted), changed=True)
