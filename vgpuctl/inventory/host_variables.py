# SPDX-License-Identifier: Apache-2.0
"""The variables `vgpu`, `vgpu_placing`, `vgpu_health`, `vgpu_fencing` and `vgpu_moves`, as their tables describe them.

As every variable each comes whole from the place that counts most; mappings of several places are not mixed.
"""

import difflib
from collections.abc import Iterator

from vgpuctl.inventory.tree import VariableSet
from vgpuctl.model.fencing import NO_FENCING, Fencing
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthPolicy
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, HostConstraints
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.move_link import NO_MOVE_LINK, MoveLink
from vgpuctl.specs.fencing import FENCING, FENCING_VARIABLE
from vgpuctl.specs.health import HEALTH, HEALTH_VARIABLE
from vgpuctl.specs.layout import LAYOUT, LAYOUT_VARIABLE, VERSION
from vgpuctl.specs.moves import MOVES, MOVES_VARIABLE
from vgpuctl.specs.placing import PLACING, PLACING_VARIABLE
from vgpuctl.specs.reading import check_version, read_entry
from vgpuctl.specs.value import Value

_NAMES = (LAYOUT_VARIABLE, PLACING_VARIABLE, HEALTH_VARIABLE, FENCING_VARIABLE, MOVES_VARIABLE)
_NEAR = 0.85


def layout_of(host: str, variables: VariableSet) -> HostLayout | None:
    """Read a host's layout, None when the host has no variable `vgpu`.

    Raises InventoryError that names file, line, key and host for an unknown key, a wrong type, an unknown version, and
    for entries that contradict each other.
    """
    value = _value(host, variables, LAYOUT_VARIABLE, "the layout")
    if value is None:
        return None
    check_version(value, VERSION)
    layout: HostLayout = read_entry(LAYOUT, value)
    return layout


def constraints_of(host: str, variables: VariableSet) -> HostConstraints:
    """Read a host's constraints. Raises InventoryError that names file, line, key and host."""
    value = _value(host, variables, PLACING_VARIABLE, PLACING_VARIABLE)
    if value is None:
        return NO_HOST_CONSTRAINTS
    constraints: HostConstraints = read_entry(PLACING, value)
    return constraints


def health_policy_of(host: str, variables: VariableSet) -> HealthPolicy:
    """Read a host's policy for GPUs that are not healthy. Raises InventoryError that names file, line, key and host."""
    value = _value(host, variables, HEALTH_VARIABLE, HEALTH_VARIABLE)
    if value is None:
        return DEFAULT_HEALTH_POLICY
    policy: HealthPolicy = read_entry(HEALTH, value)
    return policy


def fencing_of(host: str, variables: VariableSet) -> Fencing:
    """Read how a host is powered off. Raises InventoryError that names file, line, key and host."""
    value = _value(host, variables, FENCING_VARIABLE, FENCING_VARIABLE)
    if value is None:
        return NO_FENCING
    fencing: Fencing = read_entry(FENCING, value)
    return fencing


def move_link_of(host: str, variables: VariableSet) -> MoveLink:
    """Read how running VMs move to and from a host. Raises InventoryError that names file, line, key and host."""
    value = _value(host, variables, MOVES_VARIABLE, MOVES_VARIABLE)
    if value is None:
        return NO_MOVE_LINK
    link: MoveLink = read_entry(MOVES, value)
    return link


def misspelt(variables: VariableSet) -> Iterator[str]:
    """Warnings about variables whose names are nearly one that is read here, and that would do nothing in silence."""
    for name in variables.values:
        if not isinstance(name, str) or not name.startswith("vgpu") or name in _NAMES:
            continue
        near = difflib.get_close_matches(name.replace("-", "_"), _NAMES, n=1, cutoff=_NEAR)
        if near:
            yield f"{variables.origins[name]}: variable {name[:80]!a} is not read; did you mean {near[0]}?"


def _value(host: str, variables: VariableSet, name: str, subject: str) -> Value | None:
    content = variables.values.get(name)
    return None if content is None else Value(content, variables.origins[name], host, name=name, subject=subject)
