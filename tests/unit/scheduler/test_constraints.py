# SPDX-License-Identifier: Apache-2.0
"""Labels, groups, maintenance, quarantine and the policies of hosts and requests."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, host, leases_of, vm
from vgpuctl.errors import NoCapacity, UsageError
from vgpuctl.model.constraints import Constraints, Together, read_constraints
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuMatch
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.place import place

FIRST, SECOND = "0000:41:00.0", "0000:51:00.0"
RACK = frozenset({("rack", "r1")})


def with_constraints(capacity: HostCapacity, **constraints: object) -> HostCapacity:
    return replace(capacity, constraints=HostConstraints(**constraints))  # type: ignore[arg-type]  # the tests name real fields


def place_on(*fleet: HostCapacity, constraints: Constraints, gpus: str = "A40-8Q") -> tuple[str, str]:
    placement = place(vm(gpus, constraints=constraints), fleet, [])
    return placement.host, placement.shares[0].gpu


def test_required_labels_of_a_host_hold_for_its_gpus() -> None:
    fleet = [a40_host("a"), with_constraints(a40_host("b"), labels=RACK)]
    assert place_on(*fleet, constraints=read_constraints(required=["rack=r1"])) == ("b", FIRST)
    with pytest.raises(NoCapacity):
        place_on(*fleet, constraints=read_constraints(required=["rack=r2"]))


def test_labels_of_one_gpu_choose_it() -> None:
    fast = GpuConstraints(GpuMatch(address=SECOND), frozenset({("tier", "gold")}))
    fleet = [with_constraints(a40_host("a", cards=2), gpus=(fast,))]
    assert place_on(*fleet, constraints=read_constraints(required=["tier=gold"])) == ("a", SECOND)
    assert place_on(*fleet, constraints=read_constraints(preferred=["tier=gold"])) == ("a", SECOND)
    assert place_on(*fleet, constraints=read_constraints(preferred=["tier=gold"]), gpus="2*A40-48Q") == ("a", SECOND)


def test_preferred_labels_count_before_the_policy_and_refuse_nothing() -> None:
    fleet = [a40_host("a", vgpus=["A40-8Q"]), with_constraints(a40_host("b"), labels=RACK)]
    assert place_on(*fleet, constraints=Constraints())[0] == "a"
    assert place_on(*fleet, constraints=read_constraints(preferred=["rack=r1"]))[0] == "b"
    assert place_on(*fleet, constraints=read_constraints(preferred=["rack=r9"]))[0] == "a"
    bare = [host("a"), with_constraints(host("b"), labels=RACK)]
    assert place(vm(constraints=read_constraints(preferred=["rack=r1"])), bare, []).host == "b"
    assert place(vm(constraints=read_constraints(required=["rack=r1"])), bare, []).host == "b"


def test_maintenance_and_quarantine_take_no_new_vm() -> None:
    quarantined = GpuConstraints(GpuMatch(board="A40"), quarantine="Xid 79")
    spared = with_constraints(a40_host("b", cards=2), gpus=(quarantined, GpuConstraints(GpuMatch(address=SECOND))))
    fleet = [with_constraints(a40_host("a"), maintenance="new fans"), spared]
    with pytest.raises(NoCapacity) as caught:
        place_on(*fleet, constraints=Constraints())
    assert [line.split(": ")[0] for line in caught.value.context] == [
        "a",
        f"b {FIRST} NVIDIA A40",
        f"b {SECOND} NVIDIA A40",
    ]
    with pytest.raises(NoCapacity):
        place_on(fleet[0], constraints=Constraints(), gpus="memory>=1GiB")


def test_the_request_s_policy_comes_before_the_one_that_all_hosts_name() -> None:
    used, empty = a40_host("b", vgpus=["A40-8Q"]), a40_host("a")
    spread = [with_constraints(used, policy="spread"), with_constraints(empty, policy="spread")]
    assert place_on(used, empty, constraints=Constraints())[0] == "b"
    assert place_on(*spread, constraints=Constraints())[0] == "a"
    assert place_on(*spread, constraints=read_constraints(policy="binpack"))[0] == "b"
    assert place_on(spread[0], empty, constraints=Constraints())[0] == "b"


def test_slower_boards_count_for_what_they_can_do() -> None:
    slow = with_constraints(a40_host("a"), gpus=(GpuConstraints(speed=0.25),))
    half = a40_host("b", vgpus=["A40-8Q", "A40-8Q", "A40-8Q"])
    assert place_on(slow, half, constraints=read_constraints(policy="spread"))[0] == "b"
    assert place_on(slow, half, constraints=read_constraints(policy="binpack"))[0] == "a"
    assert place_on(a40_host("a"), half, constraints=read_constraints(policy="spread"))[0] == "a"


@pytest.mark.parametrize(
    ("rule", "hosts"),
    [
        (Together.APART, ["a", "b", "c", None]),
        (Together.PREFER_APART, ["a", "b", "c", "a"]),
        (Together.TOGETHER, ["a", "a", None, None]),
        (Together.PREFER_TOGETHER, ["a", "a", "b", "b"]),
    ],
)
def test_members_of_a_group_are_apart_or_together(rule: Together, hosts: list[str | None]) -> None:
    fleet = Fleet([a40_host("a"), a40_host("b"), a40_host("c")])
    request = vm("A40-24Q", constraints=Constraints(group="web", together=rule))
    group = ("acme", "web")
    found: list[str | None] = []
    for number in range(4):
        placement = fleet.place(request)
        found.append(placement.host if placement else None)
        if placement is not None:
            fleet.take(placement.host, leases_of(placement, vm_name=f"vm-{number}"), group=group)
    assert found == hosts


def test_a_group_is_the_tenant_s_own_and_says_why_it_refuses() -> None:
    there = replace(a40_host("a"), groups=frozenset({("acme", "web"), ("other", "db")}))
    apart = Constraints(group="db", together=Together.APART)
    assert place(vm("A40-8Q", constraints=apart), [there], []).host == "a"
    answer = explain(
        vm("A40-48Q", constraints=Constraints(group="web", together=Together.TOGETHER)),
        [replace(there, constraints=HostConstraints(maintenance="new fans")), a40_host("b")],
        [],
    )
    assert isinstance(answer, list)
    assert [(one.host, one.code) for one in answer] == [("a", "host-maintenance"), ("b", "group-together")]


@pytest.mark.parametrize(
    "given",
    [{"group": "web:near"}, {"group": "-x"}, {"required": ["rack"]}, {"preferred": ["=r1"]}, {"policy": "best"}],
)
def test_constraints_that_cannot_be_read_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read_constraints(**given)  # type: ignore[arg-type]  # one of its own parameters
