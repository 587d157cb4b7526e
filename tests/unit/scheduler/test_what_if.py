# SPDX-License-Identifier: Apache-2.0
"""Every change that is told admits the request when it is made; the nearest comes first."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import GIB, a40_host, emulated_a40, host, lease, leases_of, t4_host, vm
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.constraints import Constraints, Together, read_constraints
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuMatch
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.what_if import changes_that_admit


def changes(
    request: VmRequest,
    fleet: Sequence[HostCapacity],
    leases: Sequence[Lease] = (),
    vms: Sequence[Candidate] = (),
) -> list[tuple[str, str]]:
    assert Fleet(fleet, leases).place(request) is None
    return [(one.text, one.placement.host) for one in changes_that_admit(request, fleet, leases, vms)]


GROUP = frozenset({("acme", "web")})


@pytest.mark.parametrize(
    ("request_", "fleet", "expected"),
    [
        (vm("A40-8Q", on="b"), [a40_host("a"), t4_host("b")], ("it need not be on b", "a")),
        (
            vm("A40-8Q", on=HostOfNetwork.of("b", "acme/front")),
            [a40_host("a"), t4_host("b")],
            ("it were not in network acme/front, which is on b alone", "a"),
        ),
        (
            vm("A40-8Q", constraints=read_constraints(required=["rack=r1"])),
            [a40_host("a")],
            ("it did not require rack=r1", "a"),
        ),
        (
            vm("A40-8Q", constraints=Constraints(group="web", together=Together.APART)),
            [replace(a40_host("a"), groups=GROUP)],
            ("it were not bound to group web", "a"),
        ),
        (vm("A40-8Q", memory_mib=300 * GIB), [a40_host("a")], ("it wanted at most 254 GiB of memory", "a")),
        (vm("A40-8Q", vcpus=64), [a40_host("a")], ("it wanted at most 32 vCPUs", "a")),
        (vm("3*A40-48Q"), [a40_host("a", cards=2)], ("it wanted 2 of its 3 GPUs", "a")),
        (
            vm("A40-8Q"),
            [replace(a40_host("a"), constraints=HostConstraints(maintenance="new fans"))],
            ("a took VMs again (in maintenance: new fans)", "a"),
        ),
        (
            vm("A40-8Q"),
            [
                replace(
                    a40_host("a"), constraints=HostConstraints(gpus=(GpuConstraints(GpuMatch(), quarantine="Xid 79"),))
                )
            ],
            ("a's GPUs took VMs again (in quarantine: Xid 79)", "a"),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_would_admit_it_is_told(request_: VmRequest, fleet: list[HostCapacity], expected: tuple[str, str]) -> None:
    assert changes(request_, fleet) == [expected]


def test_the_fewest_vms_that_would_have_to_go() -> None:
    fleet = [a40_host("a"), a40_host("b")]
    leases: list[Lease] = []
    for name, text, on in (("one", "A40-8Q", "a"), ("two", "A40-8Q", "a"), ("big", "A40-48Q", "b")):
        placement = Fleet(fleet, leases).place(vm(text, on=on))
        assert placement is not None
        leases.extend(lease(on, one, vm_name=name) for one in placement.shares)
    vms = [Candidate(one.vm_uuid, f"acme/{one.vm_name}", one.host, 500, 0.0, NO_FOOTPRINT, (one,)) for one in leases]
    assert changes(vm("A40-24Q"), fleet, leases, vms) == [("acme/big on b was gone", "b")]
    assert changes(vm("A40-24Q"), fleet, leases, vms[:2]) == [("acme/one, acme/two on a were gone", "a")]


def test_nothing_is_told_when_nothing_helps() -> None:
    assert changes(vm("A40-8Q"), [t4_host()]) == []
    assert changes(vm("passthrough"), [a40_host()], leases_of(Fleet([a40_host()]).place(vm("A40-8Q")))) == []  # type: ignore[arg-type]  # it fits


def mixable(*types: str) -> tuple[HostCapacity, list[Lease]]:
    """A host with an A40 whose driver offers mixed-size mode, and leases of vGPUs that it carries."""
    card = emulated_a40()
    for function, name in zip(card.functions, types, strict=False):
        card.create(name, function)
    leases = []
    for number, (name, function) in enumerate(zip(types, card.functions, strict=False)):
        size_mib = int(name[4:-1]) * GIB
        held = Share(card.address, Sharing.VF_PROFILE, name, function, "1", framebuffer_mib=size_mib)
        leases.append(lease("gpu1", held, vm_name=f"web-{number}"))
    return host("gpu1", replace(card.facts(), heterogeneous=False)), leases


def test_a_gpu_that_went_to_mixed_size_is_told_where_sizes_alone_are_in_the_way() -> None:
    capacity, leases = mixable("A40-16Q")
    (change,) = changes_that_admit(vm("A40-24Q"), [capacity], leases, [])
    said = "gpu1 0000:41:00.0 went to mixed-size, for which acme/web-0 must stop and start again"
    assert (change.text, change.placement.shares[0].placement_start) == (said, 24)
    assert changes_that_admit(vm("A40-48Q"), [capacity], leases, []) == []
    assert changes_that_admit(vm("A40-24Q"), [capacity], [], []) == []
    without_mode = host("gpu1", replace(capacity.facts.gpus[0], heterogeneous=None))
    assert changes_that_admit(vm("A40-24Q"), [without_mode], leases, []) == []


@pytest.mark.parametrize(("types", "wanted"), [(["A40-12Q"] * 2, "A40-24Q"), (["A40-4Q"] * 3, "A40-16Q"),
                                               (["A40-12Q"] * 3, "A40-24Q"), (["A40-8Q"] * 4, "A40-12Q")])  # fmt: skip
def test_mixed_size_is_told_exactly_when_the_card_in_that_mode_takes_it(types: list[str], wanted: str) -> None:
    card = emulated_a40()
    card.is_mixed = True
    for name, function in zip(sorted(types), card.functions, strict=False):
        card.create(name, function)
    capacity, leases = mixable(*types)
    told = changes_that_admit(vm(wanted), [capacity], leases, [])
    assert bool(told) == card.can_create(wanted)
