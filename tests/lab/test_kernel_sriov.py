# SPDX-License-Identifier: Apache-2.0
"""The emulated host's kernel: who its cards are, whole cards, and virtual functions of NVIDIA's and Intel's cards.

The numbers in brackets are sections of the project's host interface reference; the types and sizes are the table's own.
"""

import pytest

from tests.lab.kernel_cards import DEVICES, SRIOV_MANAGE, UUIDS, Card, Do, create_path, mdev_path

pytestmark = [
    pytest.mark.usefixtures("without_libvirtd"),
    pytest.mark.long(
        "tests/lab/agreement/test_agreement.py::test_a_real_kernel_answers_as_the_case_says",
        "tests/unit/lab/test_simulated_faults.py::test_a_refused_lock_leaves_every_vf_there_and_without_a_driver",
        "tests/unit/lab/test_simulated_faults.py::test_vfs_outlive_the_driver_of_their_card_and_come_back_without_one",
    ),
]

# Section 1: PCI identity


def test_a_card_and_its_vfs_have_the_identity_of_the_board_everywhere(cards: dict[str, Card], do: Do) -> None:
    """[1.1] sysfs and configuration space agree; a VF's ids read as ones in configuration space, as SR-IOV has it."""
    card = cards["vf-profile"]
    vendor, device = card.keys["device"].split(":")
    paths = [card.path, f"{DEVICES}/{card.function(0)}", f"{DEVICES}/{card.function(card.total_vfs - 1)}"]
    files = ("vendor", "device", "class", "subsystem_device")
    answers = do(
        *(["read", f"{path}/{name}"] for path in paths for name in files),
        *(["link", f"{path}/driver"] for path in paths),
        ["config", f"{card.path}/config"],
        ["config", f"{paths[1]}/config"],
        ["read", f"{card.path}/sriov_vf_device"],
        ["read", f"{card.path}/sriov_totalvfs"],
    )
    subsystem = card.keys["subsystem"].split(":")[1]
    assert answers[:12] == [f"0x{vendor}", f"0x{device}", f"0x{card.keys['class']}", f"0x{subsystem}"] * 3
    assert answers[12:15] == ["nvidia"] * 3
    assert answers[15] == vendor[2:] + vendor[:2] + device[2:] + device[:2]
    assert answers[16:] == ["ffffffff", device, card.keys["vfs"]]


def test_every_vf_has_an_iommu_group_of_its_own(cards: dict[str, Card], do: Do) -> None:
    """[1.1]"""
    card = cards["vf-profile"]
    groups = do(*(["link", f"{DEVICES}/{card.function(number)}/iommu_group"] for number in range(card.total_vfs)))
    assert len(set(groups)) == card.total_vfs
    assert not {"ENOENT"} & set(groups)


def test_a_whole_card_can_be_reset_and_shares_its_group_with_its_companion(cards: dict[str, Card], do: Do) -> None:
    """[1.1], [1.2]"""
    card = cards["none"]
    exists, mode, method, group, other = do(
        ["exists", f"{card.path}/reset"],
        ["mode", f"{card.path}/reset"],
        ["read", f"{card.path}/reset_method"],
        ["link", f"{card.path}/iommu_group"],
        ["link", f"{card.path[:-1]}1/iommu_group"],
    )
    assert exists and mode == "0o200" and "flr" in method.split()
    assert group == other


def test_a_whole_card_goes_to_vfio_pci_and_back(cards: dict[str, Card], do: Do) -> None:
    """[1.2]"""
    card = cards["none"]
    answers = do(
        ["write", f"{card.path}/driver_override", "vfio-pci"],
        ["write", f"{card.path}/driver/unbind", card.address],
        ["write", "/sys/bus/pci/drivers_probe", card.address],
        ["link", f"{card.path}/driver"],
        ["exists", f"/proc/driver/nvidia/gpus/{card.address}"],
        ["write", f"{card.path}/reset", "1"],
        ["write", f"{card.path}/driver_override", "\n"],
        ["write", f"{card.path}/driver/unbind", card.address],
        ["write", "/sys/bus/pci/drivers_probe", card.address],
        ["link", f"{card.path}/driver"],
    )
    assert answers == ["ok", "ok", "ok", "vfio-pci", False, "ok", "ok", "ok", "ok", "nvidia"]


