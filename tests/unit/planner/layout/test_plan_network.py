# SPDX-License-Identifier: Apache-2.0
"""The way of a host to one of OVN's chassis, and what stands in it."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import host_facts
from vgpuctl.agent.wire.facts import UnreadPart
from vgpuctl.agent.wire.ovn import PROGRAMS, BridgeFacts, InterfaceFacts, OvnFacts
from vgpuctl.agent.wire.steps import Chassis, SetOvnChassis, SetOvnDaemon, SetUplinkBridge, TakeOutUplink
from vgpuctl.model.layout import HostLayout, NetworkLayout
from vgpuctl.planner.layout.manifest import manifest_of
from vgpuctl.planner.layout.network import bridge_name
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.result import HostPlan

LAYOUT = HostLayout(
    uplinks=(("provider", "eno2"),), network=NetworkLayout(("ssl:192.0.2.1:6642",), "10.83.0.0/24", "gpu1")
)
FOUND = OvnFacts(
    modules=("openvswitch", "geneve"),
    switch_active=True,
    chassis=Chassis("5ac3"),
    interfaces=(InterfaceFacts("eno1", 1500, ("192.0.2.7/24", "10.83.0.9/24")), InterfaceFacts("eno2", 1500)),
    has_certificate=True,
)
WANTED = Chassis("gpu1", "ssl:192.0.2.1:6642", "geneve", "10.83.0.9", "provider:br-provider", True)
DONE = replace(FOUND, chassis=WANTED, controller_active=True, bridges=(BridgeFacts("br-provider", ("eno2",)),))


def planned(found: OvnFacts | None, layout: HostLayout = LAYOUT) -> HostPlan:
    return plan_host(layout, replace(host_facts([]), ovn=found, network_interfaces=("eno1", "eno2")))


def test_a_host_whose_ovn_could_not_be_read_is_not_told_to_install_it() -> None:
    facts = replace(host_facts([]), ovn=None, unread=(UnreadPart("ovn", "ovn cannot be read: EIO"),))
    plan = plan_host(LAYOUT, facts)
    assert [(one.code, one.reason) for one in plan.obstacles] == [("unread", "ovn cannot be read: EIO")]
    assert plan.steps == ()


def test_open_vswitch_is_started_before_its_settings_are_known() -> None:
    plan = planned(replace(FOUND, switch_active=False, chassis=None))
    assert [one.step for one in plan.steps] == [SetOvnDaemon("switch", True)]
    assert plan.later == ("OVN's settings, once Open vSwitch runs",)


def test_the_controller_starts_with_its_settings_and_everything_has_its_undo() -> None:
    plan = planned(FOUND)
    assert [one.step for one in plan.steps] == [
        SetUplinkBridge("br-provider", "eno2"),
        SetOvnChassis(WANTED),
        SetOvnDaemon("controller", True),
    ]
    assert plan.undo == (
        SetOvnDaemon("controller", False),
        SetOvnChassis(Chassis("5ac3")),
        SetUplinkBridge("br-provider", None),
    )
    subjects = [one.subject for one in plan.differences]
    assert "chassis-name" in subjects and "uplink-bridge" in subjects and "certificate" in subjects


def test_an_interface_leaves_a_bridge_that_was_there_before_and_the_bridge_stays() -> None:
    plan = planned(replace(FOUND, bridges=(BridgeFacts("br-provider", ("eno9",)),)))
    assert plan.undo[-1] == TakeOutUplink("br-provider", "eno2")


def test_a_chassis_as_declared_needs_nothing_and_its_boot_brings_it_back() -> None:
    assert planned(DONE) == HostPlan()
    manifest = manifest_of(LAYOUT, replace(host_facts([]), ovn=DONE))
    assert [one.step for one in manifest.steps] == [
        SetOvnDaemon("switch", True),
        SetUplinkBridge("br-provider", "eno2"),
        SetOvnChassis(WANTED),
        SetOvnDaemon("controller", True),
    ]


def test_mappings_that_nobody_declared_stay() -> None:
    found = replace(DONE, chassis=replace(WANTED, mappings="mine:br-mine"))
    assert planned(found, replace(LAYOUT, uplinks=())) == HostPlan()


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (None, "ovn-missing"),
        (replace(DONE, missing=PROGRAMS[2:]), "ovn-missing"),
        (replace(DONE, modules=("openvswitch",)), "ovn-no-module"),
        (replace(DONE, interfaces=(InterfaceFacts("eno1", 1500, ("192.0.2.7/24",)),)), "no-tunnel-address"),
        (replace(DONE, bridges=(BridgeFacts("br-other", ("eno2",)),)), "uplink-in-use"),
        (
            replace(FOUND, interfaces=(*FOUND.interfaces[:1], InterfaceFacts("eno2", 1500, ("10.0.0.1/8",)))),
            "uplink-in-use",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(found: OvnFacts | None, code: str) -> None:
    plan = planned(found)
    assert ([one.code for one in plan.obstacles], plan.steps) == ([code], ())


def test_a_missing_certificate_is_a_difference_that_apply_hosts_fixes() -> None:
    (difference,) = planned(replace(DONE, has_certificate=False)).differences
    assert difference.subject == "certificate" and difference.remedy


@pytest.mark.parametrize("network", ["provider", "a-very-long-physical-network", "läuft nicht"])
def test_a_bridge_s_name_fits_the_kernel(network: str) -> None:
    name = bridge_name(network)
    assert len(name) <= 15 and name.isascii() and " " not in name
