# SPDX-License-Identifier: Apache-2.0
"""Reset a function that nobody holds (reference 1.1, 9 row 15)."""

from vgpuctl.agent.facts import mdev, pci, sriov
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, ResetFunction


def ensure(host: Host, step: ResetFunction, *, dry_run: bool) -> Change:
    """Reset one function. Every reset is a change: the device does not tell whether it was reset before.

    Raises Problem: `held`, `vfs-active`, `mdevs-active`, `no-reset` when the kernel knows no way to reset it,
    `write-refused`.
    """
    address = step.address
    path = pci.require(host, address)
    if not host.exists(f"{path}/reset"):
        raise Problem(
            ProblemCode.NO_RESET,
            f"{address} cannot be reset: the kernel knows no method for it",
            path=f"{path}/reset",
            errno="ENOENT",
            hint="a reset of its bus or a reboot is needed before another tenant gets it",
        )
    nodes = OpenNodes(host)
    holders = nodes.holders_of_function(address) + nodes.users(address)
    require_unheld(nodes, address, holders)
    count = sriov.read_count(host, address)
    if count:
        raise Problem(ProblemCode.VFS_ACTIVE, f"{address} has {count} VFs; a reset would delete them")
    if mdev.read_of(host, (address,)):
        raise Problem(ProblemCode.MDEVS_ACTIVE, f"{address} has mediated devices; a reset would delete them")
    if not dry_run:
        host.write(f"{path}/reset", "1")
    return Change(step.op, address, None, "reset", changed=True)
