# SPDX-License-Identifier: Apache-2.0
"""The order of the chassis of tenants' gateways."""

from collections import Counter

from vgpuctl.ovn.gateways import chassis_order

CHASSIS = ("gpu1", "gpu2", "gpu3", "gpu4")
TENANTS = [f"tenant-{number}" for number in range(2000)]


def test_first_places_are_spread_over_the_chassis_and_so_are_the_second_ones_behind_each() -> None:
    orders = {tenant: chassis_order(tenant, CHASSIS) for tenant in TENANTS}
    assert all(sorted(order) == list(CHASSIS) for order in orders.values())
    firsts = Counter(order[0] for order in orders.values())
    assert min(firsts.values()) > 0.8 * len(TENANTS) / len(CHASSIS), firsts
    seconds = Counter(order[1] for order in orders.values() if order[0] == "gpu1")
    assert set(seconds) == {"gpu2", "gpu3", "gpu4"} and min(seconds.values()) > 0.7 * firsts["gpu1"] / 3, seconds
    assert orders == {tenant: chassis_order(tenant, CHASSIS[::-1]) for tenant in TENANTS}, "as declared does not count"


def test_a_chassis_more_or_aside_moves_only_the_tenants_that_it_is_first_for() -> None:
    for tenant in TENANTS[:200]:
        order = chassis_order(tenant, CHASSIS)
        fewer, aside = chassis_order(tenant, CHASSIS[:3]), chassis_order(tenant, CHASSIS, {"gpu4"})
        assert fewer == [one for one in order if one != "gpu4"]
        assert aside == [*fewer, "gpu4"]
    assert chassis_order("acme", (), {"gpu4"}) == []
    assert chassis_order("acme", ("gpu4",), {"gpu4"}) == ["gpu4"], "who is alone carries it"
