# SPDX-License-Identifier: Apache-2.0
"""The labels of each object that a host measured, for metrics. Python 3.9, standard library only.

The exporter and the host's textfile take them from here, so that both expose the same series.
"""

from typing import Dict, Iterator, List, Optional, Tuple

from vgpuctl.agent.wire.measures import GPU, HOST, INSTANCE, MEASURES, VGPU, VM
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE, HostReadings, Measured, VgpuReadings
from vgpuctl.agent.wire.values import dataclass

MOST_LABEL_CHARACTERS = 200
OBJECT_LABELS: Dict[str, Tuple[str, ...]] = {
    HOST: ("host",),
    GPU: ("host", "gpu"),
    INSTANCE: ("host", "gpu", "instance", "profile"),
    VGPU: ("host", "gpu", "tenant", "vm", "share", "profile"),
    VM: ("host", "tenant", "vm"),
}
"""Labels of every series of a kind of object. gpu: a PCI address. share: the mdev's UUID or the function's address."""
_KNOWN = frozenset((one.of, one.name) for one in MEASURES)
Row = Tuple[Tuple[str, ...], float]


@dataclass(frozen=True)
class InfoMetric:
    """A metric about the readings themselves. labels: in the order of the rows' values."""

    name: str
    text: str
    labels: Tuple[str, ...] = ()


GPU_INFO = InfoMetric(
    "vgpuctl_gpu_info",
    "Always 1. uuid: NVML's, the label UUID of dcgm-exporter; empty for a card that NVML does not show.",
    ("host", "gpu", "uuid", "model", "driver"),
)
VGPU_INFO = InfoMetric(
    "vgpuctl_vgpu_info",
    "Always 1. vm_uuid: of the libvirt domain; instance: the id of the MIG GPU instance.",
    (*OBJECT_LABELS[VGPU], "vm_uuid", "instance"),
)
READING_MISSING = InfoMetric(
    "vgpuctl_reading_missing",
    "Objects without a value of a measure. kind: not-measurable (board, driver or mode lacks it) or not-readable.",
    ("host", "gpu", "measure", "kind"),
)
COLLECT_SUCCESS = InfoMetric(
    "vgpuctl_collect_success",
    "Result of the last attempt. part: answer, 1 if the host answered; complete, 1 if nothing was left unread.",
    ("host", "part"),
)


@dataclass(frozen=True)
class NamedVgpu:
    """A vGPU with the tenant and name of its VM, empty where they are not known, and its share."""

    readings: VgpuReadings
    tenant: str
    vm: str
    share: str

    def labels(self, host: str) -> Tuple[str, ...]:
        """The values of OBJECT_LABELS."""
        return host, self.readings.gpu, self.tenant, self.vm, self.share, self.readings.profile

    def info(self, host: str) -> Tuple[str, ...]:
        """The values of VGPU_INFO."""
        instance = self.readings.instance
        return (*self.labels(host), self.readings.vm_uuid or "", "" if instance is None else str(instance))


def labelled(
    host: str, readings: HostReadings, vgpus: "Optional[List[NamedVgpu]]" = None
) -> Iterator[Tuple[str, Tuple[str, ...], Measured]]:
    """Each object with its kind and the values of OBJECT_LABELS. vgpus: with names from leases, where there are any."""
    yield HOST, (host,), readings.measured
    for gpu in readings.gpus:
        yield GPU, (host, gpu.address), gpu.measured
    for instance in readings.instances:
        yield INSTANCE, (host, instance.gpu, str(instance.id), instance.profile), instance.measured
    for one in named_vgpus(readings) if vgpus is None else vgpus:
        yield VGPU, one.labels(host), one.readings.measured
    for vm in readings.vms:
        yield VM, (host, *own_names(vm.tenant, vm.name)), vm.measured


def named_vgpus(readings: HostReadings) -> List[NamedVgpu]:
    """Each vGPU with the names of its domain's metadata."""
    names = {vm.uuid: own_names(vm.tenant, vm.name) for vm in readings.vms}
    return [NamedVgpu(one, *names.get(one.vm_uuid or "", ("", "")), one.device or "") for one in readings.vgpus]


def own_names(tenant: Optional[str], domain: str) -> Tuple[str, str]:
    """A VM's tenant and name as the store has them. A domain is named TENANT.NAME, dots of the tenant doubled."""
    if tenant is None:
        return "", domain
    prefix = tenant.replace(".", "..") + "."
    return tenant, domain[len(prefix) :] if domain.startswith(prefix) else domain


def gpu_rows(host: str, readings: HostReadings) -> Iterator[Row]:
    """The rows of GPU_INFO."""
    for gpu in readings.gpus:
        yield (host, gpu.address, gpu.uuid or "", gpu.model or "", gpu.driver or ""), 1.0


def missing_rows(host: str, readings: HostReadings) -> Iterator[Row]:
    """The rows of READING_MISSING. gpu is empty for what is not of one GPU."""
    counts: Dict[Tuple[str, ...], int] = {}
    for of, labels, measured in labelled(host, readings):
        gpu = labels[1] if of in (GPU, INSTANCE, VGPU) else ""
        for name, kind, _reason in measured.missing:
            if (of, name) not in _KNOWN or kind not in (NOT_MEASURABLE, NOT_READABLE):
                continue  # A host can send any name, and each would be a series.
            key = (host, gpu, f"{of}_{name}", kind)
            counts[key] = counts.get(key, 0) + 1
    for values in sorted(counts):
        yield values, float(counts[values])


def collect_rows(host: str, readings: Optional[HostReadings]) -> Iterator[Row]:
    """The rows of COLLECT_SUCCESS. readings: None if the host could not be read."""
    yield (host, "answer"), float(readings is not None)
    yield (host, "complete"), float(readings is not None and not readings.unread)


def label_value(text: str) -> str:
    r"""A label's value as it is exposed: bounded, and what a terminal or UTF-8 would trip over as `\x1b`."""
    cut = text[:MOST_LABEL_CHARACTERS]
    if cut.isprintable():
        return cut
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
