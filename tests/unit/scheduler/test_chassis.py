# SPDX-License-Identifier: Apache-2.0
"""A VM with an interface in a network that OVN carries runs on working chassis alone, and check-hosts agrees."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.unit.chassis_cases import BROKEN, REMOTE, WORKING, WORKING_ONES, every_mix
from tests.unit.fleet_factory import a40_host, host, host_facts, leases_of, vm
from vgpuctl.agent.wire.diagnostics import HostDiagnostics
from vgpuctl.agent.wire.facts import HostFacts, UnreadPart
from vgpuctl.agent.wire.ovn import OvnDiagnostics, OvnFacts
from vgpuctl.errors import NoCapacity
from vgpuctl.model.host_parts import HostPart, missing_parts
from vgpuctl.model.layout import HostLayout, NetworkLayout
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import OvnVmRequest, VmRequest
from vgpuctl.planner.doctor import Examined, examine
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.place import place

PLAIN = VmRequest("web-1", "acme")
CARRIED = OvnVmRequest.of(PLAIN)


def having(capacity: HostCapacity, ovn: OvnFacts | None) -> HostCapacity:
    return replace(capacity, facts=replace(capacity.facts, ovn=ovn))


@pytest.mark.parametrize(("facts", "words", "remedy"), BROKEN)
def test_a_host_that_is_no_working_chassis_is_no_candidate(facts: OvnFacts | None, words: str, remedy: str) -> None:
    there = having(host("gpu1"), facts)
    answer = explain(CARRIED, [there], [])
    assert isinstance(answer, list)
    (rejection,) = answer
    assert rejection.code == "host-chassis"
    assert words in rejection.reason
    assert rejection.remedy is not None and remedy in rejection.remedy
    assert not isinstance(explain(PLAIN, [there], []), list), "other VMs do not need one"


@pytest.mark.parametrize("facts", WORKING_ONES)
def test_a_working_chassis_is_a_candidate(facts: OvnFacts) -> None:
    assert not isinstance(explain(CARRIED, [having(host("gpu1"), facts)], []), list)


def test_what_could_not_be_read_of_ovn_says_nothing_against_a_host_as_for_firmware() -> None:
    there = replace(host_facts([]), unread=(UnreadPart("ovn", "ovsdb-client: timed out"),))
    assert missing_parts(there, (HostPart.CHASSIS,)) == []
    layout = HostLayout(network=NetworkLayout((REMOTE,), "10.83.0.0/24", "gpu1"))
    assert [one for one in examine(Examined(there, HostDiagnostics((), ovn=None), layout)) if one.check == "ovn"] == []


def test_placement_and_check_hosts_say_the_same_of_the_same_facts() -> None:
    diagnostics = HostDiagnostics((), ovn=OvnDiagnostics("connected", has_role=True))
    counts = {True: 0, False: 0}
    for facts in (*(facts for facts, *_ in BROKEN), *every_mix()):
        there = replace(host_facts([]), ovn=facts)
        southbound = "ssl:192.0.2.1:6642" if facts is None or facts.chassis is None else facts.chassis.remote
        layout = HostLayout(network=NetworkLayout((southbound,), "10.83.0.0/24", "gpu1"))
        found = [one for one in examine(Examined(there, diagnostics, layout)) if one.check == "ovn"]
        missing = missing_parts(there, (HostPart.CHASSIS,))
        reads = [(one.read, one.fix) for one in found]
        assert [(one.read, one.fix) for one in missing] == reads[:1], facts
        counts[bool(missing)] += 1
    assert counts[False] > 0 and counts[True] > 100, counts


@pytest.mark.parametrize("gpus", [(), ("A40-8Q",), ("2*A40-8Q",), ("A40-8Q", "A40-12Q")])
def test_the_working_chassis_is_chosen_whatever_the_gpus_are(gpus: tuple[str, ...]) -> None:
    hosts = [having(a40_host("gpu1", cards=2), None), having(a40_host("gpu2", cards=2), WORKING)]
    plain = replace(PLAIN, gpus=vm(*gpus).gpus)
    request = OvnVmRequest.of(plain)
    assert place(request, hosts, []).host == "gpu2"
    assert place(plain, hosts, []).host == "gpu1", "a host without one is as good as ever for other VMs"
    assert count_more(request, hosts, []).keys() == {"gpu2"}
    assert count_more(plain, hosts, []).keys() == {"gpu1", "gpu2"}
    with pytest.raises(NoCapacity) as refused:
        place(request, hosts[:1], [])
    assert "Open vSwitch" in str(refused.value.context)
    assert refused.value.hint is not None and "ovn-host" in refused.value.hint
    assert not refused.value.stays, "the hosts are read again before the answer stands"


def test_a_fleet_follows_a_chassis_that_dies_and_comes_back() -> None:
    one, other = (having(a40_host(name), WORKING) for name in ("gpu1", "gpu2"))
    fleet, request = Fleet([one, other]), OvnVmRequest.of(vm("A40-8Q"))
    placement = fleet.place(request)
    assert placement is not None and placement.host == "gpu1"
    fleet.take("gpu1", leases_of(placement))
    fleet.put(having(one, replace(WORKING, controller_active=False)), leases_of(placement))
    placement = fleet.place(request)
    assert placement is not None and placement.host == "gpu2"
    fleet.put(having(other, replace(WORKING, switch_active=False)))
    assert fleet.place(request) is None
    assert fleet.place(vm("A40-8Q")) is not None
    fleet.put(one)
    placement = fleet.place(request)
    assert placement is not None and placement.host == "gpu1"


def test_vms_that_are_created_together_leave_the_chassis_to_the_one_that_needs_it() -> None:
    """Two hosts that differ in the chassis alone, each with room for one of them."""
    hosts = [having(a40_host("gpu1"), WORKING), having(a40_host("gpu2"), None)]
    whole = replace(vm("A40-48Q"), vcpus=4)
    requests = [replace(whole, name="plain"), OvnVmRequest.of(replace(whole, name="carried"))]
    for order in (requests, requests[::-1]):
        found = place_together(Fleet(hosts), order)
        assert found is not None
        assert {one.name: there.host for one, there in zip(order, found, strict=True)} == {
            "plain": "gpu2",
            "carried": "gpu1",
        }


class _Watched(HostFacts):
    """Facts that count who looks at Open vSwitch and OVN."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "ovn":
            _Watched.looks += 1
        return super().__getattribute__(name)


def test_no_host_is_looked_at_for_a_chassis_that_no_vm_needs() -> None:
    hosts = []
    for number in range(20):
        there = having(a40_host(f"gpu{number}"), WORKING)
        facts = _Watched(**{one.name: getattr(there.facts, one.name) for one in fields(there.facts)})
        hosts.append(replace(there, facts=facts))
    _Watched.looks = 0
    fleet = Fleet(hosts)
    assert fleet.place(vm("A40-8Q")) is not None
    assert _Watched.looks == 0
    for _again in range(3):
        assert fleet.place(OvnVmRequest.of(vm("A40-8Q"))) is not None
    assert _Watched.looks == 20, "each host once"