# Section 3.1: SR-IOV


def test_sriov_numvfs_is_refused_with_enoent_while_bound_to_nvidia(cards: dict[str, Card], do: Do) -> None:
    """[1.1] The driver has no sriov_configure; a value over the total is ERANGE, the present one a no-op."""
    card = cards["vf-profile"]
    path = f"{card.path}/sriov_numvfs"
    fewer, over, no_number, same = do(
        ["write", path, "0"],
        ["write", path, str(card.total_vfs + 1)],
        ["write", path, "many"],
        ["write", path, str(card.total_vfs)],
    )
    assert (fewer, over, no_number, same) == ("ENOENT", "ERANGE", "EINVAL", "ok")


def test_sriov_manage_says_what_it_does_and_wipes_the_vgpus(cards: dict[str, Card], do: Do) -> None:
    """[3.1]"""
    card = cards["mdev-vf"]
    again, created, off, twice, left, on, count, driver = do(
        ["program", SRIOV_MANAGE, "-e", card.address],
        ["write", create_path(card.function(0), card.types[0]), UUIDS[0]],
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["exists", mdev_path(UUIDS[0])],
        ["program", SRIOV_MANAGE, "-e", card.address],
        ["read", f"{card.path}/sriov_numvfs"],
        ["link", f"{card.path}/driver"],
    )
    assert again == [0, f"GPU at {card.address} already has VFs enabled.\n"]
    assert created == "ok"
    assert off == [0, f"Disabling VFs on {card.address}\n"]
    assert twice == [0, f"GPU at {card.address} already has VFs disabled.\n"]
    assert left is False
    assert on == [0, f"Enabling VFs on {card.address}\n"]
    assert (count, driver) == (card.keys["vfs"], "nvidia")


def test_a_gpu_in_use_gives_no_unbind_lock(cards: dict[str, Card], do: Do) -> None:
    """[3.1] Granted only at usage count 0; the write itself always succeeds; nobody opens a locked GPU.

    sriov-manage -d has taken the VFs from their driver by then.
    """
    card = cards["mdev-vf"]
    lock = f"/proc/driver/nvidia/gpus/{card.address}/unbindLock"
    information: str = do(["read", f"/proc/driver/nvidia/gpus/{card.address}/information"])[0]
    node = f"/dev/nvidia{information.rsplit(maxsplit=1)[-1]}"
    answers = do(
        ["hold", node],
        ["write", lock, "1"],
        ["read", lock],
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["exists", f"{DEVICES}/{card.function(0)}/driver"],
        ["exists", f"{DEVICES}/{card.function(card.total_vfs - 1)}/driver"],
        ["program", SRIOV_MANAGE, "-e", card.address],
        ["release", node],
        ["write", lock, "1"],
        ["read", lock],
        ["hold", node],
        ["write", lock, "0"],
        ["read", lock],
        ["hold", node],
        ["release", node],
        ["log"],
    )
    assert answers[:3] == ["ok", "ok", "0"]
    assert answers[3] == [1, f"Disabling VFs on {card.address}\nCannot obtain unbindLock for {card.address}\n"]
    assert answers[4:6] == [False, False]
    assert answers[6] == [0, f"GPU at {card.address} already has VFs enabled.\n"]
    assert answers[7:15] == ["ok", "ok", "1", "EBUSY", "ok", "0", "ok", "ok"]
    said = [line for line in answers[15] if "UnbindLock" in line]
    assert said == [
        "NVRM: Could not acquire UnbindLock", "NVRM: Could not acquire UnbindLock",
        "NVRM: UnbindLock acquired", "NVRM: UnbindLock released",
    ]  # fmt: skip
    _off, on, driver = do(
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["program", SRIOV_MANAGE, "-e", card.address],
        ["link", f"{DEVICES}/{card.function(0)}/driver"],
    )
    assert (on, driver) == ([0, f"Enabling VFs on {card.address}\n"], "nvidia")


