# SPDX-License-Identifier: Apache-2.0
"""Why a GPU cannot: each case names its code, the decisive words of its reason, and what would help."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.emulated_gpu import EmulatedGpu, qemu
from tests.unit.fleet_factory import (
    GIB,
    a40_host,
    emulated_a40,
    emulated_t4,
    host,
    host_facts,
    intel_vf_host,
    lease,
    leases_of,
    passthrough_host,
    t4_host,
    vm,
    whole_card,
)
from tests.unit.scheduler.one_host import only_rejection, some
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import UnreadPart
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities
from vgpuctl.errors import NoCapacity
from vgpuctl.model.constraints import Constraints, Together
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.types_together import mixes_sizes

A40 = emulated_a40().facts()
A40_VFS = emulated_a40().functions
T4 = emulated_t4().facts()
CARD = whole_card()
A100 = EmulatedGpu(catalog.board("nvidia-a100-pcie-40gb"), "0000:c1:00.0", "vf-profile", vf_count=16).facts()


def with_libvirt(version: str) -> HostCapacity:
    return replace(some(A40), facts=replace(some(A40).facts, libvirt_version=version))


def whole_card_lease(gpu: str) -> Lease:
    return lease("gpu1", Share(gpu, Sharing.PASSTHROUGH, "passthrough", gpu))


def mixed(*vgpus: tuple[str, int]) -> HostCapacity:
    """An A40 in mixed-size mode with these types at these places."""
    gpu = replace(emulated_a40(), is_mixed=True)
    for function, (name, start) in zip(gpu.functions, vgpus, strict=False):
        gpu.vgpus[function], gpu.starts[function] = name, start
    return host("gpu1", gpu)


RACK = Constraints(required=(("rack", "r1"),))
NO_VFS = {"vfs": (), "types": (), "sharing": ()}


def unread(name: str) -> HostCapacity:
    """A host of which one fact could not be read."""
    found = a40_host()
    return replace(found, facts=replace(found.facts, unread=(UnreadPart(name, f"{name} cannot be read: EIO"),)))


def ids(*names: str) -> tuple[str, ...]:
    """The ids of an A40's types, as the driver's rules name them."""
    found = {catalog.short_name(one.name): one.type_id.rsplit("-", 1)[-1] for one in A40.types}
    return tuple(found[name] for name in names)


def ruled(of: HostCapacity, abilities: VgpuAbilities) -> HostCapacity:
    """A host whose driver has rules for vGPUs."""
    gpus = (replace(of.facts.gpus[0], abilities=abilities), *of.facts.gpus[1:])
    return replace(of, facts=replace(of.facts, gpus=gpus))


CASES: list[tuple[str, str, VmRequest, HostCapacity, Sequence[Lease], str]] = [
    ("type of another board", "no-such-type", vm("T4-2Q"), a40_host(), (), "fits T4-2Q; it has A40-12A"),
    ("no vGPU at all", "no-such-type", vm("A40-8Q"), passthrough_host(), (), "RTX 3090 has no vGPU type"),
    ("no type of the size", "no-such-type", vm("memory>=64GiB"), a40_host(), (), "fits memory>=64GiB"),
    ("equal size", "equal-size", vm("A40-4Q"), a40_host(vgpus=["A40-8Q"]), (), "8 GiB (A40-8Q)"),
    ("equal size on mdev", "equal-size", vm("T4-4Q"), t4_host(vgpus=["T4-2B"]), (), "2 GiB (T4-2B)"),
    (
        "equal size of a lease",
        "equal-size",
        vm("A40-4Q"),
        a40_host(),
        leases_of(place(vm("A40-8Q"), [a40_host()], [])),
        "8 GiB (A40-8Q)",
    ),
    *[
        (f"{name} unread", "host-unread", vm("A40-8Q"), unread(name), (), "EIO")
        for name in ("cpus", "memory_mib", "memory_available_mib", "numa_nodes", "iommu_active", "kvm", "hugepages")
    ],
    (
        "no other type beside one that exists",
        "type-alone",
        vm("A40-8C"),
        ruled(a40_host(vgpus=["A40-8Q"]), VgpuAbilities(alone_by_type=ids("A40-8Q"))),
        (),
        "carries A40-8Q, and A40-8C cannot be beside it: its driver lets one of them be beside no other type",
    ),
    (
        "no other type beside a promised one",
        "type-alone",
        vm("A40-8C"),
        ruled(a40_host(), VgpuAbilities(alone_by_type=ids("A40-8C"))),
        leases_of(place(vm("A40-8Q"), [a40_host()], [])),
        "carries A40-8Q",
    ),
    (
        "one type at a time",
        "type-alone",
        vm("A40-8A"),
        ruled(a40_host(vgpus=["A40-8Q", "A40-8C"]), VgpuAbilities(mixed_types=False)),
        (),
        "carries A40-8C, A40-8Q, and A40-8A cannot be beside it: its driver runs one type at a time",
    ),
    (
        "no other size beside it",
        "type-alone",
        vm("A40-4Q"),
        ruled(mixed(("A40-8Q", 0)), VgpuAbilities(alone_by_size=ids("A40-4Q"))),
        (),
        "beside no other size",
    ),
    (
        "no other type in the VM",
        "type-alone",
        vm("A40-8Q", "A40-8C"),
        ruled(a40_host(), VgpuAbilities(alone_in_vm=ids("A40-8C"))),
        (),
        "no other type be in a VM with A40-8C, and this one has A40-8Q",
    ),
    (
        "parts in a VM with several",
        "type-alone",
        vm("A40-8Q*2"),
        ruled(a40_host(), VgpuAbilities(fractional=False)),
        (),
        "takes no A40-8Q into a VM with several vGPUs",
    ),
    ("full", "gpu-full", vm("A40-8Q"), a40_host(vgpus=["A40-8Q"] * 6), (), "6 of 6 vGPUs of 8 GiB"),
    ("full of another series", "gpu-full", vm("A40-8C"), a40_host(vgpus=["A40-8Q"] * 6), (), "6 of 6"),
    ("full mdev", "gpu-full", vm("T4-16Q"), t4_host(vgpus=["T4-16Q"]), (), "1 of 1 vGPUs of 16 GiB"),
    (
        "type no longer listed, other size",
        "equal-size",
        vm("A40-4Q"),
        some(emulated_a40().facts(), types=(), vfs=a40_host(vgpus=["A40-8Q"]).facts.gpus[0].vfs),
        (),
        "8 GiB (A40-8Q)",
    ),
    (
        "type no longer listed, full",
        "gpu-full",
        vm("A40-8C"),
        some(emulated_a40().facts(), types=(), vfs=a40_host(vgpus=["A40-8Q"] * 6).facts.gpus[0].vfs),
        (),
        "6 of 6",
    ),
    (
        "type not offered by the driver",
        "refused-by-host",
        vm("A40-8Q"),
        some(A40, types=tuple(one for one in A40.types if one.name != "A40-8Q")),
        (),
        "does not offer it",
    ),
    (
        "host says none",
        "refused-by-host",
        vm("A40-8Q"),
        some(A40, types=tuple(replace(one, creatable=0) for one in A40.types)),
        (),
        "no A40-8Q can be created",
    ),
    (
        "every VF held",
        "no-free-vf",
        vm("A40-8Q"),
        some(A40, vfs=tuple(replace(one, holders=(qemu(),)) for one in A40.vfs)),
        (),
        "32 of its 32 VFs",
    ),
    (
        "VFs on vfio-pci",
        "no-free-vf",
        vm("A40-8Q"),
        some(A40, vfs=tuple(replace(one, driver="vfio-pci") for one in A40.vfs)),
        (),
        "32 cannot carry a vGPU",
    ),
    (
        "VFs without group",
        "no-iommu",
        vm("A40-8Q"),
        some(A40, vfs=tuple(replace(one, iommu_group=None) for one in A40.vfs)),
        (),
        "no IOMMU group",
    ),
    ("VFs off", "vfs-not-enabled", vm("A40-8Q"), some(A40, **NO_VFS), (), "0 of its 32 VFs"),
    (
        "VFs off, IOMMU off",
        "no-iommu",
        vm("A40-8Q"),
        HostCapacity("gpu1", host_facts([replace(A40, vfs=(), types=(), sharing=())], iommu_active=False)),
        (),
        "IOMMU is off",
    ),
    ("ordinary driver", "driver", vm("T4-2Q"), some(T4, types=(), sharing=()), (), "not the vGPU manager"),
    (
        "nouveau",
        "driver",
        vm("A40-8Q"),
        some(A40, driver="nouveau", **NO_VFS),
        (),
        "bound to nouveau",
    ),
    ("no driver", "driver", vm("A40-8Q"), some(A40, driver=None, **NO_VFS), (), "no driver is bound"),
    ("problem", "gpu-problem", vm("A40-8Q"), some(A40, problems=("it is lost",)), (), "it is lost"),
    (
        "whole card promised",
        "reserved-by-lease",
        vm("A40-8Q"),
        some(A40, driver="vfio-pci", **NO_VFS),
        [whole_card_lease("0000:41:00.0")],
        "acme/web-0",
    ),
    ("held by another", "card-in-use", vm("T4-2Q"), some(T4, holders=(qemu(),)), (), "qemu-system-x86 (pid 4711)"),
    ("MIG on", "mig-on", vm("A100-4C"), some(A100, mig_mode="enabled"), (), "MIG is on"),
    ("no MIG instance", "no-mig-instance", vm("A100-1-5C"), host("gpu1", A100), (), "MIG instance 1g.5gb"),
    ("other model", "wrong-board", vm("passthrough:A40"), passthrough_host(), (), "GeForce RTX 3090, not A40"),
    (
        "whole card of a VM",
        "reserved-by-lease",
        vm("passthrough"),
        host("gpu1", CARD),
        [whole_card_lease(CARD.address)],
        "the whole card is promised to acme/web-0",
    ),
    (
        "whole card, broken lease",
        "reserved-by-lease",
        vm("passthrough"),
        host("gpu1", CARD),
        [replace(whole_card_lease(CARD.address), state=LeaseState.BROKEN)],
        "acme/web-0",
    ),
    (
        "whole card, parts promised",
        "reserved-by-lease",
        vm("passthrough"),
        t4_host(),
        leases_of(place(vm("T4-2Q"), [t4_host()], [])),
        "parts of it are promised to acme/web-0",
    ),
    ("whole card, foreign vGPUs", "card-in-use", vm("passthrough"), t4_host(vgpus=["T4-2Q"]), (), "1 vGPUs"),
    ("whole card, held", "card-in-use", vm("passthrough"), some(CARD, holders=(qemu(),)), (), "pid 4711"),
    ("whole card, host's users", "card-in-use", vm("passthrough"), some(CARD, users=(qemu(),)), (), "the host itself"),
    ("whole card, shown on", "host-display", vm("passthrough"), some(CARD, displays=("it shows",)), (), "it shows"),
    ("whole card, VFs on", "vfs-enabled", vm("passthrough"), a40_host(), (), "32 VFs are enabled"),
    ("whole card, no group", "no-iommu", vm("passthrough"), some(CARD, iommu_group=None), (), "no IOMMU group"),
    (
        "whole card, strangers",
        "group-not-isolated",
        vm("passthrough"),
        some(CARD, sharing=(), iommu_group_members=(CARD.address, "0000:81:00.1", "0000:82:00.0")),
        (),
        "also holds 0000:82:00.0",
    ),
    ("whole card, refused", "driver", vm("passthrough"), some(CARD, sharing=()), (), "does not offer it"),
    ("no SR-IOV", "no-sriov", vm("vf"), passthrough_host(), (), "has no SR-IOV"),
    ("VF off", "vfs-not-enabled", vm("vf"), some(intel_vf_host().facts.gpus[0], vfs=(), sharing=()), (), "0 of its 7"),
    ("libvirt 9.6", "libvirt-too-old", vm("A40-8Q"), with_libvirt("9.6.0"), (), "libvirt 9.6.0 cannot give a VM a VF"),
    ("VF of a vGPU card", "driver", vm("vf"), a40_host(), (), "does not give away plain VFs"),
    (
        "all VFs promised",
        "no-free-vf",
        vm("vf"),
        intel_vf_host(vfs=1),
        leases_of(place(vm("vf"), [intel_vf_host(vfs=1)], [])),
        "the only VF",
    ),
    (
        "VFs share a group",
        "group-not-isolated",
        vm("vf"),
        some(
            intel_vf_host().facts.gpus[0],
            vfs=tuple(replace(one, iommu_group=7) for one in intel_vf_host().facts.gpus[0].vfs),
        ),
        (),
        "share their IOMMU groups",
    ),
    ("other host wanted", "host-wanted-other", vm("A40-8Q", on="gpu1"), a40_host("gpu2"), (), "must run on gpu1"),
    ("too many vCPUs", "host-too-small", vm("A40-8Q", vcpus=33), a40_host(), (), "33 vCPUs, the host has 32"),
    ("too much memory", "host-too-small", vm("A40-8Q", memory_mib=257 * GIB), a40_host(), (), "the host has 256 GiB"),
    (
        "no huge pages",
        "host-hugepages",
        replace(vm("A40-8Q"), hugepages_kib=2048),
        a40_host(),
        (),
        "1024 huge pages of 2 MiB, the host has none",
    ),
    (
        "memory not free now",
        "host-memory",
        vm("A40-8Q", memory_mib=2 * GIB),
        HostCapacity("gpu1", host_facts([A40], memory_available_mib=GIB)),
        (),
        "1 GiB of 256 GiB were free",
    ),
    (
        "host in maintenance",
        "host-maintenance",
        vm("A40-8Q"),
        replace(a40_host(), constraints=HostConstraints(maintenance="new fans")),
        (),
        "in maintenance: new fans",
    ),
    ("host without the label", "host-labels", vm(constraints=RACK), a40_host(), (), "no label rack=r1"),
    ("GPU without the label", "gpu-labels", vm("A40-8Q", constraints=RACK), a40_host(), (), "no label rack=r1"),
    (
        "GPU in quarantine",
        "gpu-quarantine",
        vm("A40-8Q"),
        replace(a40_host(), constraints=HostConstraints(gpus=(GpuConstraints(quarantine="Xid 79"),))),
        (),
        "in quarantine: Xid 79",
    ),
    (
        "group apart",
        "group-apart",
        vm("A40-8Q", constraints=Constraints(group="web", together=Together.APART)),
        replace(a40_host(), groups=frozenset({("acme", "web")})),
        (),
        "members are to be apart",
    ),
    (
        "no place in a row",
        "no-place-left",
        vm("A40-24Q"),
        mixed(("A40-8Q", 0), ("A40-8Q", 24)),
        (),
        "none of the places where A40-24Q can begin has 24 GiB free in a row",
    ),
    ("no GPU", "no-gpu", vm("A40-8Q"), host("gpu1"), (), "the host has no GPU"),
    ("never together", "host-too-small", vm("2*A40-48Q"), a40_host(), (), "take at most 1 of the 2 wanted together"),
    (
        "not together",
        "not-together",
        vm("2*A40-24Q"),
        a40_host(),
        leases_of(place(vm("A40-24Q"), [a40_host()], [])),
        "take 1 of the 2 wanted",
    ),
]


@pytest.mark.parametrize(
    ("code", "request_", "capacity", "leases", "words"),
    [case[1:] for case in CASES if case[1] != "host-wanted-other"],
    ids=[case[0] for case in CASES if case[1] != "host-wanted-other"],
)
def test_a_gpu_that_cannot_says_why(
    code: str, request_: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], words: str
) -> None:
    rejection = only_rejection(request_, capacity, leases)
    assert (rejection.code, rejection.host) == (code, "gpu1")
    assert words in rejection.reason


def test_a_host_of_which_something_else_could_not_be_read_takes_vms() -> None:
    for name in ("operating_system", "machine_id", "selinux", "distribution", "services", "boot"):
        assert place(vm("A40-8Q"), [unread(name)], []).host == "gpu1"
    with pytest.raises(NoCapacity):
        place(vm("A40-8Q"), [unread("kvm")], [])


def test_another_host_than_the_wanted_is_refused_and_a_wanted_host_that_is_unknown_too() -> None:
    answer = explain(vm("A40-8Q", on="gpu1"), [a40_host("gpu2")], [])
    assert isinstance(answer, list)
    assert [(one.host, one.code) for one in answer] == [("gpu2", "host-wanted-other"), ("gpu1", "host-unknown")]


def placed(request: VmRequest, fleet: HostCapacity) -> list[str]:
    return [one.profile for one in place(request, [fleet], []).shares]


def test_a_rule_of_the_driver_keeps_only_those_away_that_it_names() -> None:
    eights = ["A40-8Q"]
    assert placed(vm("A40-8Q"), ruled(a40_host(vgpus=eights), VgpuAbilities(alone_by_type=ids("A40-8Q")))) == ["A40-8Q"]
    assert placed(vm("A40-8A"), ruled(a40_host(vgpus=eights), VgpuAbilities(alone_by_type=ids("A40-8C")))) == ["A40-8A"]
    assert placed(vm("A40-8C"), ruled(a40_host(vgpus=eights), VgpuAbilities(mixed_types=True))) == ["A40-8C"]
    assert placed(vm("A40-8Q*2"), ruled(a40_host(), VgpuAbilities(True, alone_in_vm=ids("A40-8Q")))) == ["A40-8Q"] * 2
    assert placed(vm("A40-8Q"), ruled(a40_host(), VgpuAbilities(fractional=False))) == ["A40-8Q"]
    of_c = ruled(a40_host(vgpus=["A40-8C"]), VgpuAbilities(alone_by_type=ids("A40-8C")))
    assert placed(vm("memory=8GiB"), of_c) == ["A40-8C"]  # a condition takes the type that is there


@pytest.mark.parametrize(
    ("told", "mig_mode", "expected"),
    [(True, None, True), (False, None, False), (None, None, True), (False, "enabled", True)],
)
def test_the_driver_says_whether_a_gpu_can_mix_sizes(told: bool | None, mig_mode: str | None, expected: bool) -> None:
    board = catalog.board("nvidia-l4")
    gpu = replace(A40, abilities=VgpuAbilities(mixed_sizes=told), mig_mode=mig_mode)
    assert board.mixed_size and mixes_sizes(gpu, board) is expected
    assert mixes_sizes(replace(gpu, abilities=None), None) is None


def test_every_code_has_a_case_here_and_a_line_in_the_docs() -> None:
    elsewhere = {"host-unknown", "host-cpus", "host-numa", "group-together", "host-pool", "reserved-in-calendar"}
    elsewhere |= {"declared-otherwise", "host-cordoned", "host-drained", "host-fenced", "gpu-cordoned", "no-console"}
    elsewhere |= {
        "fabric-mode",
        "fabric-manager",
        "fabric-links",
        "no-partition",
        "partition-active",
        "partition-taken",
    }
    elsewhere |= {
        "host-firmware",
        "host-tpm",
        "host-chassis",
        "host-silent",
        "vgpu-params",
        "guest-driver",
        "guest-mps",
        "compute-promise",
    }
    assert {case[1] for case in CASES} | elsewhere == {str(code) for code in Code}
    page = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    assert [code for code in Code if f"`{code}`" not in page] == []
