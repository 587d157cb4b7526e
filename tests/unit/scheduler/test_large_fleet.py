# SPDX-License-Identifier: Apache-2.0
"""A decision's cost: one pass over the fleet."""

import time
from dataclasses import replace

from tests.unit.fleet_factory import a40_host, leases_of, vm
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler import place


def test_a_thousand_hosts_are_searched_within_a_second() -> None:
    facts = a40_host(cards=4).facts
    fleet = [HostCapacity(f"gpu{number:04d}", facts) for number in range(1000)]
    leases = []
    for number in range(0, 900):
        placement = place(vm("A40-8Q", name=f"vm-{number}"), fleet[number : number + 1], [])
        leases.extend(leases_of(replace(placement, host=fleet[number].name), vm_name=f"vm-{number}"))
    started = time.process_time()
    placement = place(vm("2*A40-8Q"), fleet, leases)
    assert placement.host == "gpu0000"
    assert time.process_time() - started < 1.0
