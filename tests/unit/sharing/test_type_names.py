# SPDX-License-Identifier: Apache-2.0
"""vGPU types by name: every question about a share's type, where the driver gives its id to another type."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, host_facts, lease, t4_host
from vgpuctl.agent.wire.facts import Gpu, Mdev
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.host_constraints import NO_RULES
from vgpuctl.model.lease import Share
from vgpuctl.planner.adoption import shares_of_devices
from vgpuctl.planner.layout.manifest import shares_of
from vgpuctl.planner.plan import check_kept, plan_release, plan_share
from vgpuctl.scheduler.gpu_by_facts import read_gpu
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.sharing.share_on_host import holders_of
from vgpuctl.sharing.type_names import has_type_of, likely_name, numbered_now, refuse_type_gone, renumbered

UUID = "5f1f9a0e-0000-4000-8000-000000000001"
A40, T4 = "0000:41:00.0", "0000:3b:00.0"
VF = "0000:41:00.4"
SHARES = {
    "vf-profile": Share(A40, Sharing.VF_PROFILE, "A40-24Q", VF, "565"),
    "mdev-vf": Share(A40, Sharing.MDEV_VF, "A40-24Q", VF, "nvidia-565", UUID),
    "mdev": Share(T4, Sharing.MDEV, "T4-4Q", T4, "nvidia-232", UUID),
}
GPUS = {
    "vf-profile": a40_host().facts.gpus[0],
    "mdev-vf": a40_host(sharing="mdev-vf").facts.gpus[0],
    "mdev": t4_host().facts.gpus[0],
}
SWAPS = {"A40-24Q": "A40-12Q", "A40-12Q": "A40-24Q", "T4-4Q": "T4-8Q", "T4-8Q": "T4-4Q"}
every_kind = pytest.mark.parametrize("kind", SHARES)


def renamed(gpu: Gpu, names: Mapping[str, str | None]) -> Gpu:
    """The GPU under a driver that gives the id of each of these types to another one, or to none."""
    types = []
    for one in gpu.types:
        name = names.get(one.name, one.name)
        if name is not None:
            types.append(replace(one, name=name, full_name=f"NVIDIA {name}"))
    return replace(gpu, types=tuple(types))


def carrying(gpu: Gpu, share: Share, type_id: str | None) -> Gpu:
    """The GPU with the share's device, of a type."""
    if share.mdev_uuid is not None:
        return replace(gpu, mdevs=(Mdev(share.mdev_uuid, share.function, type_id or "", 7),))
    vfs = tuple(replace(one, current_type=type_id) if one.address == share.function else one for one in gpu.vfs)
    return replace(gpu, vfs=vfs)


@every_kind
def test_a_share_is_built_with_the_id_of_now(kind: str) -> None:
    share, gpu = SHARES[kind], renamed(GPUS[kind], SWAPS)
    facts = host_facts([gpu])
    now = next(one.type_id for one in gpu.types if one.name == share.profile)
    assert now != share.type_id
    assert numbered_now(share, gpu) == replace(share, type_id=now)
    (step,) = plan_share(share, facts).steps
    assert getattr(step, "type_id", None) == now and getattr(step, "profile", None) == share.profile
    assert list(renumbered([lease("gpu1", share)], facts)) == [(lease("gpu1", share), replace(share, type_id=now))]
    assert list(renumbered([lease("gpu1", share)], host_facts([GPUS[kind]]))) == []


@every_kind
def test_a_device_of_the_promised_name_is_the_vms_under_any_id(kind: str) -> None:
    share, gpu = SHARES[kind], renamed(GPUS[kind], SWAPS)
    facts = host_facts([carrying(gpu, share, numbered_now(share, gpu).type_id)])
    assert holders_of(facts, share) == ()
    assert check_kept(share, facts, NO_RULES) is None
    assert plan_share(share, facts).undo == (), "a device that is there is not taken away when a start is rolled back"
    assert len(plan_release(share, facts).steps) == 1


