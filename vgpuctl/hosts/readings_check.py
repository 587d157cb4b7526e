# SPDX-License-Identifier: Apache-2.0
"""Rules for readings beyond their types: a host that lies or floods gets no place in metrics, history and pages."""

from collections.abc import Iterator, Sequence

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.measures import GPU, HOST, INSTANCE, VGPU, VM, measure
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE, HostReadings, Measured

_MOST = {"gpus": 1024, "instances": 8192, "vgpus": 8192, "vms": 8192, "unread": 4096}
_MOST_VALUES = 1024
_LONGEST_LABEL, _LONGEST_NAME, _LONGEST_SENTENCE = 128, 256, 2048
# Counters and sizes go up to 2^63; a ratio of a whole does not.
_LARGEST_RATIO = 1000.0


def check_readings(readings: HostReadings) -> None:
    """Accept readings that a host can have. Raises WireError that names the field."""
    for field, most in _MOST.items():
        count = len(getattr(readings, field))
        if count > most:
            raise WireError(field, f"has {count} entries, more than {most}")
    _check_text(readings.boot_id, _LONGEST_LABEL, "boot_id")
    for number, sentence in enumerate(readings.unread):
        _check_text(sentence, _LONGEST_SENTENCE, f"unread[{number}]")
    _check_names(readings)
    for path, kind, measured in _measured(readings):
        _check_measured(measured, kind, f"{path}.measured" if path else "measured")


def _check_names(readings: HostReadings) -> None:
    gpus = [one.address for one in readings.gpus]
    _check_unique(gpus, "gpus", "address")
    _check_unique([f"{one.gpu}/{one.id}" for one in readings.instances], "instances", "GPU instance")
    _check_unique([one.device for one in readings.vgpus if one.device is not None], "vgpus", "device")
    _check_unique([one.uuid for one in readings.vms], "vms", "VM")
    for number, gpu in enumerate(readings.gpus):
        for text in (gpu.address, gpu.uuid, gpu.model, gpu.driver):
            _check_text(text or "", _LONGEST_NAME, f"gpus[{number}]")
    for number, instance in enumerate(readings.instances):
        _check_of_gpu(instance.gpu, gpus, f"instances[{number}]")
        _check_text(instance.profile, _LONGEST_NAME, f"instances[{number}]")
    for number, vgpu in enumerate(readings.vgpus):
        _check_of_gpu(vgpu.gpu, gpus, f"vgpus[{number}]")
        for text in (vgpu.device, vgpu.vm_uuid, vgpu.profile):
            _check_text(text or "", _LONGEST_NAME, f"vgpus[{number}]")
    for number, vm in enumerate(readings.vms):
        for text in (vm.uuid, vm.name, vm.tenant):
            _check_text(text or "", _LONGEST_NAME, f"vms[{number}]")


def _measured(readings: HostReadings) -> Iterator[tuple[str, str, Measured]]:
    yield "", HOST, readings.measured
    for field, kind in (("gpus", GPU), ("instances", INSTANCE), ("vgpus", VGPU), ("vms", VM)):
        for number, one in enumerate(getattr(readings, field)):
            yield f"{field}[{number}]", kind, one.measured


def _check_measured(measured: Measured, kind: str, path: str) -> None:
    count = len(measured.values) + len(measured.missing)
    if count > _MOST_VALUES:
        raise WireError(path, f"has {count} values, more than {_MOST_VALUES}")
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for name, labels, value in measured.values:
        try:
            known = measure(kind, name)
        except KeyError:
            raise WireError(path, f"{name[:40]!a} is no measure of {kind}") from None
        if len(labels) != len(known.labels):
            raise WireError(path, f"{name} has {len(labels)} labels, not {len(known.labels)}")
        for label in labels:
            _check_text(label, _LONGEST_LABEL, path)
        if (name, labels) in seen:
            raise WireError(path, f"{name} is there twice with the same labels")
        seen.add((name, labels))
        if name.endswith("_ratio") and value > _LARGEST_RATIO:
            raise WireError(path, f"{name} is {value:g}, more than {_LARGEST_RATIO:g}")
    for name, why, reason in measured.missing:
        if why not in (NOT_MEASURABLE, NOT_READABLE):
            raise WireError(path, f"{why[:40]!a} is no reason for a missing value")
        _check_text(name, _LONGEST_LABEL, path)
        _check_text(reason, _LONGEST_SENTENCE, path)


def _check_of_gpu(address: str, gpus: Sequence[str], path: str) -> None:
    if address not in gpus:
        raise WireError(path, f"its GPU {address[:40]!a} is none of the host's")


def _check_unique(names: Sequence[str], field: str, what: str) -> None:
    if len(set(names)) < len(names):
        raise WireError(field, f"the same {what} is there twice")


def _check_text(text: str, longest: int, path: str) -> None:
    if len(text) > longest:
        raise WireError(path, f"has a text of {len(text)} characters, more than {longest}")
