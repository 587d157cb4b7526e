# SPDX-License-Identifier: Apache-2.0
"""A decision over a large fleet; its cost is measured in tests/bench."""

from dataclasses import replace

from tests.unit.fleet_factory import a40_host, leases_of, vm
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.place import place


def test_the_first_of_a_hundred_hosts_that_fits_best_is_found() -> None:
    facts = a40_host(cards=4).facts
    fleet = [HostCapacity(f"gpu{number:04d}", facts) for number in range(100)]
    leases = []
    for number in range(90):
        placement = place(vm("A40-8Q", name=f"vm-{number}"), fleet[number : number + 1], [])
        leases.extend(leases_of(replace(placement, host=fleet[number].name), vm_name=f"vm-{number}"))
    placement = place(vm("2*A40-8Q"), fleet, leases)
    assert placement.host == "gpu0000"
