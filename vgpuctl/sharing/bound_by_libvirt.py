# SPDX-License-Identifier: Apache-2.0
"""Functions that libvirt binds (`managed='yes'`): to vfio-pci when the VM starts, and back when it stops.

The driver of each function before vgpuctl took it is kept in the lease; the steps here correct what libvirt left.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, Step
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.declared import Declared
from vgpuctl.sharing.hot_plug import WHILE_IT_RUNS, HotPlug, PlugTime
from vgpuctl.sharing.mps import refuse_mps
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.plan import Plan

VFIO_PCI = "vfio-pci"


class BoundByLibvirt(ABC):
    """A kind whose functions libvirt binds; the device of a share is the function itself."""

    is_bound_by_libvirt = True

    @abstractmethod
    def build(self, share: Share, gpu: Gpu) -> Plan:
        """Steps that make the device."""

    def refuse_host(self, facts: HostFacts) -> Refusal | None:
        """Any host can."""
        return None

    def refuse_console(self, display: VgpuDisplay, libvirt_version: str | None) -> Refusal | None:
        """A function on vfio-pci has no display region, and QEMU ends at the start of a guest that asks for one."""
        return Refusal(
            Code.NO_CONSOLE,
            "only a vGPU's picture can be shown in the console; this GPU's is on its own connectors, or nowhere",
            "use an emulated adapter (`video: bochs`), or a remote desktop inside the guest",
        )

    def with_params(self, share: Share, gpu: Gpu, params: VgpuParams | None) -> Plan:
        """A function has no parameters."""
        return self.build(share, gpu)

    def refuse_terms(
        self, share: Share, gpu: Gpu, facts: HostFacts, declared: Declared, terms: VgpuTerms
    ) -> Refusal | None:
        """MPS in the guest alone: the guest's driver drives the device, so no driver of the host works with it."""
        return refuse_mps(share, gpu, terms)

    def hot_plug(self, share: Share, display: VgpuDisplay) -> HotPlug:
        """QEMU plugs any PCI function; libvirt plugs one at a time, so that a card with companions is not one slot."""
        if not share.companions:
            return WHILE_IT_RUNS
        count = len(share.companions)
        reason = f"libvirt attaches one PCI function at a time, and the card has {count} more in its slot"
        return HotPlug(PlugTime.NEXT_START, reason)

    def same_on(self, example: Share, gpu: Gpu, taken: Container[str]) -> Share | None:
        """Companions and IOMMU groups differ from card to card, so each is asked."""
        return None

    def freed(self, gpu: Gpu, given_back: Sequence[Share]) -> Gpu:
        """The function stays."""
        return gpu

    def named(self, share: Share, identity: str) -> Share:
        """The function has its address."""
        return share

    def with_first_drivers(self, share: Share, gpu: Gpu) -> Share:
        """The share with the drivers that its functions have now; a function without a driver stays without."""
        drivers = drivers_of(gpu)
        functions = (share.function, *share.companions)
        found = tuple((one, driver) for one in functions if (driver := drivers.get(one)) is not None)
        return replace(share, first_drivers=found)

    def as_found(self, share: Share, gpu: Gpu) -> Share:
        """A share in use; the first driver of a function that is on vfio-pci is unknown, and libvirt restores it."""
        found = self.with_first_drivers(share, gpu)
        return replace(found, first_drivers=tuple(one for one in found.first_drivers if one[1] != VFIO_PCI))


def drivers_of(gpu: Gpu) -> Mapping[str, str | None]:
    """The driver of every function of a GPU: the PF, its companions and its VFs."""
    return {
        gpu.address: gpu.driver,
        **{companion.address: companion.driver for companion in gpu.companions},
        **{function.address: function.driver for function in gpu.vfs},
    }


def bind_back(share: Share, drivers: Mapping[str, str | None]) -> tuple[BindDriver, ...]:
    """One step per first driver, for the functions that `drivers` does not show on it already."""
    away: dict[str, list[str]] = {}
    for function, driver in share.first_drivers:
        if drivers.get(function) != driver:
            away.setdefault(driver, []).append(function)
    return tuple(BindDriver(tuple(functions), driver) for driver, functions in away.items())


def release_functions(held: Share, gpu: Gpu | None, *, can_reset: bool) -> Plan:
    """Reset the function and bind everything back.

    vfio-pci resets a function when a VM lets go of it, if it can, and says neither how nor whether it worked (Linux
    drivers/vfio/pci/vfio_pci_core.c). So the function is reset once more by a step that does. libvirt has given it back
    to the host's driver by then, under which no reset is safe: it is on vfio-pci meanwhile.
    """
    drivers = drivers_of(gpu) if gpu is not None else {}
    if gpu is not None and held.function not in drivers:
        return Plan(summary=(f"nothing to release: {held.function} does not exist",))
    steps: list[Step] = []
    summary: list[str] = []
    first, current = dict(held.first_drivers).get(held.function), drivers.get(held.function)
    if can_reset:
        is_on_hosts_driver = first is not None if gpu is None else current not in (VFIO_PCI, None)
        if is_on_hosts_driver:
            steps.append(BindDriver((held.function,), VFIO_PCI))
            drivers = {**drivers, held.function: VFIO_PCI}
        if first is None and current not in (VFIO_PCI, None):
            # Adopted while its VM had it: libvirt knew the driver before, and has bound it.
            held = replace(held, first_drivers=(*held.first_drivers, (held.function, current)))
        steps.append(ResetFunction(held.function))
        summary.append(f"reset {held.function}")
    for step in bind_back(held, drivers):
        steps.append(step)
        summary.append(f"bind {', '.join(step.addresses)} back to {step.driver}")
    if not steps:
        summary.append(f"nothing to release: {held.function} is on its first driver")
    return Plan(steps=tuple(steps), summary=tuple(summary))