@every_kind
def test_a_device_of_the_recorded_id_and_another_name_is_not_the_vms(kind: str) -> None:
    share = SHARES[kind]
    facts = host_facts([carrying(renamed(GPUS[kind], SWAPS), share, share.type_id)])
    other = SWAPS[share.profile]
    assert holders_of(facts, share) is None
    refusal = check_kept(share, facts, NO_RULES) or ""
    assert f"carries {other} (type {share.type_id}) now, which is not the VM's {share.profile}" in refusal
    assert "write " in refusal
    adopted = shares_of_devices([share.vfio_device], facts)
    assert not isinstance(adopted, str) and [one.profile for one in adopted] == [other]
    assert [held.name for held in read_gpu(NO_RULES, facts, facts.gpus[0]).vgpus] == [other]
    (at_boot,) = shares_of(facts, [lease("gpu1", share)], ())
    now = numbered_now(share, facts.gpus[0]).type_id
    assert (getattr(at_boot.step, "profile", None), getattr(at_boot.step, "type_id", None)) == (share.profile, now)


def test_a_vf_with_another_type_is_left_when_its_share_is_released() -> None:
    share = SHARES["vf-profile"]
    plan = plan_release(share, host_facts([carrying(renamed(GPUS["vf-profile"], SWAPS), share, share.type_id)]))
    assert plan.steps == () and "carries A40-12Q (type 565), not A40-24Q" in plan.summary[0]


@every_kind
def test_a_type_that_is_gone_is_named_with_its_former_id(kind: str) -> None:
    share = SHARES[kind]
    other = SWAPS[share.profile]
    taken = renamed(GPUS[kind], {share.profile: other, other: None})
    expected = f"has no type {share.profile} now; its id {share.type_id} is {other} now"
    assert expected in (check_kept(share, host_facts([taken]), NO_RULES) or "")
    gone = renamed(GPUS[kind], {share.profile: None})
    assert f"has no type {share.profile} now; it was type {share.type_id}" in (refuse_type_gone(share, gone) or "")
    assert numbered_now(share, gone) == share
    assert refuse_type_gone(share, GPUS[kind]) is None


@pytest.mark.parametrize("types", [(), "guessed", "unnamed"])
def test_where_no_driver_tells_names_the_id_decides(types: object) -> None:
    share, gpu = SHARES["vf-profile"], renamed(GPUS["vf-profile"], SWAPS)
    if types == "guessed":
        gpu = replace(gpu, types=tuple(replace(one, is_guessed=True) for one in gpu.types))
    elif types == "unnamed":
        gpu = replace(gpu, types=tuple(replace(one, name=f"type {one.type_id}") for one in gpu.types))
    else:
        gpu = replace(gpu, types=())
    there = carrying(gpu, share, share.type_id)
    assert numbered_now(share, gpu) == share and refuse_type_gone(share, gpu) is None
    assert holders_of(host_facts([there]), share) == ()
    assert holders_of(host_facts([carrying(gpu, share, "563")]), share) is None
    (found,) = existing_vgpus(there)
    assert found.profile is None


def test_a_board_s_own_name_before_the_type_s_is_no_difference() -> None:
    share = SHARES["vf-profile"]
    gpu = renamed(GPUS["vf-profile"], {"A40-24Q": "Some Board A40-24Q"})
    assert numbered_now(share, gpu) == share
    assert holders_of(host_facts([carrying(gpu, share, "565")]), share) == ()


def test_a_share_without_a_name_goes_by_its_id() -> None:
    stray = Share(A40, Sharing.VF_PROFILE, "type 565", VF, "565")
    gpu = renamed(GPUS["vf-profile"], SWAPS)
    assert numbered_now(stray, gpu) == stray and refuse_type_gone(stray, gpu) is None
    assert has_type_of(ExistingVgpu(A40, Sharing.VF_PROFILE, VF, "565", profile="A40-12Q"), stray)
    assert not has_type_of(ExistingVgpu(A40, Sharing.VF_PROFILE, VF, "563", profile="A40-24Q"), stray)


def test_the_catalogue_names_an_id_only_for_a_driver_that_numbers_as_it_does() -> None:
    gpu = GPUS["vf-profile"]
    few = replace(gpu, types=tuple(one for one in gpu.types if one.name == "A40-8Q"))
    assert likely_name(few, "565") == "A40-24Q"
    assert likely_name(replace(gpu, types=()), "565") == "A40-24Q"
    assert likely_name(renamed(few, {"A40-8Q": "A40-6Q"}), "565") is None
    assert likely_name(renamed(few, {"A40-8Q": "A40-24Q"}), "565") is None, "the name is another id's"
    assert likely_name(gpu, "99999") is None
