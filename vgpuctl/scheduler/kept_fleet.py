# SPDX-License-Identifier: Apache-2.0
"""A fleet that is kept from one placement to the next: only hosts that were read otherwise since are put in again."""

from collections import defaultdict
from collections.abc import Sequence

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.scorer import NOTHING_MORE, FleetView


class KeptFleet:
    """The fleet of the last placement. Answers are those of a new Fleet with the same arguments."""

    def __init__(self) -> None:
        self._fleet = Fleet()
        self._there: dict[str, tuple[HostCapacity, list[Lease]]] = {}
        self._view = NOTHING_MORE

    def with_hosts(
        self, capacities: Sequence[HostCapacity], leases: Sequence[Lease], view: FleetView = NOTHING_MORE
    ) -> Fleet:
        """The fleet with exactly these hosts and leases. It is changed by the next call."""
        if _is_other(view, self._view):
            self._fleet, self._there = Fleet(view=view), {}
        self._view = view
        self._fleet.learn_workloads(view.workloads)
        by_host: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in leases:
            by_host[lease.host].append(lease)
        now = {one.name: (one, by_host[one.name]) for one in capacities}
        for name in self._there.keys() - now.keys():
            self._fleet.remove(name)
        for name, there in now.items():
            if self._there.get(name) != there:
                self._fleet.put(*there)
        self._there = now
        self._fleet.last_host = view.last_host
        return self._fleet


def _is_other(view: FleetView, before: FleetView) -> bool:
    """True if GPUs that were put in are of another class now."""
    if view.utilisation_percent != before.utilisation_percent or view.model != before.model:
        return True
    if view.unmeasured != before.unmeasured:
        return True
    return view.model is not None and any(
        view.workloads.get(vm, workload) != workload for vm, workload in before.workloads.items()
    )
