# SPDX-License-Identifier: Apache-2.0
"""Values that one host alone may have: two hosts with the same one are both told, each with both places."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import host_facts
from tests.unit.planner.layout.test_plan_network import DONE, LAYOUT
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import InterfaceFacts, OvnFacts
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout.fleet_values import collect, values_of
from vgpuctl.planner.layout.plan import plan_host


def layout(host: str, chassis: str | None = None) -> HostLayout:
    assert LAYOUT.network is not None
    network = replace(LAYOUT.network, chassis=chassis or host)
    return replace(LAYOUT, network=network, origin=f"host_vars/{host}.yml:3")


def facts(tunnel: str, *more: InterfaceFacts) -> HostFacts:
    found: OvnFacts = replace(DONE, interfaces=(InterfaceFacts("eno1", 1500, (tunnel,)), *more))
    return replace(host_facts([]), ovn=found, network_interfaces=("eno1", "eno2"))


ONE, OTHER = facts("10.83.0.1/24"), facts("10.83.0.2/24")
AT_UPLINK = InterfaceFacts("br-provider", 1500, ("198.51.100.9/24",))


def told(first: HostFacts, second: HostFacts | None, chassis: str | None = None) -> list[tuple[str, str]]:
    """Code and reason for gpu1, beside gpu2 and a host without any of it."""
    layouts = {"gpu1": layout("gpu1", chassis), "gpu2": layout("gpu2", chassis)}
    every = {"gpu1": first, "gpu2": second}
    fleet = collect(value for name in layouts for value in values_of(name, layouts[name], every[name]))
    found = fleet.obstacles_of("gpu1", layouts["gpu1"], first)
    assert all(one.origin == "host_vars/gpu1.yml:3" for one in found)
    return [(one.code, one.reason) for one in found]


@pytest.mark.parametrize(
    ("first", "second", "chassis", "words"),
    [
        (ONE, OTHER, "node", "the name in OVN node"),
        (ONE, None, "node", "the name in OVN node"),
        (ONE, facts("10.83.0.1/16"), None, "the tunnel address 10.83.0.1"),
        (
            facts("10.83.0.1/24", AT_UPLINK),
            facts("10.83.0.2/24", replace(AT_UPLINK, name="eno2")),
            None,
            "the address on the uplink to provider 198.51.100.9",
        ),
    ],
    ids=["chassis", "chassis of a host that was never read", "tunnel address", "address on an uplink"],
)
def test_a_value_of_two_hosts_is_told_with_both_places(
    first: HostFacts, second: HostFacts | None, chassis: str | None, words: str
) -> None:
    (found,) = told(first, second, chassis)
    wanted = f"{words} is also that of gpu2 (host_vars/gpu2.yml:3); it must be one host's alone"
    assert found == ("not-unique", wanted)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ONE, OTHER),
        (ONE, None),
        # Addresses of other interfaces, such as those of containers, are the same on every host.
        (
            facts("10.83.0.1/24", InterfaceFacts("docker0", 1500, ("172.17.0.1/16",))),
            facts("10.83.0.2/24", InterfaceFacts("docker0", 1500, ("172.17.0.1/16",))),
        ),
        # Only an address inside the tunnels' network is one of the tunnels'.
        (facts("192.0.2.1/24"), facts("192.0.2.1/24")),
    ],
)
def test_hosts_with_values_of_their_own_are_told_nothing(first: HostFacts, second: HostFacts | None) -> None:
    assert told(first, second) == []


def test_a_host_without_ovn_has_no_such_value() -> None:
    fleet = collect(values_of("gpu1", HostLayout(), ONE))
    assert fleet.obstacles_of("gpu2", HostLayout(), ONE) == []


def test_a_host_with_anothers_value_is_not_as_declared_and_gets_no_step_of_ovn() -> None:
    both = {name: layout(name, "node") for name in ("gpu1", "gpu2")}
    fleet = collect(value for name in both for value in values_of(name, both[name], None))
    fresh = replace(ONE, ovn=replace(DONE, controller_active=False))
    doubles = fleet.obstacles_of("gpu1", both["gpu1"], fresh)
    plan = plan_host(both["gpu1"], fresh, doubles=doubles)
    assert plan.obstacles == tuple(doubles) and plan.steps == () and not plan.is_in_layout
    assert plan_host(both["gpu1"], fresh).steps != ()