def test_vfs_outlive_the_driver_of_their_card_without_one_of_their_own(cards: dict[str, Card], do: Do) -> None:
    """[3.1] As after an unload of the driver; a new id of pci-pf-stub then claims them, as they have their PF's."""
    card = cards["vf-profile"]
    vendor, device = card.keys["device"].split(":")
    first, last = (f"{DEVICES}/{card.function(number)}" for number in (0, card.total_vfs - 1))
    nvidia, stub = "/sys/bus/pci/drivers/nvidia", "/sys/bus/pci/drivers/pci-pf-stub"
    answers = do(
        ["write", f"{nvidia}/unbind", card.address],
        ["write", f"{nvidia}/bind", card.address],
        ["read", f"{card.path}/sriov_numvfs"],
        ["exists", f"{first}/driver"],
        ["exists", f"{last}/driver"],
        ["program", "/sbin/modprobe", "pci-pf-stub"],
        ["write", f"{stub}/new_id", f"{vendor} {device}"],
        ["write", f"{stub}/new_id", f"{vendor} {device}"],
        ["link", f"{last}/driver"],
        ["write", f"{stub}/remove_id", f"{vendor} {device}"],
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["program", SRIOV_MANAGE, "-e", card.address],
        ["link", f"{last}/driver"],
        ["exists", f"{last}/nvidia/current_vgpu_type"],
        ["log"],
    )
    assert answers[:5] == ["ok", "ok", card.keys["vfs"], False, False]
    assert answers[6:10] == ["ok", "EEXIST", "pci-pf-stub", "ok"]
    assert answers[12:14] == ["nvidia", True]
    assert any("driver left SR-IOV enabled after remove" in line for line in answers[14])


# Section 8.2: plain SR-IOV


def test_a_plain_card_takes_any_count_of_vfs_and_the_kernel_refuses_the_rest(plain: Card, do: Do) -> None:
    """[1.1], [8.2] Its driver has sriov_configure; from one count to another the way leads over 0."""
    path = f"{plain.path}/sriov_numvfs"
    answers = do(
        ["read", f"{plain.path}/sriov_totalvfs"],
        ["write", path, str(plain.total_vfs + 1)],
        ["write", path, "many"],
        ["write", path, "0"],
        ["write", path, "2"],
        ["write", path, "2"],
        ["write", path, "3"],
        ["log"],
        ["write", path, "0"],
        ["write", path, "3"],
        ["read", path],
        ["exists", f"{plain.path}/virtfn2"],
        ["exists", f"{plain.path}/virtfn3"],
    )
    assert answers[:7] == [plain.keys["vfs"], "ERANGE", "EINVAL", "ok", "ok", "ok", "EBUSY"]
    assert any(line.endswith("2 VFs already enabled. Disable before enabling 3 VFs") for line in answers[7])
    assert answers[8:] == ["ok", "ok", "3", True, False]


def test_a_plain_card_and_its_vfs_are_intels_and_offer_no_types(plain: Card, do: Do) -> None:
    """[1.1], [8.2]"""
    vendor, device = plain.keys["device"].split(":")
    vfs = [f"{DEVICES}/{plain.function(number)}" for number in range(4)]
    enabled, *answers = do(
        ["write", f"{plain.path}/sriov_numvfs", "4"],
        *(["read", f"{path}/{name}"] for path in (plain.path, *vfs) for name in ("vendor", "device", "class")),
        ["read", f"{plain.path}/sriov_vf_device"],
        *(["exists", f"{path}/{name}"] for path in (plain.path, vfs[0]) for name in ("nvidia", "mdev_supported_types")),
        ["exists", f"/proc/driver/nvidia/gpus/{plain.address}"],
        *(["link", f"{path}/iommu_group"] for path in (plain.path, *vfs)),
    )
    assert enabled == "ok"
    assert answers[:15] == [f"0x{vendor}", f"0x{device}", f"0x{plain.keys['class']}"] * 5
    assert vendor == "8086"
    assert answers[15:21] == [device, *[False] * 5]
    assert len(set(answers[21:])) == 5, "each function is in an IOMMU group of its own"


