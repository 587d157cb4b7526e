# SPDX-License-Identifier: Apache-2.0
"""The emulated host's kernel keeps the rules of NVIDIA's vGPU host driver: mediated devices, and vGPU types of VFs.

The numbers in brackets are sections of the project's host interface reference; the types and sizes are the table's own.
"""

import pytest

from tests.lab.kernel_cards import (
    DEVICES,
    REMOVAL_DELAY,
    UUIDS,
    Card,
    Do,
    complaints,
    create_path,
    current_type,
    mdev_path,
    refusals,
    warnings_of,
)

pytestmark = [
    pytest.mark.usefixtures("without_libvirtd"),
    pytest.mark.long(
        "tests/lab/agreement/test_agreement.py::test_a_real_kernel_answers_as_the_case_says",
        "tests/unit/lab/test_kernel_rules.py::test_without_mig_one_framebuffer_size_fills_the_gpu_up_to_its_maximum",
    ),
]

# Sections 2.1 to 2.3: mdev


def test_mdev_types_have_the_names_and_descriptions_of_the_board(mdev_vf: Card, do: Do) -> None:
    """[2.1]"""
    function, wanted = mdev_vf.function(0), mdev_vf.one_type(max_instances=6)
    folder = f"/sys/class/mdev_bus/{function}/mdev_supported_types"
    names, name, description, api, mode, on_pf = do(
        ["list", folder],
        ["read", f"{folder}/nvidia-{wanted.id}/name"],
        ["read", f"{folder}/nvidia-{wanted.id}/description"],
        ["read", f"{folder}/nvidia-{wanted.id}/device_api"],
        ["mode", f"{folder}/nvidia-{wanted.id}/create"],
        ["exists", f"{mdev_vf.path}/mdev_supported_types"],
    )
    assert sorted(names) == sorted(f"nvidia-{one.id}" for one in mdev_vf.types)
    assert (name, api, mode) == (wanted.name, "vfio-pci", "0o200")
    assert description.startswith("num_heads=")
    assert f"framebuffer={wanted.framebuffer_mib}M, max_resolution=" in description
    assert description.endswith(f", max_instance={wanted.max_instances}")
    assert on_pf is False, "[2.2.1] with SR-IOV the PF exposes no types"


def test_a_vf_takes_one_vgpu_and_sizes_must_be_equal_over_all_vfs(mdev_vf: Card, do: Do) -> None:
    """[2.2.1], [2.2.2], [2.2.6]"""
    wanted = mdev_vf.one_type(max_instances=6)
    first, second = mdev_vf.function(0), mdev_vf.function(1)
    before, created, used, other, again, wrong, log, removed, after = do(
        ["types", first],
        ["write", create_path(first, wanted), UUIDS[0]],
        ["types", first],
        ["types", second],
        ["write", create_path(first, wanted), UUIDS[1]],
        ["write", create_path(second, mdev_vf.other_size(wanted)), UUIDS[1]],
        ["log"],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "1"],
        ["types", second],
    )
    assert set(before.values()) == {1}
    assert created == "ok"
    assert set(used.values()) == {0}
    same = {f"nvidia-{number}" for number in mdev_vf.same_size(wanted)}
    assert len(same) > 1, "the board has several series of one size"
    assert {name for name, available in other.items() if available} == same
    assert (again, wrong) == ("EIO", "EIO")
    pci_id = int(first[5:7], 16) << 8 | int(first[8:10], 16) << 3 | int(first[11])
    assert refusals(log) == [
        "NVRM: Failed to add vgpu create request: 0x38",
        f"vGPU creation failed on device 0x{pci_id:x}. -5",
        "NVRM: Failed to add vgpu create request: 0x56",
        f"vGPU creation failed on device 0x{pci_id + 1:x}. -5",
    ]
    assert removed == "ok"
    assert set(after.values()) == {1}


def test_the_count_over_all_vfs_ends_at_max_instances(mdev_vf: Card, do: Do) -> None:
    """[2.2.3]"""
    wanted = mdev_vf.one_type(max_instances=3)
    *created, none_left, refused, log = do(
        *(["write", create_path(mdev_vf.function(number), wanted), UUIDS[number]] for number in range(3)),
        ["types", mdev_vf.function(3)],
        ["write", create_path(mdev_vf.function(3), wanted), UUIDS[3]],
        ["log"],
    )
    assert created == ["ok"] * 3
    assert set(none_left.values()) == {0}
    assert refused == "EIO"
    assert "NVRM: Failed to add vgpu create request: 0x1a" in refusals(log)


