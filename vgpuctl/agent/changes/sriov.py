# SPDX-License-Identifier: Apache-2.0
"""Enable and disable VFs: NVIDIA's through sriov-manage, others through sriov_numvfs (reference 3.1)."""

from vgpuctl.agent.changes import sriov_manage
from vgpuctl.agent.facts import pci, sharing, sriov, sriov_admin, sriov_health
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.facts.nvidia import DRIVER, PF_STUB
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetVirtualFunctions

VFIO = "vfio-pci"


def ensure(host: Host, step: SetVirtualFunctions, *, dry_run: bool) -> Change:
    """Bring a physical function's VF count to `count`; NVIDIA's only to 0 or to all.

    The kernel refuses a change between two counts other than 0, so it passes through 0; that removes every VF,
    hence the check for vGPUs and holders. Source: Linux drivers/pci/iov.c. NVIDIA's VFs must be healthy as well
    (`wire.vf_health`): if any is sick, all are recreated, while nobody uses one.

    Raises Problem: `not-sriov`, `bad-count`, `held`, `vfs-in-use`, `wrong-driver`, `driver-missing`, `unbind-lock`,
    `sriov-failed`, `board-unknown`, `write-refused`.
    """
    address = step.address
    function = pci.read(host, address)
    total = sriov.read_total(host, address)
    by_script = function.vendor_id == pci.NVIDIA and function.driver in (DRIVER, PF_STUB, VFIO, None)
    if total == 0:
        raise Problem(
            ProblemCode.NOT_SRIOV,
            f"{address} can have no VFs: sriov_totalvfs is missing or 0",
            path=f"{pci.folder(address)}/sriov_totalvfs",
            hint="enable SR-IOV and Above 4G decoding in the firmware, and load the vGPU driver",
        )
    if not 0 <= step.count <= total or (by_script and step.count not in (0, total)):
        allowed = f"0 or {total}" if by_script else f"0 to {total}"
        raise Problem(ProblemCode.BAD_COUNT, f"{address} can have {allowed} VFs, not {step.count}")
    before = sriov.read_count(host, address)
    found, after_text = str(before), str(step.count)
    if by_script:
        health = sriov_health.read(host, address)
        found = found if health.is_as(before) else health.describe()
        # A whole card that is away for a VM has no VFs either.
        is_as_wanted = health.is_as(step.count) or (function.driver == VFIO and before == step.count == 0)
    else:
        is_as_wanted = before == step.count
    if is_as_wanted:
        return Change(step.op, address, found, found, changed=False)
    require_unused(host, address)
    if dry_run:
        return Change(step.op, address, found, after_text, changed=True)
    is_changed, vfs = True, [vf for _, vf in sriov.read_functions(host, address)]
    if by_script:
        is_changed = sriov_manage.bring(host, address, step.count)
    else:
        _ensure_by_sysfs(host, address, step.count, before)
    for vf in sriov_admin.read_first(host) if before else ():
        if vf in vfs:
            sriov_admin.note_first(host, vf, {})
    after = sriov.read_count(host, address)
    if after != step.count:
        raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{address} has {after} VFs, wanted {step.count}")
    return Change(step.op, address, found if is_changed else after_text, after_text, changed=is_changed)


def _ensure_by_sysfs(host: Host, address: str, count: int, before: int) -> None:
    path = pci.folder(address)
    if before:
        host.write(f"{path}/sriov_numvfs", "0")
    if count:
        # The host's own driver must not take VFs that are meant for vfio-pci (reference 8.2).
        if host.read_optional(f"{path}/sriov_drivers_autoprobe") == "1":
            host.write(f"{path}/sriov_drivers_autoprobe", "0")
        host.write(f"{path}/sriov_numvfs", str(count))


def require_unused(host: Host, address: str) -> None:
    """Refuse while a VF carries a vGPU or is held, or the PF itself is: changing the count destroys them all."""
    nodes = OpenNodes(host)
    vgpus = {vgpu.function: vgpu for vgpu in sharing.read_vgpus(host, address)}
    require_unheld(nodes, address, nodes.holders_of_function(address))
    for _, vf in sriov.read_functions(host, address):
        holders, vgpu = nodes.holders_of_function(vf), vgpus.get(vf)
        if vgpu is not None and vgpu.uuid is not None:
            holders += nodes.holders_of_mdev(vgpu.uuid)
        require_unheld(nodes, f"the VF {vf}", holders)
        if vgpu is not None:
            raise Problem(ProblemCode.VFS_IN_USE, f"the VF {vf} has {vgpu}")
    if address in vgpus:
        raise Problem(ProblemCode.VFS_IN_USE, f"{address} has {vgpus[address]}")
