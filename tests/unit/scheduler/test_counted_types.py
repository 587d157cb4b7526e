# SPDX-License-Identifier: Apache-2.0
"""How many vGPUs a card still takes: by what was read, by the leases since, and by the types' own maximum."""

from dataclasses import replace

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import (
    GIB,
    a40_host,
    emulated_a40,
    leases_of,
    vm,
)
from tests.unit.scheduler.one_host import only_rejection, some
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.scheduler.place import place

A40 = emulated_a40().facts()
A40_VFS = emulated_a40().functions
A100 = EmulatedGpu(catalog.board("nvidia-a100-pcie-40gb"), "0000:c1:00.0", "vf-profile", vf_count=16).facts()


def test_what_the_host_still_takes_counts_beside_what_it_has_not_seen() -> None:
    few = tuple(replace(one, creatable=1) for one in A40.types)
    capacity = some(A40, types=few)
    first = place(vm("A40-8Q"), [capacity], [])
    assert only_rejection(vm("A40-8Q"), capacity, leases_of(first)).code == "gpu-full"


def test_the_types_maximum_counts_beside_what_the_host_says() -> None:
    gpu = a40_host(vgpus=["A40-24Q"]).facts.gpus[0]
    many = tuple(replace(one, creatable=9) if one.name == "A40-24Q" else one for one in gpu.types)
    capacity = some(gpu, types=many)
    first = place(vm("A40-24Q"), [capacity], [])
    assert only_rejection(vm("A40-24Q"), capacity, leases_of(first)).code == "gpu-full"


def test_a_foreign_type_of_unknown_size_leaves_the_answer_to_the_host() -> None:
    gpu = emulated_a40().facts()
    unknown = replace(gpu.vfs[0], current_type="9999")
    assert place(vm("A40-8Q"), [some(gpu, vfs=(unknown, *gpu.vfs[1:]))], []).shares[0].function == A40_VFS[1]


def test_a_host_that_mixes_sizes_may_carry_another_size() -> None:
    gpu = a40_host(vgpus=["A40-8Q"]).facts.gpus[0]
    mixed = tuple(replace(one, creatable=3) if one.name in ("A40-4Q", "A40-8Q") else one for one in gpu.types)
    assert place(vm("A40-4Q"), [some(gpu, types=mixed)], []).shares[0].profile == "A40-4Q"


def test_mig_backed_types_are_counted_by_their_gpu_instances() -> None:
    types = (
        VgpuType("474", "A100-1-5C", "NVIDIA A100-1-5C", 5 * GIB, 7, 2),
        VgpuType("475", "A100-2-10C", "NVIDIA A100-2-10C", 10 * GIB, 3, 1),
    )
    capacity = some(A100, mig_mode="enabled", types=types)
    first = place(vm("A100-1-5C"), [capacity], [])
    second = place(vm("2*A100-1-5C"), [capacity], [])
    assert len(second.shares) == 2
    assert place(vm("A100-2-10C"), [capacity], leases_of(first)).shares[0].type_id == "475"
    full = [*leases_of(second), *leases_of(first, vm_name="web-9")]
    assert only_rejection(vm("A100-1-5C"), capacity, full).code == "no-mig-instance"


def test_an_unseen_vgpu_of_another_size_takes_a_whole_gpu_instance() -> None:
    board = catalog.board("nvidia-rtx-pro-6000-blackwell-server")
    gpu = EmulatedGpu(board, "0000:c1:00.0", "vf-profile", vf_count=48).facts()
    types = (
        VgpuType("1546", "DC-1-2Q", "NVIDIA RTX Pro 6000 Blackwell DC-1-2Q", 2 * GIB, 48, 12),
        VgpuType("1555", "DC-1-24Q", "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", 24 * GIB, 4, 1),
    )
    capacity = some(gpu, mig_mode="enabled", types=types)
    large = leases_of(place(vm("DC-1-24Q"), [capacity], []))
    small = leases_of(place(vm("DC-1-2Q"), [capacity], []))
    assert only_rejection(vm("DC-1-2Q"), capacity, large).code == "no-mig-instance"
    assert only_rejection(vm("DC-1-24Q"), capacity, small).code == "no-mig-instance"
    assert len(place(vm("11*DC-1-2Q"), [capacity], small).shares) == 11


def test_a_type_whose_full_name_carries_the_board_is_found_by_its_short_name() -> None:
    board = catalog.board("nvidia-rtx-pro-6000-blackwell-server")
    gpu = EmulatedGpu(board, "0000:c1:00.0", "vf-profile", vf_count=48).facts()
    long = tuple(replace(one, name=one.full_name.removeprefix("NVIDIA ")) for one in gpu.types)
    assert place(vm("DC-4Q"), [some(gpu, types=long)], []).shares[0].profile == "DC-4Q"