def test_create_answers_as_the_mdev_core_does(mdev_vf: Card, do: Do) -> None:
    """[2.1]"""
    wanted = mdev_vf.one_type(max_instances=6)
    path = create_path(mdev_vf.function(0), wanted)
    answers = do(
        ["write", path, "short"],
        ["write", path, "g" * 36],
        ["write", path, UUIDS[0] + "\n"],
        ["write", create_path(mdev_vf.function(1), wanted), UUIDS[0]],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "no"],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "0"],
        ["exists", mdev_path(UUIDS[0])],
        ["link", f"{mdev_path(UUIDS[0])}/mdev_type"],
        ["link", f"{mdev_path(UUIDS[0])}/driver"],
        ["exists", f"{mdev_path(UUIDS[0])}/iommu_group"],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "1"],
        ["exists", mdev_path(UUIDS[0])],
    )
    driver = "nvidia-vgpu-vfio"
    assert answers == [
        "EINVAL", "EINVAL", "ok", "EEXIST", "EINVAL", "ok", True, f"nvidia-{wanted.id}", driver, True, "ok", False,
    ]  # fmt: skip


def test_vgpu_params_are_stored_until_the_vgpu_is_in_use(mdev_vf: Card, do: Do) -> None:
    """[2.3]"""
    wanted, function = mdev_vf.one_type(max_instances=6), mdev_vf.function(0)
    device = mdev_path(UUIDS[0])
    path = f"{device}/nvidia/vgpu_params"
    answers = do(
        ["write", create_path(function, wanted), UUIDS[0]],
        ["read", path],
        ["write", path, "frame_rate_limiter=0,disable_vnc=1\n"],
        ["read", path],
        ["write", path, "x" * 1025],
        ["vfio-open", device, UUIDS[0]],
        ["write", path, "enable_uvm=1"],
        ["vfio-close", UUIDS[0]],
        ["write", path, " "],
        ["read", path],
    )
    stored = "frame_rate_limiter=0,disable_vnc=1"
    assert answers == ["ok", "", "ok", stored, "EINVAL", "ok", "EBUSY", "ok", "ok", ""]


def test_a_gpu_without_sriov_counts_down_on_its_pf(mdev_pf: Card, do: Do) -> None:
    """[2.2.2], [2.2.3] The T4 rule: max_instance minus what was created, equal sizes only."""
    wanted = next(one for one in mdev_pf.types if 2 <= one.max_instances <= 8)
    same = {f"nvidia-{number}" for number in mdev_pf.same_size(wanted)}
    before, *rest = do(
        ["types", mdev_pf.address],
        *(["write", create_path(mdev_pf.address, wanted), uuid] for uuid in UUIDS[: wanted.max_instances]),
        ["types", mdev_pf.address],
        ["write", create_path(mdev_pf.address, wanted), UUIDS[-1]],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "1"],
        ["types", mdev_pf.address],
        ["exists", f"{mdev_pf.path}/sriov_totalvfs"],
    )
    *created, full, refused, removed, one_free, has_vfs = rest
    assert before == {f"nvidia-{one.id}": one.max_instances for one in mdev_pf.types}
    assert created == ["ok"] * wanted.max_instances
    assert set(full.values()) == {0}
    assert (refused, removed, has_vfs) == ("EIO", "ok", False)
    assert one_free == {name: int(name in same) for name in one_free} | {
        f"nvidia-{one.id}": one.max_instances - wanted.max_instances + 1
        for one in mdev_pf.types
        if f"nvidia-{one.id}" in same
    }


# Section 4: vendor-specific VFIO


