# SPDX-License-Identifier: Apache-2.0
"""All readings of a host by one question."""

from contextlib import nullcontext
from typing import List

from vgpuctl.agent.facts import nvidia, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, normalise_bus_id, text
from vgpuctl.agent.readings import gpu, shares, vgpu
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.readings import GpuReadings, HostReadings, VgpuReadings


def read(host: Host) -> HostReadings:
    """Read everything that can be measured. What cannot be read is a sentence in `unread` or a missing value."""
    unread: List[str] = []
    gpus: List[GpuReadings] = []
    vgpus: List[VgpuReadings] = []
    nvml, problem = Nvml.open(host)
    with nvml if nvml is not None else nullcontext():
        if nvml is None:
            unread.append(problem or "NVML cannot be used")
        else:
            _read_by_nvml(nvml, gpus, vgpus, unread)
    shown = {one.address for one in gpus}
    for address in pci.read_addresses(host):
        try:
            function = pci.read_gpu(host, address)
        except Problem as refusal:
            unread.append(refusal.message)
            continue
        if function is not None and address not in shown:
            if function.driver == nvidia.DRIVER:
                unread.append(f"{address}: NVML does not show it")
            gpus.append(GpuReadings(address, None, None, function.driver))
    return HostReadings(
        boot_id=host.read("/proc/sys/kernel/random/boot_id").strip(),
        read_at=host.now(),
        monotonic_s=host.monotonic(),
        gpus=tuple(sorted(gpus, key=lambda one: one.address)),
        vgpus=tuple(vgpus),
        unread=tuple(unread),
    )


def _read_by_nvml(nvml: Nvml, gpus: List[GpuReadings], vgpus: List[VgpuReadings], unread: List[str]) -> None:
    library = nvml.library
    for index in range(nvml.if_possible(library.nvmlDeviceGetCount) or 0):
        try:
            device = library.nvmlDeviceGetHandleByIndex(index)
            address = normalise_bus_id(text(library.nvmlDeviceGetPciInfo(device).busId) or "")
            measured = gpu.read(nvml, device).measured()
            gpus.append(
                GpuReadings(
                    address=address,
                    uuid=text(nvml.if_possible(lambda: library.nvmlDeviceGetUUID(device))),  # noqa: B023 - called at once
                    model=text(nvml.if_possible(lambda: library.nvmlDeviceGetName(device))),  # noqa: B023
                    driver=nvidia.DRIVER,
                    measured=measured,
                )
            )
            running = vgpu.read(nvml, device, address, unread)
            policy = measured.label("scheduler_policy")
            vgpus += shares.complete(address, running, policy=policy, slices={}, all_slices=0, devices={})
        except library.NVMLError as error:
            unread.append(f"NVML: GPU {index} does not answer: {error}")