def test_the_hosts_driver_takes_vfs_only_while_it_probes_them_itself(plain: Card, do: Do) -> None:
    """[8.2] sriov_drivers_autoprobe."""
    count, autoprobe = f"{plain.path}/sriov_numvfs", f"{plain.path}/sriov_drivers_autoprobe"
    driver = f"{DEVICES}/{plain.function(0)}/driver"
    answers = do(
        ["link", f"{plain.path}/driver"],
        ["write", count, "1"],
        ["link", driver],
        ["write", count, "0"],
        ["write", autoprobe, "0"],
        ["write", count, "1"],
        ["exists", driver],
        ["write", "/sys/bus/pci/drivers_probe", plain.function(0)],
        ["exists", driver],
    )
    assert answers == ["xe", "ok", "xe", "ok", "ok", "ok", False, "ok", False]


def test_a_plain_vf_goes_to_vfio_pci_is_reset_and_comes_back(plain: Card, do: Do) -> None:
    """[1.2], [8.2]"""
    function = plain.function(1)
    path = f"{DEVICES}/{function}"
    vendor, device = plain.keys["device"].split(":")
    answers = do(
        ["write", f"{plain.path}/sriov_drivers_autoprobe", "0"],
        ["write", f"{plain.path}/sriov_numvfs", "4"],
        ["write", f"{path}/driver_override", "vfio-pci"],
        ["write", "/sys/bus/pci/drivers_probe", function],
        ["link", f"{path}/driver"],
        ["read", f"{path}/reset_method"],
        ["vfio-open", path, function],
        ["vfio-config", function, 0, 4],
        ["vfio-reset", function],
        ["vfio-close", function],
        ["write", f"{path}/driver_override", "\n"],
        ["write", f"{path}/driver/unbind", function],
        ["exists", f"{path}/driver"],
        ["write", f"{plain.path}/sriov_numvfs", "0"],
    )
    assert answers[:5] == ["ok", "ok", "ok", "ok", "vfio-pci"]
    assert "flr" in answers[5].split()
    assert answers[6:8] == ["ok", vendor[2:] + vendor[:2] + device[2:] + device[:2]]
    assert answers[8:] == ["ok", "ok", "ok", "ok", False, "ok"]


def test_vfs_do_not_outlive_the_driver_of_a_plain_card(plain: Card, do: Do) -> None:
    """[1.1] And without a driver nobody enables any."""
    count = f"{plain.path}/sriov_numvfs"
    _domain, bus, function = plain.function(0).split(":")
    answers = do(
        ["write", count, "2"],
        ["write", "/sys/bus/pci/drivers/xe/unbind", plain.address],
        ["read", count],
        ["exists", f"/proc/bus/pci/{bus}/{function}"],
        ["write", count, "2"],
        ["write", "/sys/bus/pci/drivers/xe/bind", plain.address],
        ["write", count, "2"],
        ["read", count],
    )
    assert answers == ["ok", "ok", "0", False, "ENOENT", "ok", "ok", "2"]


def test_sriov_manage_leaves_a_plain_card_alone(plain: Card, do: Do) -> None:
    """[3.1] It goes through the GPUs of NVIDIA's driver."""
    alone, all_of_them, count, driver = do(
        ["program", SRIOV_MANAGE, "-e", plain.address],
        ["program", SRIOV_MANAGE, "-e", "ALL"],
        ["read", f"{plain.path}/sriov_numvfs"],
        ["link", f"{plain.path}/driver"],
    )
    assert alone[0] == 1
    assert all_of_them[0] == 0
    assert plain.address not in all_of_them[1]
    assert (count, driver) == ("0", "xe")