def test_a_vf_lists_what_it_can_become_and_a_used_one_only_the_header(profile: Card, do: Do) -> None:
    """[4.1], [2.2]"""
    wanted = profile.one_type(max_instances=6)
    folder = f"{DEVICES}/{profile.function(0)}/nvidia"
    text, files, modes, before, created, current, used, other, deleted, after, pf_folder, on_mdev = do(
        ["read", f"{folder}/creatable_vgpu_types"],
        ["list", folder],
        ["mode", f"{folder}/creatable_vgpu_types"],
        ["creatable", profile.function(1)],
        ["write", f"{folder}/current_vgpu_type", f"{wanted.id}\n"],
        ["read", f"{folder}/current_vgpu_type"],
        ["creatable", profile.function(0)],
        ["creatable", profile.function(1)],
        ["write", f"{folder}/current_vgpu_type", "0"],
        ["creatable", profile.function(1)],
        ["exists", f"{profile.path}/nvidia"],
        ["exists", f"/sys/class/mdev_bus/{profile.function(0)}"],
    )
    first = profile.types[0]
    assert text.splitlines()[1] == f"{first.id:<6}: {first.name}"
    assert {"creatable_vgpu_types", "current_vgpu_type", "gpu_instance_id", "placement_id", "vgpu_params"} <= set(files)
    assert modes == "0o444"
    assert before == [one.id for one in profile.types] == after
    assert (created, current, deleted) == ("ok", str(wanted.id), "ok")
    assert used == []
    assert other == profile.same_size(wanted)
    assert (pf_folder, on_mdev) == (False, False)


def test_refused_types_are_eio_with_the_code_of_the_resource_manager(profile: Card, do: Do) -> None:
    """[4.2], [2.2]"""
    wanted = profile.one_type(max_instances=2)
    answers = do(
        ["write", current_type(profile, 0), str(wanted.id)],
        ["write", current_type(profile, 0), str(wanted.id)],
        ["write", current_type(profile, 1), str(profile.other_size(wanted).id)],
        ["write", current_type(profile, 1), str(wanted.id)],
        ["write", current_type(profile, 2), str(wanted.id)],
        ["write", current_type(profile, 2), "99999"],
        ["write", current_type(profile, 2), "much"],
        ["log"],
    )
    assert answers[:7] == ["ok", "EPERM", "EIO", "ok", "EIO", "EIO", "EINVAL"]
    codes = [line.rpartition(" ")[2] for line in refusals(answers[7])]
    assert codes == ["0x56", "0x1a", "0x57"]


