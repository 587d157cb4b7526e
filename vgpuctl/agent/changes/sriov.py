# SPDX-License-Identifier: Apache-2.0
"""Enable and disable virtual functions: NVIDIA's through sriov-manage, others through sriov_numvfs (reference 3.1)."""

from typing import Optional

from vgpuctl.agent.facts import mdev, nvidia, pci, sriov, vgpu_profile
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.facts.nvidia import DRIVER, PF_STUB
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.steps import Change, SetVirtualFunctions

SRIOV_MANAGE = "/usr/lib/nvidia/sriov-manage"
_TIMEOUT_S = 120.0
_UNBIND_LOCK_TRIES = 5
_SETTLE_TRIES = 30
_PAUSE_S = 1.0
_NO_LOCK = "Cannot obtain unbindLock"


def ensure(host: Host, step: SetVirtualFunctions, *, dry_run: bool) -> Change:
    """Bring a physical function's VF count to `count`; NVIDIA's only to 0 or to all.

    The kernel refuses a change between two counts other than 0, so it passes through 0; that removes every VF,
    hence the check for vGPUs and holders. Source: Linux drivers/pci/iov.c.

    Raises Problem: `not-sriov`, `bad-count`, `held`, `vfs-in-use`, `wrong-driver`, `unbind-lock`, `sriov-failed`,
    `write-refused`.
    """
    address = step.address
    function = pci.read(host, address)
    total = sriov.read_total(host, address)
    by_script = function.vendor_id == pci.NVIDIA and function.driver in (DRIVER, PF_STUB, "vfio-pci", None)
    if total == 0:
        raise Problem(
            "not-sriov",
            f"{address} can have no VFs: sriov_totalvfs is missing or 0",
            path=f"{pci.folder(address)}/sriov_totalvfs",
            hint="enable SR-IOV and Above 4G decoding in the firmware, and load the vGPU driver",
        )
    if not 0 <= step.count <= total or (by_script and step.count not in (0, total)):
        allowed = f"0 or {total}" if by_script else f"0 to {total}"
        raise Problem("bad-count", f"{address} can have {allowed} VFs, not {step.count}")
    before = sriov.read_count(host, address)
    is_stranded = by_script and function.driver == PF_STUB
    if before == step.count and not is_stranded:
        return Change(step.op, address, str(before), str(before), changed=False)
    require_unused(host, address)
    if dry_run:
        return Change(step.op, address, str(before), str(step.count), changed=True)
    if by_script:
        _ensure_by_script(host, address, step.count, function.driver)
    else:
        _ensure_by_sysfs(host, address, step.count, before)
    after = sriov.read_count(host, address)
    if after != step.count:
        raise Problem("read-back-differs", f"{address} has {after} VFs, wanted {step.count}")
    return Change(step.op, address, str(before), str(after), changed=True)


def _ensure_by_script(host: Host, address: str, count: int, driver: Optional[str]) -> None:
    if driver == PF_STUB:
        _bind_to_nvidia(host, address)
    elif driver != DRIVER:
        raise Problem(
            "wrong-driver",
            f"{address} is on {driver or 'no driver'}; sriov-manage needs it on {DRIVER}",
            path=f"{pci.folder(address)}/driver",
            hint="give the card back to its driver first (apply-hosts, or delete the VM that has the whole card)",
        )
    if sriov.read_count(host, address) == count:
        return
    program = SRIOV_MANAGE if host.find_program(SRIOV_MANAGE) else "sriov-manage"
    argv = [program, "-e" if count else "-d", address]
    output = ""
    with host.kernel_log() as log:
        for attempt in range(_UNBIND_LOCK_TRIES):
            if attempt:
                host.wait(_PAUSE_S)
            done = host.run(argv, timeout_s=_TIMEOUT_S, changes=True)
            output = (done.output + done.errors).strip()
            if _NO_LOCK not in output:
                break
        else:
            users = OpenNodes(host).users(address)
            names = ", ".join(f"{user.command} (pid {user.pid})" for user in users) or "some NVML client"
            raise Problem(
                "unbind-lock",
                f"{address} cannot be taken from its driver: {names} uses it",
                path=f"{nvidia.PROC}/gpus/{address}/unbindLock",
                kernel_lines=log.lines(),
                hint="stop nvidia-persistenced, DCGM and nvidia-smi loops, then run again",
            )
        if not _has_settled(host, address, count):
            found = pci.read_driver(host, address)
            if found == PF_STUB:
                _bind_to_nvidia(host, address)
            raise Problem(
                "sriov-failed",
                f"sriov-manage left {address} with {sriov.read_count(host, address)} VFs on {found or 'no driver'}, "
                f"wanted {count} on {DRIVER}; it said: {output or 'nothing'}",
                path=program,
                kernel_lines=log.lines(),
            )


def _has_settled(host: Host, address: str, count: int) -> bool:
    """Wait while the script's work goes on after its end; its exit status tells nothing."""
    for attempt in range(_SETTLE_TRIES):
        if attempt:
            host.wait(_PAUSE_S)
        driver = pci.read_driver(host, address)
        if sriov.read_count(host, address) == count and driver == DRIVER:
            return True
        if driver not in (DRIVER, PF_STUB, None) or (attempt >= 2 and driver == PF_STUB):
            return False
    return False


def _bind_to_nvidia(host: Host, address: str) -> None:
    """Repair a function that an interrupted sriov-manage left on the stub driver."""
    path = pci.folder(address)
    if sriov.read_count(host, address):
        host.write(f"{path}/sriov_numvfs", "0")
    host.write(f"{pci.DRIVERS}/{PF_STUB}/unbind", address)
    if host.read(f"{path}/driver_override").strip() not in ("", "(null)"):
        host.write(f"{path}/driver_override", "\n")
    host.write(f"{pci.DRIVERS}/{DRIVER}/bind", address)
    if pci.read_driver(host, address) != DRIVER:
        raise Problem("driver-did-not-bind", f"{address} did not go back from {PF_STUB} to {DRIVER}")


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
    functions = [vf for _, vf in sriov.read_functions(host, address)]
    parents = {device.parent: device.uuid for device in mdev.read_of(host, (address, *functions))}
    require_unheld(nodes, address, nodes.holders_of_function(address))
    for vf in functions:
        holders = nodes.holders_of_function(vf)
        if vf in parents:
            holders += nodes.holders_of_mdev(parents[vf])
        require_unheld(nodes, f"the VF {vf}", holders)
        if vf in parents:
            raise Problem("vfs-in-use", f"the VF {vf} has the mediated device {parents[vf]}")
        if vgpu_profile.is_offered(host, vf):
            current = vgpu_profile.read_current(host, vf)
            if current != vgpu_profile.NO_TYPE:
                raise Problem("vfs-in-use", f"the VF {vf} has a vGPU of type {current}")
    if address in parents:
        raise Problem("vfs-in-use", f"{address} has the mediated device {parents[address]}")
