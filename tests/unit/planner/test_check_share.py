# SPDX-License-Identifier: Apache-2.0
"""Before anything is written the live host is compared with the share; what differs is told in words."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import qemu
from tests.unit.fleet_factory import a40_host, host_facts, intel_vf_host, passthrough_host, t4_host, vm
from vgpuctl.agent.wire.facts import CompanionFunction, Gpu, HostFacts, Mdev
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.planner.plan import check_share
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.kinds import kind_of

UUID = "5f1f9a0e-0000-4000-8000-000000000001"
Change = Callable[[Gpu], Gpu]


def share_of(text: str, capacity: HostCapacity) -> Share:
    chosen = place(vm(text), [capacity], []).shares[0]
    return kind_of(chosen.sharing).named(chosen, UUID)


def changed(capacity: HostCapacity, change: Change) -> HostFacts:
    return replace(capacity.facts, gpus=tuple(change(gpu) for gpu in capacity.facts.gpus))


FREE = [
    ("T4-4Q", t4_host()),
    ("A40-8Q", a40_host(sharing="mdev-vf")),
    ("A40-8Q", a40_host()),
    ("passthrough", passthrough_host()),
    ("vf", intel_vf_host()),
]
KINDS = ["mdev", "mdev-vf", "vf-profile", "passthrough", "vf"]


@pytest.mark.parametrize(("text", "capacity"), FREE, ids=KINDS)
def test_a_host_that_did_not_change_offers_what_was_placed(text: str, capacity: HostCapacity) -> None:
    assert check_share(share_of(text, capacity), capacity.facts) is None


@pytest.mark.parametrize(("text", "capacity"), FREE, ids=KINDS)
def test_a_gpu_that_is_gone_or_broken_or_shared_otherwise_is_no_longer_offered(
    text: str, capacity: HostCapacity
) -> None:
    wanted = share_of(text, capacity)
    assert "has no GPU at" in (check_share(wanted, host_facts([])) or "")
    broken = changed(capacity, lambda gpu: replace(gpu, problems=("it fell off the bus",)))
    assert "it fell off the bus" in (check_share(wanted, broken) or "")
    surprise = check_share(wanted, changed(capacity, lambda gpu: replace(gpu, sharing=())))
    assert "no longer offers" in (surprise or "") or "does not offer it for passthrough" in (surprise or "")


def without_type(name: str) -> Change:
    return lambda gpu: replace(gpu, types=tuple(one for one in gpu.types if one.name != name))


def with_type(name: str, **values: object) -> Change:
    return lambda gpu: replace(
        gpu,
        types=tuple(
            replace(one, **values) if one.name == name else one  # type: ignore[arg-type]  # real fields
            for one in gpu.types
        ),
    )


def with_first_vf(**values: object) -> Change:
    return lambda gpu: replace(gpu, vfs=(replace(gpu.vfs[0], **values), *gpu.vfs[1:]))  # type: ignore[arg-type]  # real fields


def with_mdev(parent: str, type_id: str, uuid: str) -> Change:
    return lambda gpu: replace(gpu, mdevs=(Mdev(uuid, parent, type_id, 7),))


def with_companion(gpu: Gpu) -> Gpu:
    return replace(gpu, companions=(*gpu.companions, CompanionFunction("0000:81:00.2", "0c0330", None, 129)))


def strange_group(gpu: Gpu) -> Gpu:
    return replace(gpu, sharing=(), iommu_group_members=(*gpu.iommu_group_members, "0000:82:00.0"))


@pytest.mark.parametrize(
    ("text", "capacity", "change", "words"),
    [
        ("A40-8Q", a40_host(), without_type("A40-8Q"), "does not offer A40-8Q"),
        ("A40-8Q", a40_host(), with_type("A40-8Q", creatable=0), "no more A40-8Q"),
        ("A40-8Q", a40_host(), lambda gpu: replace(gpu, vfs=()), "no VF 0000:41:00.4"),
        ("A40-8Q", a40_host(), with_first_vf(current_type="562"), "carries a vGPU already (type 562)"),
        ("A40-8Q", a40_host(), with_first_vf(holders=(qemu(),)), "held by qemu-system-x86 (pid 4711)"),
        (
            "A40-8Q",
            a40_host(sharing="mdev-vf"),
            with_mdev("0000:41:00.4", "nvidia-562", "another"),
            "carries a vGPU already",
        ),
        (
            "A40-8Q",
            a40_host(sharing="mdev-vf"),
            with_mdev("0000:41:00.5", "nvidia-562", UUID),
            "exists already, A40-8Q (type nvidia-562) on 0000:41:00.5",
        ),
        ("T4-4Q", t4_host(), lambda gpu: replace(gpu, holders=(qemu(),)), "held by qemu"),
        ("T4-4Q", t4_host(), with_type("T4-4Q", creatable=0), "no more T4-4Q"),
        ("passthrough", passthrough_host(), lambda gpu: replace(gpu, holders=(qemu(),)), "held by qemu"),
        ("passthrough", passthrough_host(), lambda gpu: replace(gpu, users=(qemu(),)), "the host itself uses it"),
        ("passthrough", t4_host(), with_mdev("0000:3b:00.0", "nvidia-231", "another"), "carries 1 vGPUs"),
        (
            "passthrough",
            passthrough_host(),
            lambda gpu: replace(gpu, vfs=intel_vf_host().facts.gpus[0].vfs),
            "7 VFs are enabled",
        ),
        ("passthrough", passthrough_host(), lambda gpu: replace(gpu, iommu_group=None), "no IOMMU group"),
        ("passthrough", passthrough_host(), strange_group, "also holds 0000:82:00.0"),
        ("passthrough", passthrough_host(), with_companion, "companions 0000:81:00.1, 0000:81:00.2"),
        ("vf", intel_vf_host(), with_first_vf(holders=(qemu(),)), "held by qemu"),
        ("vf", intel_vf_host(), with_first_vf(iommu_group=None), "no IOMMU group"),
        ("vf", intel_vf_host(), lambda gpu: replace(gpu, vfs=()), "no VF 0000:9a:00.4"),
    ],
)
def test_what_changed_on_the_host_is_told(text: str, capacity: HostCapacity, change: Change, words: str) -> None:
    surprise = check_share(share_of(text, capacity), changed(capacity, change))
    assert surprise is not None
    assert words in surprise


def test_the_shares_own_mdev_is_no_surprise() -> None:
    capacity = a40_host(sharing="mdev-vf")
    own = changed(capacity, with_mdev("0000:41:00.4", "nvidia-562", UUID))
    assert check_share(share_of("A40-8Q", capacity), own) is None