def test_attributes_of_a_vgpu_are_enxio_while_there_is_none(profile: Card, do: Do) -> None:
    """[4.1], [4.2] Placement cannot be chosen in equal-size mode, nor an instance without MIG."""
    folder = f"{DEVICES}/{profile.function(0)}/nvidia"
    wanted = profile.one_type(max_instances=6)
    answers = do(
        ["read", f"{folder}/placement_id"],
        ["read", f"{folder}/gpu_instance_id"],
        ["read", f"{folder}/vgpu_params"],
        ["write", current_type(profile, 1), str(wanted.id)],
        ["write", current_type(profile, 0), str(wanted.id)],
        ["read", f"{folder}/placement_id"],
        ["write", f"{folder}/placement_id", str(wanted.framebuffer_mib // 1024)],
        ["write", f"{folder}/placement_id", "1"],
        ["write", f"{folder}/gpu_instance_id", "3"],
        ["write", f"{folder}/vgpu_params", "frame_rate_limiter=0"],
        ["read", f"{folder}/vgpu_params"],
        ["log"],
    )
    placement = str(wanted.framebuffer_mib // 1024)
    assert answers[:11] == [
        "ENXIO", "ENXIO", "", "ok", "ok", placement, "ok", "EIO", "EIO", "ok", "frame_rate_limiter=0",
    ]  # fmt: skip
    assert [line.rpartition(" ")[2] for line in refusals(answers[11])] == ["0x56", "0x38"]


def test_a_vf_without_a_type_cannot_be_opened(profile: Card, do: Do) -> None:
    """[4.2], [9 #23]"""
    function = profile.function(0)
    opened, nodes = do(["vfio-open", f"{DEVICES}/{function}", function], ["list", f"{DEVICES}/{function}/vfio-dev"])
    assert opened == "EIO"
    assert len(nodes) == 1 and nodes[0].startswith("vfio")


def test_a_held_vgpu_cannot_be_deleted_and_shows_its_identity(profile: Card, do: Do) -> None:
    """[4.2] The type survives the close; guests see the ids of the type."""
    wanted = profile.one_type(max_instances=6)
    function = profile.function(0)
    answers = do(
        ["write", current_type(profile, 0), str(wanted.id)],
        ["vfio-open", f"{DEVICES}/{function}", function],
        ["vfio-config", function, 0, 4],
        ["vfio-config", function, 0x2C, 4],
        ["vfio-config", function, 0x0A, 2],
        ["vfio-config-write", function, 4, "0600"],
        ["vfio-config", function, 4, 2],
        ["vfio-reset", function],
        ["vfio-config", function, 4, 2],
        ["write", current_type(profile, 0), "0"],
        ["vfio-close", function],
        ["read", current_type(profile, 0)],
        ["write", current_type(profile, 0), "0"],
        ["read", current_type(profile, 0)],
    )
    device, subsystem = wanted.vdev.split(":")
    little = {word: word[2:] + word[:2] for word in ("10de", device, subsystem)}
    assert answers[:2] == ["ok", "ok"]
    assert answers[2] == little["10de"] + little[device]
    assert answers[3] == little["10de"] + little[subsystem]
    assert answers[4] == "0203"
    assert answers[5:9] == ["ok", "0600", "ok", "0000"]
    assert answers[9:] == ["EPERM", "ok", str(wanted.id), "ok", "0"]


def test_deleting_fails_for_a_while_after_the_last_close_where_the_lab_says_so(profile: Card, do: Do) -> None:
    """[4.2], [9 #24] The VM stop race."""
    wanted = profile.one_type(max_instances=6)
    function = profile.function(0)
    answers = do(
        ["write", REMOVAL_DELAY, "4500"],
        ["write", current_type(profile, 0), str(wanted.id)],
        ["vfio-open", f"{DEVICES}/{function}", function],
        ["vfio-close", function],
        ["write", current_type(profile, 0), "0"],
        ["write-until", current_type(profile, 0), "0", 10],
        ["write", REMOVAL_DELAY, "0"],
        ["log"],
    )
    assert answers[:7] == ["ok", "ok", "ok", "ok", "EPERM", "ok", "ok"]
    assert refusals(answers[7])[0] == "NVRM: Failed to add vgpu delete request: 0x66"


def test_unbinding_a_vf_takes_its_vgpu_and_binding_brings_an_empty_one(profile: Card, do: Do) -> None:
    """[4.2] The type does not survive the driver's leave."""
    wanted = profile.one_type(max_instances=6)
    function = profile.function(0)
    answers = do(
        ["write", current_type(profile, 0), str(wanted.id)],
        ["write", "/sys/bus/pci/drivers/nvidia/unbind", function],
        ["exists", f"{DEVICES}/{function}/nvidia"],
        ["creatable", profile.function(1)],
        ["write", "/sys/bus/pci/drivers/nvidia/bind", function],
        ["read", current_type(profile, 0)],
    )
    assert answers == ["ok", "ok", False, [one.id for one in profile.types], "ok", "0"]


# The lab's own control file


def test_the_card_table_is_given_once(cards: dict[str, Card], do: Do) -> None:
    refused, state = do(
        ["write", "/proc/vgpulab/cards", "card 0000:01:00.0 interface=none\n"],
        ["read", "/proc/vgpulab/state"],
    )
    assert refused in ("EBUSY", "EINVAL")
    assert [line for line in state.splitlines() if line.startswith("vgpu ")] == []


def test_the_kernel_stays_sound(do: Do) -> None:
    assert complaints(do) == []


def test_a_warning_is_shown_from_its_first_line_to_its_last() -> None:
    warning = (
        "[  812.1] ------------[ cut here ]------------",
        "[  812.1] WARNING: CPU: 1 PID: 9 at fs/proc/generic.c:400 proc_register+0x19f/0x240",
        "[  812.1]  pci_bus_add_device+0x33/0x70",
        "[  812.1] ---[ end trace 0000000000000000 ]---",
    )
    modules = "[  812.1] Modules linked in: vgpulab(OE) vfio_pci mdev"
    log = ["[  1.0] pci 0000:01:00.0: fine", *warning[:2], modules, *warning[2:], "[  813.0] vgpulab: after it"]
    assert warnings_of("\n".join([*log, *log])) == ["\n".join(warning)] * 2
