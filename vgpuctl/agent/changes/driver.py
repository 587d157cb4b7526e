# SPDX-License-Identifier: Apache-2.0
"""Bind functions to a driver and give them back (reference 1.2)."""

import re
from contextlib import nullcontext
from typing import List, Optional

from vgpuctl.agent.changes import unbind_lock
from vgpuctl.agent.facts import capabilities, mdev, nvidia, nvml_gpus, pci, sriov
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import BindDriver, Change
from vgpuctl.agent.wire.values import dataclass, replace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PROBE = "/sys/bus/pci/drivers_probe"
_MODPROBE_TIMEOUT_S = 60.0
_UNSET = ("", "(null)")


@dataclass(frozen=True)
class Binding:
    """The two values that decide a function's driver: the present one, and driver_override."""

    address: str
    driver: Optional[str]
    override: Optional[str]

    def is_wanted(self, driver: Optional[str]) -> bool:
        """True if nothing is left to do; without override the kernel has had its choice."""
        return self.override is None if driver is None else self.driver == driver


def ensure(host: Host, step: BindDriver, *, dry_run: bool) -> Change:
    """Bind every function of the step to one driver; None clears driver_override and lets the kernel pick.

    All or none: when one function fails, those before it go back.
    `drivers_probe` answers success also when no driver took the device, so the link is read back. An override
    for other than a VFIO driver goes again once the function is bound.

    Raises Problem: `held`, `vfs-active`, `mdevs-active`, `mig-instances-active`, `mig-unreadable`, `driver-missing`,
    `driver-did-not-bind`, `unbind-lock` of a card that another program uses, `write-refused`.
    """
    driver = step.driver
    if driver is not None and not _NAME.fullmatch(driver):
        raise Problem(ProblemCode.BAD_DRIVER, f"{driver!r} is not a driver's name")
    bindings = [_read(host, address) for address in step.addresses]
    pending = [binding for binding in bindings if not binding.is_wanted(driver)]
    target, before = " ".join(step.addresses), _describe(bindings)
    if not pending:
        return Change(step.op, target, before, before, changed=False)
    nodes = OpenNodes(host)
    for binding in pending:
        if binding.driver is not None:
            _require_idle(host, nodes, binding.address)
    if dry_run:
        after = " ".join(f"{address}={driver or 'kernel'}" for address in step.addresses)
        return Change(step.op, target, before, after, changed=True)
    if driver is not None:
        _load(host, driver)
    for number, binding in enumerate(pending):
        try:
            _bind(host, binding, driver)
        except Problem as problem:
            raise _give_back(host, pending[: number + 1], problem) from problem
    return Change(step.op, target, before, _describe([_read(host, a) for a in step.addresses]), changed=True)


def _bind(host: Host, binding: Binding, driver: Optional[str]) -> None:
    address = binding.address
    with host.kernel_log() as log:
        _rebind(host, address, driver, previous=binding.driver)
        after = pci.read_driver(host, address)
        if driver is not None and after != driver:
            raise Problem(
                ProblemCode.DRIVER_DID_NOT_BIND,
                f"{address} did not bind to {driver}, it is on {after or 'no driver'}",
                path=f"{pci.folder(address)}/driver",
                kernel_lines=log.lines(),
                hint="see the kernel's lines; other endpoints of its IOMMU group may be in use by the host",
            )
    if driver is not None and not driver.startswith("vfio"):
        _set_override(host, address, None)


def _give_back(host: Host, bindings: List[Binding], problem: Problem) -> Problem:
    """Rebind functions to their earlier drivers; the problem tells the result."""
    message = problem.message
    for binding in reversed(bindings):
        if _read(host, binding.address) == binding:
            continue
        try:
            _rebind(host, binding.address, binding.override, previous=pci.read_driver(host, binding.address))
        except Problem as second:
            message += f"; giving {binding.address} back to {binding.driver or 'no driver'} failed too: {second}"
    now = _describe([_read(host, binding.address) for binding in bindings])
    return replace(problem, message=f"{message}; the drivers are now {now}")


def _rebind(host: Host, address: str, override: Optional[str], *, previous: Optional[str]) -> None:
    # NVIDIA's driver lets go of a card while something opens it only to hang; under the lock nobody can.
    with unbind_lock.held(host, address) if previous == nvidia.DRIVER else nullcontext():
        _set_override(host, address, override)
        if previous is not None:
            host.write(f"{pci.DRIVERS}/{previous}/unbind", address)
        host.write(_PROBE, address)


def _set_override(host: Host, address: str, override: Optional[str]) -> None:
    if _read(host, address).override != override:
        host.write(f"{pci.folder(address)}/driver_override", f"{override or ''}\n")


def _read(host: Host, address: str) -> Binding:
    path = pci.require(host, address)
    override = host.read(f"{path}/driver_override").strip()
    return Binding(address, pci.read_driver(host, address), None if override in _UNSET else override)


def _describe(bindings: List[Binding]) -> str:
    return " ".join(f"{binding.address}={binding.driver or '-'}" for binding in bindings)


def _require_idle(host: Host, nodes: OpenNodes, address: str) -> None:
    """Refuse while anything needs the present driver; unbinding nvidia under an open node hangs the writer."""
    holders = nodes.holders_of_function(address) + nodes.users(address)
    require_unheld(nodes, address, holders)
    count = sriov.read_count(host, address)
    if count:
        raise Problem(
            ProblemCode.VFS_ACTIVE, f"{address} has {count} VFs; its driver must stay until they are disabled"
        )
    children = [device.uuid for device in mdev.read_of(host, (address,))]
    if children:
        raise Problem(ProblemCode.MDEVS_ACTIVE, f"{address} has the mediated devices {', '.join(children)}")
    instances = capabilities.read_instances(host, address) or _instances(host, address)
    if instances:
        raise Problem(
            ProblemCode.MIG_INSTANCES_ACTIVE,
            f"{address} has the MIG instances {', '.join(instances)}, which would be lost with its driver",
            hint="destroy them first: `vgpuctl apply-hosts` does where the layout has no MIG",
        )


def _instances(host: Host, address: str) -> List[str]:
    """Names of the GPU instances as NVML shows them; none of a card that is not on NVIDIA's driver."""
    if pci.read_driver(host, address) != nvidia.DRIVER:
        return []
    nvml, _problem = Nvml.open(host)
    if nvml is None:
        return []
    with nvml:
        cards, problems = nvml_gpus.read(nvml)
    found = cards.get(address)
    if found is None and problems:
        raise Problem(
            ProblemCode.MIG_UNREADABLE, f"whether {address} has MIG instances cannot be told: {'; '.join(problems)}"
        )
    if found is None:
        return []
    unread = found.problems if found.mig is None else found.mig.problems
    if unread:
        raise Problem(
            ProblemCode.MIG_UNREADABLE, f"whether {address} has MIG instances cannot be told: {'; '.join(unread)}"
        )
    return [f"{one.profile} at {one.start}" for one in (found.mig.instances if found.mig is not None else ())]


def _load(host: Host, driver: str) -> None:
    folder = f"{pci.DRIVERS}/{driver}"
    if host.exists(folder):
        return
    done = host.run(["modprobe", "--", driver], timeout_s=_MODPROBE_TIMEOUT_S, changes=True)
    if not host.exists(folder):
        raise Problem(
            ProblemCode.DRIVER_MISSING,
            f"the kernel has no PCI driver {driver}: modprobe ended with {done.status}: {done.errors.strip()}",
            path=folder,
            hint=f"install the kernel module {driver}",
        )
