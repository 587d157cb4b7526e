# SPDX-License-Identifier: Apache-2.0
"""Switch MIG of one GPU on or off (reference 5.1)."""

from typing import Tuple

from vgpuctl.agent.facts import nvml_mig, pci, sriov
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import required
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetMigMode


def ensure(host: Host, step: SetMigMode, *, dry_run: bool) -> Change:
    """Set the MIG mode; a mode that waits for a reset stays pending and is a Problem.

    Raises Problem: `no-mig`, `vfs-active` when it is switched off over VFs, `mig-mode-pending`, `nvml-in-use` and
    others of NVML.
    """
    address, wanted = step.address, step.enabled
    pci.require(host, address)
    before = read_mode(host, address)
    if before == (wanted, wanted):
        return Change(step.op, address, describe(before), describe(before), changed=False)
    count = sriov.read_count(host, address)
    if before[0] and not wanted and count:
        raise Problem(ProblemCode.VFS_ACTIVE, f"{address} has {count} VFs; MIG stays on until they are disabled")
    if dry_run:
        return Change(step.op, address, describe(before), describe((wanted, wanted)), changed=True)
    host.writes += 1
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"switching MIG of {address} {'on' if wanted else 'off'}"):
            nvml.library.nvmlDeviceSetMigMode(device, int(wanted))
    after = read_mode(host, address)
    if after == (wanted, wanted):
        return Change(step.op, address, describe(before), describe(after), changed=True)
    if after[1] != wanted:
        raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{address} accepted the MIG mode but reads {describe(after)}")
    users = ", ".join(f"{one.command} (pid {one.pid})" for one in OpenNodes(host).users(address))
    raise Problem(
        ProblemCode.MIG_MODE_PENDING,
        f"MIG of {address} is {describe(after)}" + (f"; in use by {users}" if users else ""),
        hint="it counts after a reset of the GPU (gpu.reset) or a reboot of the host",
    )


def read_mode(host: Host, address: str) -> Tuple[bool, bool]:
    """Return whether MIG is on and whether it will be. Raises Problem `no-mig`, `nvml-…`."""
    with required(host) as nvml:
        device = nvml.device(address)
        with nvml.refusals(f"reading the MIG mode of {address}"):
            mode = nvml_mig.read_mode(nvml, device)
    if mode is None:
        raise Problem(ProblemCode.NO_MIG, f"{address} has no MIG, or its driver does not tell")
    return mode


def describe(mode: Tuple[bool, bool]) -> str:
    """Say a mode as `enabled`, or `disabled, enabled pending`."""
    words = ["enabled" if one else "disabled" for one in mode]
    return words[0] if mode[0] == mode[1] else f"{words[0]}, {words[1]} pending"
