# SPDX-License-Identifier: Apache-2.0
"""A part of the fleet, by tenant, board, group of the inventory and state, in sections by one of these."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.natural_order import natural
from vgpuctl.usecases.telemetry.fleet_view import FleetOverview, GpuView, HostView

_OF_GPU: Mapping[str, Callable[[GpuView], Sequence[str]]] = {
    "tenant": lambda gpu: gpu.tenants,
    "board": lambda gpu: (gpu.map.board,),
    "state": lambda gpu: gpu.states,
}
FIELDS = ("tenant", "board", "group", "state")
"""What GPUs are chosen by, and put into sections by."""


@dataclass(frozen=True)
class FleetSection:
    """Hosts, each with those of its GPUs that have a value in common. name: that value, empty for those without one."""

    name: str
    hosts: tuple[HostView, ...]

    @property
    def gpus(self) -> int:
        """The number of GPUs in it."""
        return sum(len(host.gpus) for host in self.hosts)


def values_of(fleet: FleetOverview) -> dict[str, list[str]]:
    """By field, every value that a GPU of the fleet has, in natural order."""
    return {field: [name for name in _names(fleet.hosts, field) if name] for field in FIELDS}


def choose(fleet: FleetOverview, wanted: Mapping[str, str], by: str) -> list[FleetSection]:
    """The GPUs that have all wanted values, in sections by a field; in one section where `by` is none of FIELDS.

    wanted: by field; an empty value leaves all. A host is in a section with some of its GPUs; one without GPUs is left
    out where a tenant, a board or a state is wanted.
    """
    hosts: Iterable[HostView] = fleet.hosts
    for field in FIELDS:
        if wanted.get(field):
            hosts = _having(hosts, field, wanted[field])
    kept = tuple(hosts)
    if by not in FIELDS:
        return [FleetSection("", kept)] if kept else []
    return [FleetSection(name, tuple(_having(kept, by, name))) for name in _names(kept, by)]


def _names(hosts: Iterable[HostView], field: str) -> list[str]:
    found = {name for host in hosts for gpu in host.gpus or (None,) for name in _values(host, gpu, field)}
    return sorted(found, key=lambda name: (not name, natural(name)))


def _having(hosts: Iterable[HostView], field: str, name: str) -> list[HostView]:
    kept = []
    for host in hosts:
        gpus = tuple(gpu for gpu in host.gpus if name in _values(host, gpu, field))
        if gpus or (not host.gpus and name in _values(host, None, field)):
            kept.append(replace(host, gpus=gpus))
    return kept


def _values(host: HostView, gpu: GpuView | None, field: str) -> Sequence[str]:
    """The values of a GPU, or of a host without one; a single empty one for none."""
    found = host.groups if field == "group" else () if gpu is None else _OF_GPU[field](gpu)
    return found or ("",)
