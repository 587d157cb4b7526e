# SPDX-License-Identifier: Apache-2.0
"""The fleet as ResourceSlices: of the form and within the limits of Kubernetes, and counters that keep our rules."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, host
from tests.unit.node_config.pools import problems
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, MigFacts, MigProfileFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Share
from vgpuctl.model.mig_space import Part, Space
from vgpuctl.model.placement import HostCapacity
from vgpuctl.node_config.dra import resource_slices

A100 = "nvidia-a100-pcie-40gb"
NVIDIA = [one for _, one in sorted(catalog.boards().items()) if one.vendor == "nvidia"]
BOARDS = sorted({one.architecture: one.key for one in NVIDIA if catalog.types_of(one)}.values())
"""One of each architecture."""


def profiles_of(key: str) -> tuple[MigProfileFacts, ...]:
    table = catalog.mig_table(catalog.board(key))
    assert table is not None
    return tuple(
        MigProfileFacts(
            one.name,
            one.id or index,
            one.compute_slices,
            one.placement_starts,
            one.placement_size,
            one.max_count,
        )
        for index, one in enumerate(table.profiles)
        if one.placement_starts and one.placement_size
    )


MIG_BOARDS = sorted({one.mig.table: one.key for one in NVIDIA if one.mig.table and profiles_of(one.key)}.values())
"""One of each table of profiles whose places are known."""


def card(key: str, address: str = "0000:41:00.0", *, is_mixed: bool = False, vgpus: tuple[str, ...] = ()) -> Gpu:
    board = catalog.board(key)
    sharing = "mdev" if board.interface == "mdev-pf" else "vf-profile"
    made = EmulatedGpu(board, address, sharing, vf_count=0 if sharing == "mdev" else 32, is_mixed=is_mixed)
    for function, name in zip(made.functions, vgpus, strict=False):
        made.create(name, function)
    return made.facts()


def mig_card(key: str, *instances: GpuInstance) -> Gpu:
    return replace(card(key), mig_mode="enabled", types=(), mig=MigFacts(True, True, instances, profiles_of(key)))


def devices(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for each in slices for one in each["spec"].get("devices", ())]


def free(slices: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """The rest of each counter, by set and name."""
    left: Counter[tuple[str, str]] = Counter()
    for each in slices:
        for one in each["spec"].get("sharedCounters", ()):
            for name, counter in one["counters"].items():
                left[one["name"], name] = int(counter["value"])
    return left


def takes(device: dict[str, Any]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for one in device["consumesCounters"]:
        for name, counter in one["counters"].items():
            found[one["counterSet"], name] = int(counter["value"])
    return found


def fits(device: dict[str, Any], left: Counter[tuple[str, str]]) -> bool:
    return all(left[key] >= count for key, count in takes(device).items())


def is_valid(slices: list[dict[str, Any]]) -> None:
    for one in slices:
        assert problems("resource-slice", one) == []
        assert one["spec"]["pool"]["resourceSliceCount"] == len(slices)
    names = [one["name"] for one in devices(slices)]
    assert len(set(names)) == len(names), "a pool's devices have names of their own"
    left = free(slices)
    for one in devices(slices):
        assert takes(one).keys() <= left.keys(), "it takes from counters that there are"
        assert fits(one, left), "what does not fit any more is left out"


@pytest.mark.parametrize("key", BOARDS)
def test_each_board_has_slices_of_the_form_of_kubernetes(key: str) -> None:
    for gpu in (card(key), card(key, is_mixed=True)):
        is_valid(resource_slices(host("gpu1", gpu), ()))


@pytest.mark.parametrize("key", MIG_BOARDS)
def test_each_board_in_mig_mode_too(key: str) -> None:
    slices = resource_slices(host("gpu1", mig_card(key)), ())
    is_valid(slices)
    assert devices(slices), "it has profiles to give"


def test_a_host_of_eight_gpus_has_several_slices_of_one_pool() -> None:
    both = ("vf-profile", "passthrough")
    cards = [replace(card("nvidia-a40", f"0000:{0x41 + 8 * index:02x}:00.0"), sharing=both) for index in range(8)]
    slices = resource_slices(replace(host("gpu1", *cards), generation=7), ())
    is_valid(slices)
    assert len(slices) > 2
    assert {(one["spec"]["pool"]["name"], one["spec"]["pool"]["generation"]) for one in slices} == {("gpu1", 7)}
    kinds = Counter(one["attributes"]["gpu.nvidia.com/type"]["string"] for one in devices(slices))
    assert kinds["gpu"] == 8


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(MIG_BOARDS), choices=st.lists(st.integers(0, 200), max_size=12))
def test_counters_admit_exactly_what_the_rule_of_mig_admits(key: str, choices: list[int]) -> None:
    profiles = profiles_of(key)
    parts = {
        one.profile_id: Part(one.name, one.compute_slices, one.size, one.starts, one.max_count) for one in profiles
    }
    slices = resource_slices(host("gpu1", mig_card(key)), ())
    all_devices, left = devices(slices), free(slices)
    space = Space(max(one.compute_slices for one in profiles), tuple(parts.values()))
    for choice in choices:
        for device in all_devices:
            profile, start = map(int, device["name"].rsplit("-", 2)[1:])
            assert fits(device, left) == space.fits_at(parts[profile], start), (device["name"], space.placed)
        device = all_devices[choice % len(all_devices)]
        if fits(device, left):
            profile, start = map(int, device["name"].rsplit("-", 2)[1:])
            left -= takes(device)
            space = replace(space, placed=(*space.placed, (parts[profile], start)))


@settings(max_examples=40, deadline=None)
@given(choices=st.lists(st.integers(0, 2000), min_size=1, max_size=20))
def test_counters_of_mixed_sizes_never_overlap(choices: list[int]) -> None:
    gpu = card("nvidia-a40", is_mixed=True)
    sizes = {one.name: one.placement_size for one in gpu.types}
    slices = resource_slices(host("gpu1", gpu), ())
    all_devices, left = devices(slices), free(slices)
    taken: set[int] = set()
    for choice in choices:
        device = all_devices[choice % len(all_devices)]
        name = device["attributes"]["gpu.nvidia.com/profile"]["string"]
        start = int(device["name"].rpartition("-")[2])
        places = set(range(start, start + sizes[name]))
        assert fits(device, left) == places.isdisjoint(taken)
        if fits(device, left):
            left -= takes(device)
            taken |= places


def test_what_vms_hold_is_gone() -> None:
    gpu = card("nvidia-a40")
    held = Share(gpu.address, Sharing.VF_PROFILE, "A40-24Q", gpu.vfs[0].address, _type_id(gpu, "A40-24Q"))
    slices = resource_slices(host("gpu1", card("nvidia-a40", vgpus=("A40-24Q",))), (held,))
    is_valid(slices)
    assert [one["attributes"]["gpu.nvidia.com/profile"]["string"] for one in devices(slices)] == ["A40-24Q"]
    unknown = resource_slices(host("gpu1", card("nvidia-a40", vgpus=("A40-24Q",))), ())
    assert devices(unknown) == devices(slices), "another's vGPU counts alike"


def test_an_instance_in_use_has_taken_its_slots() -> None:
    instance = GpuInstance(1, "4g.20gb", 0, 4, in_use=True)
    slices = resource_slices(host("gpu1", mig_card(A100, instance)), ())
    is_valid(slices)
    left = free(slices)
    assert left["gpu-0-0", "memory-slice-0"] == 0
    assert left["gpu-0-0", "compute-slices"] == 3
    assert not [one for one in devices(slices) if one["name"].endswith("-0")]


def test_a_card_that_works_or_has_problems_gives_nothing() -> None:
    whole = Share("0000:41:00.0", Sharing.PASSTHROUGH, "passthrough", "0000:41:00.0")
    assert resource_slices(host("gpu1", emulated_a40()), (whole,)) == []
    sick = replace(emulated_a40().facts(), problems=("it fell off the bus",))
    assert resource_slices(host("gpu1", sick), ()) == []
    held_up = host("gpu1", emulated_a40())
    there = replace(held_up, constraints=replace(held_up.constraints, maintenance="new disks"))
    assert resource_slices(there, ()) == []


def test_names_of_hosts_stay_different() -> None:
    pools = {_pool(host(name, emulated_a40())) for name in ("gpu-1", "gpu_1", "GPU-1", "gpu.1")}
    assert len(pools) == 4


def test_the_schema_refuses_slices_beyond_the_limits() -> None:
    (_, *rest) = resource_slices(host("gpu1", emulated_a40()), ())
    one = rest[0]
    for change in (
        {"devices": [*one["spec"]["devices"]] * 5},
        {"nodeName": "a"},
        {"sharedCounters": [{"name": "x", "counters": {"a": {"value": "1"}}}]},
        {"devices": [{"name": "Bad_Name"}]},
    ):
        assert problems("resource-slice", {**one, "spec": {**one["spec"], **change}})


def _pool(capacity: HostCapacity) -> str:
    return str(resource_slices(capacity, ())[0]["spec"]["pool"]["name"])


def _type_id(gpu: Gpu, name: str) -> str:
    return next(one.type_id for one in gpu.types if one.name == name)
