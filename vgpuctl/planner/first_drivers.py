# SPDX-License-Identifier: Apache-2.0
"""Which driver each function had before vgpuctl took it, and the steps that bring it back.

libvirt (`managed='yes'`) binds to vfio-pci when the VM starts and back when it stops; these steps fix what it left.
"""

from collections.abc import Mapping
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, Step
from vgpuctl.model.lease import Share
from vgpuctl.model.occupancy import gpu_at
from vgpuctl.planner.result import Plan

VFIO_PCI = "vfio-pci"


def with_first_drivers(wanted: Share, facts: HostFacts) -> Share:
    """The share with the drivers that its functions have now, before anything is bound to vfio-pci.

    Only kinds that libvirt rebinds get them, and only functions with a driver; one that has none stays without.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None or not wanted.sharing.is_managed():
        return wanted
    drivers = drivers_of(gpu)
    functions = (wanted.function, *wanted.companions)
    found = tuple((one, driver) for one in functions if (driver := drivers.get(one)) is not None)
    return replace(wanted, first_drivers=found)


def drivers_of(gpu: Gpu) -> Mapping[str, str | None]:
    """The driver of every function of a GPU: the PF, its companions and its VFs."""
    return {
        gpu.address: gpu.driver,
        **{companion.address: companion.driver for companion in gpu.companions},
        **{function.address: function.driver for function in gpu.vfs},
    }


def bind_back(wanted: Share, drivers: Mapping[str, str | None]) -> tuple[BindDriver, ...]:
    """One step per first driver, for the functions that `drivers` does not show on it already."""
    away: dict[str, list[str]] = {}
    for function, driver in wanted.first_drivers:
        if drivers.get(function) != driver:
            away.setdefault(driver, []).append(function)
    return tuple(BindDriver(tuple(functions), driver) for driver, functions in away.items())


def release_functions(held: Share, gpu: Gpu | None, *, can_reset: bool) -> Plan:
    """Reset the function and bind everything back.

    The reset is left out when the function is on a driver of the host again: that driver owns it, and vfio-pci has
    reset it when the VM let go of it (Linux drivers/vfio/pci/vfio_pci_core.c).
    """
    drivers = drivers_of(gpu) if gpu is not None else {}
    if gpu is not None and held.function not in drivers:
        return Plan(summary=(f"nothing to release: {held.function} does not exist",))
    steps: list[Step] = []
    summary: list[str] = []
    first = dict(held.first_drivers).get(held.function)
    current = drivers.get(held.function)
    if can_reset and (gpu is None or current == VFIO_PCI or (current is None and first is not None)):
        steps.append(ResetFunction(held.function))
        summary.append(f"reset {held.function}")
    for step in bind_back(held, drivers):
        steps.append(step)
        summary.append(f"bind {', '.join(step.addresses)} back to {step.driver}")
    if not steps:
        summary.append(f"nothing to release: {held.function} is on its first driver")
    return Plan(steps=tuple(steps), summary=tuple(summary))
