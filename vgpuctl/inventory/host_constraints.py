# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu_placing` of a host: what placing must know of it (docs/placement.md)."""

from vgpuctl.errors import UsageError
from vgpuctl.inventory.layout import read_match
from vgpuctl.inventory.tree import VariableSet
from vgpuctl.model.constraints import Label, read_constraints
from vgpuctl.model.host_constraints import (
    DEFAULT_CPU_RATIO,
    NO_HOST_CONSTRAINTS,
    CpuRatio,
    GpuConstraints,
    HostConstraints,
)
from vgpuctl.model.policy import parse_policy
from vgpuctl.specs.value import Value

VARIABLE = "vgpu_placing"

SLOWEST = 0.001
MOST_VCPUS_PER_CPU = 64


def constraints_of(host: str, variables: VariableSet) -> HostConstraints:
    """Read what a host's variable says. Raises InventoryError that names file, line, key and host."""
    content = variables.values.get(VARIABLE)
    if content is None:
        return NO_HOST_CONSTRAINTS
    value = Value(content, variables.origins[VARIABLE], host, name=VARIABLE, subject=VARIABLE)
    entries = value.fields(("labels", "maintenance", "policy", "gpus", "cpus"))
    return HostConstraints(
        labels=_labels(entries["labels"]) if "labels" in entries else frozenset(),
        maintenance=_reason(entries["maintenance"], "it is in maintenance") if "maintenance" in entries else None,
        policy=_policy(entries["policy"]) if "policy" in entries else None,
        gpus=tuple(_gpu(entry) for entry in entries["gpus"].items()) if "gpus" in entries else (),
        cpu_ratio=_cpu_ratio(entries["cpus"]) if "cpus" in entries else DEFAULT_CPU_RATIO,
    )


def _gpu(value: Value) -> GpuConstraints:
    entries = value.fields(("match", "labels", "quarantine", "speed"), required=("match",))
    return GpuConstraints(
        match=read_match(entries["match"]),
        labels=_labels(entries["labels"]) if "labels" in entries else frozenset(),
        quarantine=_reason(entries["quarantine"], "it is in quarantine") if "quarantine" in entries else None,
        speed=entries["speed"].number(SLOWEST, 1) if "speed" in entries else None,
    )


def _cpu_ratio(value: Value) -> CpuRatio:
    """`pinned` is false where VMs get no CPUs of their own."""
    entries = value.fields(("pinned", "shared"))
    pinned, shared = DEFAULT_CPU_RATIO.pinned, DEFAULT_CPU_RATIO.shared
    if "pinned" in entries:
        is_off = entries["pinned"].content is False
        pinned = None if is_off else entries["pinned"].whole(1, MOST_VCPUS_PER_CPU)
    if "shared" in entries:
        shared = entries["shared"].whole(1, MOST_VCPUS_PER_CPU)
    return CpuRatio(pinned, shared)


def _reason(value: Value, usual: str) -> str | None:
    """Text, or true for the usual text and false for none."""
    if isinstance(value.content, bool):
        return usual if value.truth() else None
    return value.text(hint="write the reason, or true")


def _labels(value: Value) -> frozenset[Label]:
    found: set[Label] = set()
    for key, entry in value.mapping().items():
        text = entry.text()
        try:
            found.update(read_constraints(required=[f"{key}={text}"]).required)
        except UsageError as exc:
            raise entry.refuse("cannot be used as a label", hint=exc.hint) from exc
    return frozenset(found)


def _policy(value: Value) -> str:
    text = value.text()
    try:
        return str(parse_policy(text))
    except UsageError as exc:
        raise value.refuse(f"is {text!r}: {exc.message}", hint=exc.hint) from exc
