# SPDX-License-Identifier: Apache-2.0
"""One host's readings, joined with its leases, as a page of metrics and as values for the history."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.labelled import (
    NamedVgpu,
    gpu_rows,
    label_value,
    labelled,
    missing_rows,
    named_vgpus,
    own_names,
)
from vgpuctl.agent.wire.measures import GPU, HOST, MEASURES, VGPU, VM
from vgpuctl.agent.wire.readings import HostReadings, Measured
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.sharing.measured import join_leases
from vgpuctl.telemetry import own_metrics as own
from vgpuctl.telemetry.exposition import Dropped, Page, measured_families
from vgpuctl.telemetry.family import MetricFamily
from vgpuctl.telemetry.history import MeasuredValue, Subject

_KEPT = {(one.of, one.name): len(one.labels) for one in MEASURES if one.is_kept}
"""The number of labels of each measure that the history keeps."""

MOST_OBJECTS = 4000
"""GPUs, MIG instances, vGPUs or VMs of one host; a host that tells of more lies."""

MOST_PARTS = 4000
"""Kept values of parts of objects, such as pools, of one reading; a host with 1,024 VMs has some 3,000."""


def host_page(host: str, readings: HostReadings, leases: Sequence[Lease]) -> Page:
    """Return the page of what a host measured. leases: the live ones of this host."""
    dropped = Dropped()
    readings = _bounded(readings, dropped)
    vgpus = _named(readings, leases)
    families = measured_families(labelled(host, readings, vgpus), dropped)
    families.append(own.GPU_INFO.of(gpu_rows(host, readings)))
    families.append(own.VGPU_INFO.of((one.info(host), 1.0) for one in vgpus))
    families.append(own.READING_MISSING.of(missing_rows(host, readings)))
    families.append(own.DROPPED_SERIES.of(((host, reason), count) for reason, count in dropped.counts()))
    return Page(families)


def kept_values(host: str, readings: HostReadings, leases: Sequence[Lease]) -> list[MeasuredValue]:
    """Return the values of one reading that the history keeps, each with its subject.

    Values whose labels are not the measure's are left out, and those of more than MOST_PARTS parts.
    """
    found, parts = [], 0
    readings = _bounded(readings, Dropped())
    for subject, measured in _subjects(host, readings, _named(readings, leases)):
        for name, labels, value in measured.values:
            if _KEPT.get((subject.kind, name)) != len(labels):
                continue
            parts += bool(labels)
            if not labels or parts <= MOST_PARTS:
                found.append(MeasuredValue(subject.part([label_value(one) for one in labels]), name, value))
    return found


def telemetry_sources(vms: Iterable[Vm], leases: Sequence[Lease], readings: Mapping[str, HostReadings]) -> MetricFamily:
    """Return who can measure each lease: its host, its guest by an exporter that the tenant allows, or nobody."""
    allowed = {vm.uuid for vm in vms if vm.request.guest_metrics is not None}
    rows = []
    for one in join_leases((lease for lease in leases if lease.state.is_attached()), readings):
        lease, share = one.lease, one.lease.share
        source = "host" if one.readings is not None else "guest" if lease.vm_uuid in allowed else "none"
        labels = (lease.host, share.gpu, lease.tenant, lease.vm_name, share.vfio_device, share.profile, source)
        rows.append((labels, 1.0))
    return own.SHARE_TELEMETRY.of(rows)


def _bounded(readings: HostReadings, dropped: Dropped) -> HostReadings:
    objects = (readings.gpus, readings.instances, readings.vgpus, readings.vms)
    dropped.too_many += sum(max(0, len(one) - MOST_OBJECTS) for one in objects)
    return replace(
        readings,
        gpus=readings.gpus[:MOST_OBJECTS],
        instances=readings.instances[:MOST_OBJECTS],
        vgpus=readings.vgpus[:MOST_OBJECTS],
        vms=readings.vms[:MOST_OBJECTS],
    )


def _subjects(host: str, readings: HostReadings, vgpus: Sequence[NamedVgpu]) -> Iterator[tuple[Subject, Measured]]:
    yield Subject(HOST, host, ""), readings.measured
    for gpu in readings.gpus:
        yield Subject(GPU, host, gpu.uuid or gpu.address, gpu=gpu.address), gpu.measured
    for one in vgpus:
        subject = Subject(VGPU, host, one.share, one.readings.gpu, one.tenant, one.vm, one.readings.profile)
        yield subject, one.readings.measured
    for vm in readings.vms:
        tenant, name = own_names(vm.tenant, vm.name)
        yield Subject(VM, host, vm.uuid, tenant=tenant, vm=name), vm.measured


def _named(readings: HostReadings, leases: Sequence[Lease]) -> list[NamedVgpu]:
    """Each vGPU with its names. One of a VM without lease and without metadata has none."""
    by_vgpu: dict[int, Lease] = {}
    for share in join_leases(leases, {lease.host: readings for lease in leases}):
        if share.readings is not None:
            by_vgpu[id(share.readings)] = share.lease
    found = []
    for named in named_vgpus(readings):
        lease = by_vgpu.get(id(named.readings))
        if lease is not None:
            named = NamedVgpu(named.readings, lease.tenant, lease.vm_name, lease.share.vfio_device)
        found.append(named)
    return found
