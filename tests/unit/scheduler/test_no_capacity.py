# SPDX-License-Identifier: Apache-2.0
"""The error of a request that no GPU can take: its lines, and what its hint says of names that nobody has."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import (
    GIB,
    a40_host,
    lease,
    leases_of,
    passthrough_host,
    t4_host,
    vm,
)
from vgpuctl.errors import NoCapacity, UsageError
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.place import place


def test_no_capacity_has_one_line_per_gpu() -> None:
    fleet = [a40_host("gpu1", vgpus=["A40-8Q"], cards=2), passthrough_host("gpu2")]
    held = place(vm("A40-12Q"), fleet, []).shares[0]
    with pytest.raises(NoCapacity) as caught:
        place(vm("A40-4Q"), fleet, [lease("gpu1", held)])
    assert caught.value.message == "no GPU can take A40-4Q for VM acme/web-1"
    assert [line.partition(": ")[0] for line in caught.value.context] == [
        "gpu1 0000:41:00.0 NVIDIA A40",
        "gpu1 0000:51:00.0 NVIDIA A40",
        "gpu2 0000:81:00.0 NVIDIA GeForce RTX 3090",
    ]
    assert "8 GiB (A40-8Q)" in caught.value.context[0]
    assert "12 GiB (A40-12Q)" in caught.value.context[1]
    assert caught.value.hint is not None
    assert "gpu1 0000:41:00.0: ask for a type of 8 GiB" in caught.value.hint


def test_no_capacity_leaves_out_hosts_that_were_not_asked_for() -> None:
    fleet = [a40_host("gpu1", vgpus=["A40-8Q"]), a40_host("gpu2")]
    with pytest.raises(NoCapacity) as caught:
        place(vm("A40-4Q", on="gpu1"), fleet, [])
    assert len(caught.value.context) == 1


@pytest.mark.parametrize(
    ("wanted", "refused"),
    [
        ("A40-48Q", "no GPU can take A40-48Q for VM acme/web-1"),
        ("3*A40-48Q", "no host can take 3*A40-48Q together for VM acme/web-1"),
    ],
)
def test_a_network_of_one_host_is_named_where_nobody_named_the_host(wanted: str, refused: str) -> None:
    fleet = [a40_host("gpu1", vgpus=["A40-8Q"]), a40_host("gpu2", cards=4)]
    with pytest.raises(NoCapacity) as caught:
        place(vm(wanted, on=HostOfNetwork.of("gpu1", "acme/front")), fleet, [])
    assert caught.value.message == f"{refused}: network acme/front is on gpu1 alone"


def test_more_memory_than_a_host_has_is_told_the_largest_that_fits() -> None:
    with pytest.raises(NoCapacity) as caught:
        place(vm(memory_mib=300 * GIB), [a40_host("gpu1")], [])
    assert caught.value.hint == "nearest is gpu1: ask for at most 254 GiB"
    assert place(vm(memory_mib=254 * GIB), [a40_host("gpu1")], []).host == "gpu1"


def test_more_gpus_than_a_host_has_ask_for_no_deletion() -> None:
    fleet = [a40_host("gpu1", cards=2), a40_host("gpu2", cards=2), t4_host("gpu3")]
    held = [one for host in fleet[:2] for one in leases_of(place(vm("A40-8Q"), [host], []))]
    with pytest.raises(NoCapacity) as caught:
        place(vm("3*A40-48Q"), fleet, held)
    assert caught.value.brief is not None
    assert [line for line in caught.value.brief if "delete" in line] == []
    said = "its GPUs take at most 2 of the 3 wanted together, whatever its VMs release (host-too-small)"
    assert f"2 hosts: {said}" in caught.value.brief
    assert caught.value.hint == "nearest is gpu1: ask for at most 1 together"


def test_several_gpus_of_one_host_name_it() -> None:
    with pytest.raises(NoCapacity) as caught:
        place(vm("A40-8Q"), [t4_host("gpu1", cards=2)], [])
    assert caught.value.brief is not None and caught.value.brief[0].startswith("2 GPUs of gpu1: no type of it fits")


def test_without_any_host_the_hint_leads_to_the_inventory() -> None:
    with pytest.raises(NoCapacity) as caught:
        place(vm("A40-8Q"), [], [])
    assert caught.value.hint is not None
    assert "list-hosts" in caught.value.hint


@pytest.mark.parametrize(
    ("wrong", "near"), [("A40-8q", "A40-8Q?"), ("a40-8q", "A40-8Q?"), ("A40-9Q", "A40-8Q"), ("A4O-8Q", "A40-8Q")]
)
def test_a_misspelt_type_is_answered_with_near_names(wrong: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        place(vm(wrong), [a40_host(), t4_host("gpu2")], [])
    assert caught.value.hint is not None
    assert near in caught.value.hint


def test_a_misspelt_type_that_only_the_catalogue_comes_near_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        place(vm("H100-80c"), [t4_host()], [])
    assert caught.value.hint is not None
    assert "the catalogue knows H100-80C, which your hosts do not have" in caught.value.hint


def test_a_type_of_a_board_that_the_fleet_lacks_is_named() -> None:
    with pytest.raises(NoCapacity) as caught:
        place(vm("L40S-8Q"), [a40_host()], [])
    assert caught.value.hint is not None
    assert "L40S-8Q is a type of NVIDIA L40S, and no host that may take it has one" in caught.value.hint


def test_a_board_that_the_fleet_lacks_and_a_board_that_nobody_knows_differ() -> None:
    with pytest.raises(NoCapacity) as lacked:
        place(vm("passthrough:H100"), [a40_host()], [])
    assert lacked.value.hint == "no host has a GPU H100; your hosts have NVIDIA A40"
    with pytest.raises(UsageError):
        place(vm("passthrough:Voodoo2"), [a40_host()], [])


def test_the_reason_to_wait_names_what_may_end_and_no_other_boards() -> None:
    fleet = [a40_host("gpu1", vgpus=["A40-8Q"]), *(t4_host(f"t{number}") for number in range(5))]
    with pytest.raises(NoCapacity) as caught:
        place(vm("A40-4Q"), fleet, [])
    reason = caught.value.reason_to_wait
    assert reason.startswith("no GPU can take A40-4Q for VM acme/web-1; gpu1 0000:41:00.0: it carries vGPUs of 8 GiB")
    assert "T4" not in reason and "t1" not in reason
    assert NoCapacity("no host was read").reason_to_wait == "no host was read"


def _hint(request: VmRequest, fleet: Sequence[HostCapacity], held: Sequence[Lease] = ()) -> str | None:
    with pytest.raises(NoCapacity) as caught:
        place(request, fleet, held)
    return caught.value.hint


def test_a_host_with_other_gpus_is_not_the_nearest() -> None:
    t4_alone = [t4_host("gpu1"), a40_host("gpu2")]
    assert _hint(vm("A40-8Q", vcpus=80), t4_alone) == "nearest is gpu2: ask for at most 32 vCPUs"
    assert _hint(vm("A40-8Q", vcpus=80), [t4_host("gpu1")]) != "nearest is gpu1: ask for at most 32 vCPUs"
    big = vm("A40-8Q", memory_mib=300 * GIB)
    assert _hint(big, t4_alone) == "nearest is gpu2: ask for at most 254 GiB"


def test_a_cordon_that_alone_is_in_the_way_is_named_before_vms_that_would_have_to_go() -> None:
    full = a40_host("gpu1")
    held = [
        one
        for number in range(2)
        for one in leases_of(place(vm("A40-24Q"), [full], []), vm_name=f"web-{number}")[: number + 1]
    ]
    cordon = Restriction("gpu2", WHOLE_HOST, RestrictionKind.CORDON, "new disks")
    closed = replace(a40_host("gpu2"), restrictions=(cordon,))
    said = _hint(vm("A40-48Q"), [full, closed], held)
    assert said == "nearest is gpu2: run `vgpuctl uncordon-host gpu2`"
    maintained = replace(closed, constraints=replace(closed.constraints, maintenance="memory"))
    assert "gpu2" not in str(_hint(vm("A40-48Q"), [full, maintained], held)), "the cordon is not alone"
    assert "gpu2" not in str(_hint(vm("T4-8Q"), [t4_host("gpu1", vgpus=["T4-16Q"]), closed])), "it has no T4"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (RestrictionKind.CORDON, "run `vgpuctl uncordon-host gpu1 --gpu 0000:41:00.0`"),
        (RestrictionKind.QUARANTINE, "run `vgpuctl unquarantine-gpu gpu1 0000:41:00.0 --reason"),
    ],
)
def test_a_closed_gpu_is_named_where_it_would_take_the_vm(kind: RestrictionKind, command: str) -> None:
    closed = replace(a40_host("gpu1"), restrictions=(Restriction("gpu1", "0000:41:00.0", kind, "fans"),))
    assert command in str(_hint(vm("A40-48Q"), [closed]))
    assert command not in str(_hint(vm("A40-48Q"), [replace(closed, facts=a40_host(vgpus=["A40-8Q"]).facts)]))


def test_a_type_of_a_size_that_has_no_place_left_is_not_told() -> None:
    full = a40_host("gpu1", vgpus=["A40-24Q", "A40-24Q"])
    assert _hint(vm("A40-48Q"), [full]) == "nearest is gpu1 0000:41:00.0: delete the VMs that use it"


def test_fewer_gpus_are_told_where_they_fit_now() -> None:
    fleet = [a40_host("gpu1", vgpus=["A40-8Q"], cards=3)]
    assert "together" not in str(_hint(vm("4*A40-48Q"), fleet))
