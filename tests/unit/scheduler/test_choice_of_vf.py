# SPDX-License-Identifier: Apache-2.0
"""Choice of the VF for the next vGPU: healthy, least recently used, and one that libvirt can give to a VM."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, emulated_a40, vm
from tests.unit.scheduler.one_host import only_rejection, some
from tests.unit.scheduler.test_rejections import A40, with_libvirt
from vgpuctl.agent.wire.facts import Gpu, VirtualFunction
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import Restriction, RestrictionKind
from vgpuctl.sharing import vf_profile
from vgpuctl.sharing.vgpu import next_free


def card(**first: object) -> Gpu:
    """An A40 whose first VF differs."""
    gpu = emulated_a40().facts()
    return replace(gpu, vfs=(replace(gpu.vfs[0], **first), *gpu.vfs[1:]))  # type: ignore[arg-type]


def chosen(gpu: Gpu) -> VirtualFunction:
    return next_free(gpu, (), needs_group=True)


def test_the_vf_that_was_used_longest_ago_comes_first() -> None:
    assert chosen(card()).number == 0
    assert chosen(card(last_use=1)).number == 1
    gpu = emulated_a40().facts()
    turns = (5, 3, 4, *range(6, 6 + len(gpu.vfs) - 3))
    vfs = tuple(replace(vf, last_use=use) for vf, use in zip(gpu.vfs, turns, strict=True))
    assert chosen(replace(gpu, vfs=vfs)).number == 1


@pytest.mark.parametrize(
    "first",
    [
        {"driver": None},
        {"driver": "pci-pf-stub"},
        {"driver": "vfio-pci"},
        {"offers_types": False},
        {"problem": "it could not be read"},
    ],
    ids=str,
)
def test_a_vf_that_can_carry_no_vgpu_is_passed_over(first: dict[str, object]) -> None:
    assert chosen(card(**first)).number == 1


@pytest.mark.parametrize(
    ("version", "answer"),
    [("9.6.0", False), ("8.0.0", False), ("9.7.0", True), ("10.0.0", True), (None, True), ("unknown", True)],
)
def test_libvirt_before_9_7_gives_no_vm_a_vf_on_its_vendors_driver(version: str | None, answer: bool) -> None:
    facts = replace(a40_host().facts, libvirt_version=version)
    assert (vf_profile.KIND.refuse_host(facts) is None) is answer


def in_quarantine(host: HostCapacity) -> HostCapacity:
    """The host with every VF of its GPUs in quarantine."""
    vfs = [vf.address for gpu in host.facts.gpus for vf in gpu.vfs]
    return replace(
        host, restrictions=tuple(Restriction(host.name, vf, RestrictionKind.QUARANTINE, "killed") for vf in vfs)
    )


@pytest.mark.parametrize(
    ("host", "code", "says"),
    [
        (in_quarantine(some(A40)), "no-free-vf", "in quarantine"),
        (with_libvirt("8.0.0"), "libvirt-too-old", "libvirt 8.0.0"),
    ],
)
def test_placing_says_why_no_vf_of_a_card_is_given(host: HostCapacity, code: str, says: str) -> None:
    rejection = only_rejection(vm("A40-8Q"), host)
    assert rejection.code == code and says in rejection.reason
