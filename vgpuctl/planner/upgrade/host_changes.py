# SPDX-License-Identifier: Apache-2.0
"""Changes that another driver or kernel makes on a host, from the host's present facts."""

import re
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.plural import counted
from vgpuctl.sharing.kinds import has_mdevs_on_vfs

_FABRIC_MANAGER = "nvidia-fabricmanager"
_VERSION = re.compile(r"(\d{1,18})\.(\d{1,18})")
_ENTERPRISE = re.compile(r"\.el(\d{1,18})(?:_(\d{1,18}))?")


@dataclass(frozen=True)
class UpgradeTarget:
    """The driver, the kernel, or both, that hosts are to get. None: stays."""

    driver: str | None
    kernel: str | None


@dataclass(frozen=True)
class HostChange:
    """One thing that the upgrade changes or loses on a host. gpu: its address, None for the host. todo: what to do."""

    gpu: str | None
    found: str
    todo: str


def host_changes(facts: HostFacts, target: UpgradeTarget) -> tuple[HostChange, ...]:
    """List the changes, the host's own first, then by GPU. Sources: reference of host interfaces, sections 3 to 5."""
    found = []
    if target.kernel is not None:
        todo = f"before the reboot: `dkms status` must name {target.kernel} as installed, where DKMS builds the driver"
        found.append(HostChange(None, "the driver's modules must exist for the new kernel", todo))
    services = {one.name.removesuffix(".service"): one for one in facts.services or ()}
    if target.driver is not None and _FABRIC_MANAGER in services:
        todo = f"install nvidia-fabricmanager {target.driver} with the driver"
        found.append(HostChange(None, "the fabric manager must have the driver's version", todo))
    if facts.boot is None and any(_has_layout(gpu) for gpu in facts.gpus):
        todo = "run `vgpuctl apply-hosts` after the reboot, before a VM starts"
        found.append(HostChange(None, "nothing restores VFs, MIG instances and vGPUs at boot", todo))
    if target.driver is not None and facts.boot is not None and facts.boot.unnamed:
        what = counted(len(facts.boot.unnamed), "vGPU")
        todo = "run `vgpuctl apply-hosts` before the upgrade: it writes the names of their types"
        found.append(HostChange(None, f"the boot unit would make {what} by the type ids of the driver of now", todo))
    for gpu in sorted(facts.gpus, key=lambda one: one.address):
        found += [HostChange(gpu.address, text, todo) for text, todo in _of_gpu(gpu, target)]
    return tuple(found)


def _of_gpu(gpu: Gpu, target: UpgradeTarget) -> list[tuple[str, str]]:
    found = []
    if target.kernel is not None and has_mdevs_on_vfs(gpu):
        found.append(_framework(target.kernel))
    if gpu.mig is not None and gpu.mig.current and gpu.mig.instances:
        count = len(gpu.mig.instances)
        found.append(
            (
                f"{count} MIG instances are lost and must be made again",
                "`vgpuctl check-hosts --after-reboot` compares them; `vgpuctl apply-hosts` makes the declared ones",
            )
        )
    if gpu.mig is not None and gpu.mig.current != gpu.mig.pending:
        mode = "on" if gpu.mig.pending else "off"
        found.append((f"MIG mode is pending: the reboot turns it {mode}", "set it back first if that is not wanted"))
    if gpu.heterogeneous:
        found.append(("mixed-size mode is lost", "`vgpuctl apply-hosts` sets a declared one before the first vGPU"))
    if gpu.types and target.driver is not None:
        found.append(
            (
                "the ids of vGPU types may change with the driver",
                "nothing: vgpuctl looks types up by name; `vgpuctl list-profiles --refresh` shows names that are gone",
            )
        )
    return found


def _framework(kernel: str) -> tuple[str, str]:
    """The change from mdevs on VFs to the vendor-specific VFIO framework, which the kernel decides.

    Source: the driver uses its own framework on kernels without the mdev class for SR-IOV GPUs: Ubuntu 24.04 (6.8 and
    newer), RHEL from 9.4 and RHEL 10. GPUs without SR-IOV keep mdevs.
    """
    todo = (
        "stop every VM of the GPU with its shares released, and start it after the upgrade: its domain gets the VF "
        "instead of the mdev; look at the first host with `vgpuctl list-gpus --refresh` before the others"
    )
    if _is_vendor_specific(kernel):
        return f"vGPUs are mdevs on VFs now, and with {kernel} expected as VFs of the vendor-specific framework", todo
    return f"vGPUs are mdevs on VFs; it is not known whether they stay so with {kernel}", todo


def _is_vendor_specific(kernel: str) -> bool:
    enterprise = _ENTERPRISE.search(kernel)
    if enterprise is not None:
        return (int(enterprise[1]), int(enterprise[2] or 0)) >= (9, 4)
    version = _VERSION.match(kernel)
    return version is not None and (int(version[1]), int(version[2])) >= (6, 8)


def _has_layout(gpu: Gpu) -> bool:
    return bool(gpu.vfs or gpu.mdevs or (gpu.mig is not None and gpu.mig.instances))
