# SPDX-License-Identifier: Apache-2.0
"""The labels of each object that a host measured, for metrics. Python 3.9, standard library only.

The exporter and the host's textfile take them from here, so that both expose the same series.
"""

from typing import Dict, Iterator, Optional, Tuple

from vgpuctl.agent.wire.measures import GPU, HOST, INSTANCE, VGPU, VM
from vgpuctl.agent.wire.readings import HostReadings, Measured, VgpuReadings

OBJECT_LABELS: Dict[str, Tuple[str, ...]] = {
    HOST: ("host",),
    GPU: ("host", "gpu"),
    INSTANCE: ("host", "gpu", "instance", "profile"),
    VGPU: ("host", "gpu", "tenant", "vm", "share", "profile"),
    VM: ("host", "tenant", "vm"),
}
"""Labels of every series of a kind of object. gpu: a PCI address. share: the mdev's UUID or the function's address."""


def labelled(host: str, readings: HostReadings) -> Iterator[Tuple[str, Tuple[str, ...], Measured]]:
    """Each object with its kind and the values of OBJECT_LABELS. Tenant and VM are those of the domain's metadata."""
    yield HOST, (host,), readings.measured
    for gpu in readings.gpus:
        yield GPU, (host, gpu.address), gpu.measured
    for instance in readings.instances:
        yield INSTANCE, (host, instance.gpu, str(instance.id), instance.profile), instance.measured
    vms = {vm.uuid: own_names(vm.tenant, vm.name) for vm in readings.vms}
    for vgpu in readings.vgpus:
        yield VGPU, vgpu_labels(host, vgpu, *vms.get(vgpu.vm_uuid or "", ("", ""))), vgpu.measured
    for vm in readings.vms:
        yield VM, (host, *vms[vm.uuid]), vm.measured


def vgpu_labels(host: str, vgpu: VgpuReadings, tenant: str, vm: str, share: Optional[str] = None) -> Tuple[str, ...]:
    """The labels of one vGPU. share: its device by the lease, None where it is not known."""
    return host, vgpu.gpu, tenant, vm, share or vgpu.device or "", vgpu.profile


def own_names(tenant: Optional[str], domain: str) -> Tuple[str, str]:
    """A VM's tenant and name as the store has them. A domain is named TENANT.NAME, dots of the tenant doubled."""
    if tenant is None:
        return "", domain
    prefix = tenant.replace(".", "..") + "."
    return tenant, domain[len(prefix) :] if domain.startswith(prefix) else domain
