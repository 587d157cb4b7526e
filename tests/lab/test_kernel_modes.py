# SPDX-License-Identifier: Apache-2.0
"""MIG, mixed sizes, scheduler and faults in the emulated host's kernel, on boards that have them.

The module is loaded again with a table of other boards, of few VFs, and afterwards with the host's own.
The numbers in brackets are sections of the project's host interface reference; the rules themselves are compared with
the catalogue in tests/unit/lab/test_kernel_rules.py.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.kernel_cards import (
    DEVICES,
    SRIOV_MANAGE,
    UUIDS,
    Card,
    Do,
    complaints,
    current_type,
    mdev_path,
    read_table,
    refusals,
)
from tests.lab.loaded_boards import loaded_boards
from tests.lab_fixtures import KernelHost

pytestmark = [
    pytest.mark.usefixtures("without_libvirtd"),
    pytest.mark.long(
        "tests/lab/agreement/test_agreement.py::test_a_real_kernel_answers_as_the_case_with_mig_says",
        "tests/lab/test_kernel_nvml.py::test_mig_from_mode_to_vgpu_is_one_truth",
        "tests/lab/test_kernel_nvml.py::test_mixed_sizes_and_a_running_vm_are_one_truth",
        "tests/unit/lab/test_kernel_rules.py::test_mixed_sizes_are_taken_at_their_placements_until_no_place_is_left",
        "tests/lab/test_kernel_faults.py::test_faults_are_felt_listed_and_ended_in_one_go",
    ),
]

_IN_USE = "error 19 In use by another client"
_NO_ROOM = "error 23 Insufficient Resources"
_NOT_SUPPORTED = "error 3 Not Supported"


@pytest.fixture(scope="module")
def boards(kernel_host: KernelHost, do: Do) -> Iterator[dict[str, Card]]:
    """An A100 40 GB (types on VFs by profile) and an RTX PRO 6000 (mediated devices)."""
    with loaded_boards(kernel_host, do, "gpu1=a100-40,rtx-pro-6000:mdev-vf", vfs={1: 4, 2: 2}) as table:
        yield read_table(table)


@pytest.fixture
def a100(boards: dict[str, Card], do: Do) -> Card:
    """Without VFs, MIG and mixed sizes."""
    return _plain(boards["vf-profile"], do)


@pytest.fixture
def rtx(boards: dict[str, Card], do: Do) -> Card:
    """Without VFs, MIG and mixed sizes."""
    return _plain(boards["mdev-vf"], do)


@pytest.fixture(scope="module")
def sliced(boards: dict[str, Card], do: Do) -> Card:
    """The A100 with VFs and without MIG, for the tests that leave it so."""
    card = _plain(boards["vf-profile"], do)
    assert do(_enable(card))[0][0] == 0
    return card


def _plain(card: Card, do: Do) -> Card:
    off, *answers = do(
        ["program", SRIOV_MANAGE, "-d", card.address],
        ["control", f"reset {card.address}"],
        ["control", f"mig-mode {card.address} 0"],
        ["control", f"scheduler {card.address} policy=1 arr=0 slice_us=2000 frequency=480"],
    )
    assert off[0] == 0
    assert answers == ["ok", "ok current=0 pending=0 activation=0", "ok"]
    return card


def _type(card: Card, name: str) -> int:
    return next(one.id for one in card.types if one.name.endswith(name))


def _make_anew(card: Card, do: Do) -> None:
    """Cycle the VFs, which a refused lock left without a driver."""
    without, off, on = do(
        ["exists", f"{DEVICES}/{card.function(0)}/driver"],
        ["program", SRIOV_MANAGE, "-d", card.address],
        _enable(card),
    )
    assert (without, off[0], on) == (False, 0, [0, f"Enabling VFs on {card.address}\n"])


def _enable(card: Card) -> list[Any]:
    return ["program", SRIOV_MANAGE, "-e", card.address]


def _words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split())


# Section 5: MIG


def test_an_ampere_boards_mode_waits_for_a_reset_while_somebody_uses_the_gpu(a100: Card, do: Do) -> None:
    """[5.1] NVML's activation status 19; the caller's own open device does not count; a reset needs an idle GPU."""
    address = a100.address
    answers = do(
        ["hold", "/dev/nvidia0"],
        ["control", f"mig-mode {address} 1"],
        ["control", f"mig-mode {address} 0"],
        ["another", f"mig-mode {address} 1"],
        ["another", f"reset {address}"],
        ["state", "process", address],
        ["release", "/dev/nvidia0"],
        ["state", "card", address],
        ["control", f"gi-create {address} 9 -"],
        ["control", f"reset {address}"],
        ["state", "card", address],
    )
    assert answers[:4] == [
        "ok",
        "ok current=1 pending=1 activation=0",
        "ok current=0 pending=0 activation=0",
        "ok current=0 pending=1 activation=19",
    ]
    assert answers[4] == _IN_USE
    assert [_words(line)["gi"] for line in answers[5]] == ["-"]
    assert (_words(answers[7][0])["mig"], _words(answers[7][0])["mig_pending"]) == ("0", "1")
    assert answers[8:10] == [_NOT_SUPPORTED, "ok"]
    assert (_words(answers[10][0])["mig"], _words(answers[10][0])["mig_pending"]) == ("1", "1")


def test_a_later_board_changes_its_mode_at_once_or_not_at_all(rtx: Card, do: Do) -> None:
    """[5.1]"""
    answers = do(
        ["hold", "/dev/nvidia1"],
        ["another", f"mig-mode {rtx.address} 1"],
        ["release", "/dev/nvidia1"],
        ["control", f"mig-mode {rtx.address} 1"],
    )
    assert answers == ["ok", _IN_USE, "ok", "ok current=1 pending=1 activation=0"]


def test_instances_are_made_and_taken_away_with_nvmls_codes(a100: Card, do: Do) -> None:
    """[5.2], [5.4]"""
    at = a100.address
    answers = do(
        ["control", f"gi-create {at} 9 -"],
        ["control", f"mig-mode {at} 1"],
        ["control", f"gi-create {at} 9 -"],
        ["control", f"gi-remaining {at} 19"],
        ["control", f"gi-create {at} 0 -"],
        ["control", f"gi-create {at} 19 7"],
        ["control", f"gi-create {at} 77 -"],
        ["control", f"gi-create {at} 19 2"],
        ["control", f"ci-create {at} 2 0 -"],
        ["control", f"ci-create {at} 2 1 -"],
        ["control", f"ci-remaining {at} 2 0"],
        ["control", f"gi-destroy {at} 2"],
        ["control", f"ci-destroy {at} 2 0"],
        ["control", f"ci-destroy {at} 2 0"],
        ["attach", f"attach {at} 2"],
        ["state", "gi", at],
        ["another", f"gi-destroy {at} 2"],
        ["release", f"attach {at} 2"],
        ["control", f"gi-destroy {at} 2"],
        ["control", f"gi-destroy {at} 2"],
        ["state", "gi", at],
    )
    assert answers[0] == _NOT_SUPPORTED
    assert answers[2:4] == ["ok id=2 start=4", "ok count=4 starts=0,1,2,3"]
    assert answers[4:8] == [_NO_ROOM, "error 2 Invalid Argument", "error 2 Invalid Argument", "ok id=9 start=2"]
    assert answers[8:11] == ["ok id=0 start=0", _NO_ROOM, "ok count=2 starts=1,2"]
    assert answers[11:14] == [_IN_USE, "ok", "error 6 Not Found"]
    assert [_words(line)["in_use"] for line in answers[15]] == ["1", "0"]
    assert answers[16:20] == [_IN_USE, "ok", "ok", "error 6 Not Found"]
    assert answers[20] == ["id=9 profile=19 start=2 size=1 in_use=0 hetero=0"]


def test_a_mig_backed_vgpu_goes_into_a_free_instance_of_its_profile(a100: Card, do: Do) -> None:
    """[2.2.5], [4.1], [5.3] RM's codes: 0x38 for a time-sliced type, 0x40 without a free instance."""
    at = a100.address
    sliced, three, one = (_type(a100, name) for name in ("A100-4C", "A100-3-20C", "A100-1-5C"))
    folder = f"{DEVICES}/{a100.function(0)}/nvidia"
    answers = do(
        ["control", f"mig-mode {at} 1"],
        _enable(a100),
        ["creatable", a100.function(0)],
        ["control", f"mig-mode {at} 0"],
        ["control", f"gi-create {at} 9 -"],
        ["control", f"gi-create {at} 19 -"],
        ["creatable", a100.function(0)],
        ["write", current_type(a100, 0), str(three)],
        ["read", f"{folder}/gpu_instance_id"],
        ["creatable", a100.function(1)],
        ["write", current_type(a100, 1), str(three)],
        ["write", current_type(a100, 1), str(sliced)],
        ["log"],
        ["write", f"{folder}/gpu_instance_id", "7"],
        ["control", f"gi-destroy {at} 2"],
        ["read", f"{DEVICES}/{a100.function(1)}/nvidia/gpu_instance_id"],
        ["write", current_type(a100, 0), "0"],
        ["control", f"gi-destroy {at} 2"],
        ["control", f"creatable {at}"],
    )
    assert answers[2:4] == [[], _IN_USE], "no instance, no type; and VFs keep the mode"
    assert answers[4:6] == ["ok id=2 start=4", "ok id=7 start=0"]
    assert sorted(answers[6]) == sorted([three, one])
    assert answers[7:12] == ["ok", "2", [one], "EIO", "EIO"]
    assert refusals(answers[12]) == [f"NVRM: Failed to add vgpu create request: {code}" for code in ("0x40", "0x38")]
    assert answers[13:19] == ["EIO", _IN_USE, "ENXIO", "ok", "ok", f"ok types={one}"]


def test_an_instance_of_a_blackwell_board_takes_several_mediated_vgpus(rtx: Card, do: Do) -> None:
    """[2.2.5], [5.3] Of one size; or of several at their placements, with mixed sizes in that instance."""
    at = rtx.address
    six, eight = _type(rtx, "DC-1-6Q"), _type(rtx, "DC-1-8Q")

    def create(number: int, kind: int) -> list[Any]:
        function = rtx.function(number)
        return ["write", f"/sys/class/mdev_bus/{function}/mdev_supported_types/nvidia-{kind}/create", UUIDS[number]]

    answers = do(
        ["control", f"mig-mode {at} 1"],
        _enable(rtx),
        ["control", f"gi-create {at} 47 0"],
        create(0, six),
        create(1, eight),
        create(1, six),
        ["read", f"{mdev_path(UUIDS[1])}/nvidia/gpu_instance_id"],
        ["control", f"heterogeneous {at} 1 gi=3"],
        ["write", f"{mdev_path(UUIDS[0])}/remove", "1"],
        ["write", f"{mdev_path(UUIDS[1])}/remove", "1"],
        ["control", f"heterogeneous {at} 1"],
        ["control", f"heterogeneous {at} 1 gi=3"],
        create(0, eight),
        create(1, six),
        ["read", f"{mdev_path(UUIDS[1])}/nvidia/placement_id"],
        ["control", f"placements {at} {six} gi=3"],
        ["state", "vgpu", at],
    )
    assert answers[3:9] == ["ok", "EIO", "ok", "3", _IN_USE, "ok"]
    assert answers[10:15] == [_NOT_SUPPORTED, "ok", "ok", "ok", "12"]
    assert answers[15] == "ok size=6 supported=0,6,12,18 creatable=18"
    assert [_words(line)["gi"] for line in answers[16]] == ["3", "3"]


def test_sriov_manage_takes_instances_and_mixed_sizes_and_leaves_the_mig_mode(a100: Card, rtx: Card, do: Do) -> None:
    """[3.1], [3.3]"""
    answers = do(
        ["control", f"mig-mode {rtx.address} 1"],
        ["control", f"gi-create {rtx.address} 14 -"],
        ["control", f"heterogeneous {a100.address} 1"],
        _enable(a100),
        _enable(rtx),
        ["state", "card", a100.address],
        ["state", "card", rtx.address],
        ["state", "gi", rtx.address],
    )
    assert answers[2] == "ok"
    assert (_words(answers[5][0])["hetero"], _words(answers[5][0])["vfs"]) == ("0", "4")
    assert (_words(answers[6][0])["mig"], answers[7]) == ("1", [])


# Sections 3.3 and 3.4: mixed sizes and the scheduler


def test_mixed_sizes_share_a_gpu_at_their_placement_ids(sliced: Card, do: Do) -> None:
    """[3.3], [4.2] The 40 GB table: 20C at 0 and 20, 10C at 0, 10, 20, 30, 8C at 0, 12, 20, 32."""
    at = sliced.address
    twenty, ten, eight, whole = (_type(sliced, name) for name in ("A100-20C", "A100-10C", "A100-8C", "A100-40C"))
    place = [f"{DEVICES}/{sliced.function(number)}/nvidia/placement_id" for number in range(3)]
    answers = do(
        ["write", current_type(sliced, 0), str(twenty)],
        ["control", f"heterogeneous {at} 1"],
        ["write", current_type(sliced, 0), "0"],
        ["control", f"heterogeneous {at} 1"],
        *(
            ["write", current_type(sliced, number), str(kind)]
            for number, kind in enumerate((ten, twenty, eight, whole))
        ),
        *(["read", path] for path in place),
        ["control", f"placements {at} {eight}"],
        ["write", place[2], "32"],
        ["write", place[2], "12"],
        ["log"],
        ["write", f"{DEVICES}/{sliced.function(2)}/nvidia/vgpu_params", "vgpu-placement-id=11"],
        ["vfio-open", f"{DEVICES}/{sliced.function(2)}", sliced.function(2)],
    )
    assert answers[:4] == ["ok", _IN_USE, "ok", "ok"]
    assert answers[4:8] == ["ok", "ok", "ok", "EIO"]
    assert answers[8:11] == ["0", "20", "12"]
    assert answers[11] == "ok size=8 supported=0,12,20,32 creatable=-"
    assert answers[12:14] == ["EIO", "ok"]
    assert refusals(answers[14]) == [
        "NVRM: Failed to add vgpu create request: 0x1a",
        "NVRM: Failed to set placement id: 0x1a",
    ]
    assert answers[15:] == ["ok", "EIO"], "the VM does not start with a place that it cannot have"
    assert do(["control", f"heterogeneous {at} 0"]) == ["ok"]


def test_the_scheduler_changes_only_while_no_vm_runs_and_not_to_fixed_share_with_mixed_sizes(
    sliced: Card, do: Do
) -> None:
    """[3.4], [3.3]"""
    at, function = sliced.address, sliced.function(0)
    answers = do(
        ["write", current_type(sliced, 0), str(_type(sliced, "A100-8C"))],
        ["vfio-open", f"{DEVICES}/{function}", function],
        ["control", f"scheduler {at} policy=2"],
        ["state", "vgpu", at],
        ["vfio-close", function],
        ["control", f"scheduler {at} policy=2 slice_us=3000"],
        ["log"],
        ["control", f"scheduler {at} policy=4"],
        ["write", current_type(sliced, 0), "0"],
        ["control", f"heterogeneous {at} 1"],
        ["control", f"scheduler {at} policy=3"],
        ["control", f"heterogeneous {at} 0"],
        ["control", f"scheduler {at} policy=3"],
        ["control", f"heterogeneous {at} 1"],
    )
    assert answers[2] == _IN_USE
    assert int(_words(answers[3][0])["vm_pid"]) > 0
    assert answers[5] == "ok"
    assert f"NVRM: GPU at {at} has software scheduler ENABLED with policy EQUAL_SHARE." in answers[6]
    assert answers[7] == "error 2 Invalid Argument"
    assert answers[9:] == ["ok", _NOT_SUPPORTED, "ok", "ok", _NOT_SUPPORTED]


# Faults


def test_faults_come_and_go_as_they_are_asked_for(sliced: Card, do: Do) -> None:
    """[3.1], [4.2], [9.6]"""
    at, lock = sliced.address, f"/proc/driver/nvidia/gpus/{sliced.address}/unbindLock"
    eight = str(_type(sliced, "A100-8C"))
    answers = do(
        ["control", f"fault {at} refuse 0x1a"],
        ["write", current_type(sliced, 0), eight],
        ["log"],
        ["control", f"fault {at} refuse 0"],
        ["write", current_type(sliced, 0), eight],
        ["control", f"fault {at} removal-delay 60000"],
        ["vfio-open", f"{DEVICES}/{sliced.function(0)}", sliced.function(0)],
        ["vfio-close", sliced.function(0)],
        ["write", current_type(sliced, 0), "0"],
        ["control", f"fault {at} removal-delay 0"],
        ["write", current_type(sliced, 0), "0"],
        ["control", f"fault {at} unbind-lock 1"],
        ["write", lock, "1"],
        ["read", lock],
        ["control", f"fault {at} unbind-lock 0"],
        ["control", f"fault {at} busy 1"],
        ["program", SRIOV_MANAGE, "-d", at],
        ["control", f"reset {at}"],
        ["control", f"fault {at} busy 0"],
        ["control", f"fault {at} nothing 1"],
    )
    assert answers[1] == "EIO"
    assert refusals(answers[2]) == ["NVRM: Failed to add vgpu create request: 0x1a"]
    assert answers[4] == "ok"
    assert answers[8:11] == ["EPERM", "ok", "ok"]
    assert answers[13] == "0"
    assert answers[16][1].endswith(f"Cannot obtain unbindLock for {at}\n")
    assert answers[17:] == [_IN_USE, "ok", "EINVAL"]
    _make_anew(sliced, do)


def test_a_gpu_that_fell_off_the_bus_answers_nothing_until_it_is_back(sliced: Card, do: Do) -> None:
    """Xid 79, configuration space of ones, NVML's code 15; Xids and ECC errors are counted."""
    at, config = sliced.address, f"{sliced.path}/config"
    answers = do(
        ["control", f"fault {at} fallen 1"],
        ["config", config],
        ["hold", "/dev/nvidia0"],
        ["control", f"creatable {at}"],
        ["program", SRIOV_MANAGE, "-d", at],
        ["log"],
        ["control", f"fault {at} fallen 0"],
        ["config", config],
        ["control", f"fault {at} ecc 3"],
        ["state", "card", at],
        ["control", f"fault {at} xid 31"],
        ["log"],
        ["state", "card", at],
    )
    assert answers[:4] == ["ok", "ffffffff", "EIO", "error 15 GPU is lost"]
    assert answers[4][1].endswith(f"Cannot obtain unbindLock for {at}\n")
    assert any("Xid" in line and " 79, " in line for line in answers[5])
    assert answers[7] == "de10f120"
    assert (_words(answers[9][0])["ecc_errors"], _words(answers[9][0])["retired_pages"]) == ("3", "3")
    assert any("Xid" in line and " 31, " in line for line in answers[11])
    assert _words(answers[12][0])["last_xid"] == "31"
    _make_anew(sliced, do)


def test_only_root_changes_anything(boards: dict[str, Card], kernel_host: KernelHost) -> None:
    """[5.4] NVML_ERROR_NO_PERMISSION; reading is for all."""
    ask = (
        "import os; f = os.open('/proc/vgpulab/control', os.O_RDWR); os.write(f, b'{}');"
        " print(os.read(f, 99).decode(), end='')"
    )
    at = boards["vf-profile"].address
    commands = [ask.format(f"reset {at}"), ask.format(f"creatable {at}")]
    texts = " && ".join(f'su operator -c "python3 -I -S -c \\"{text}\\""' for text in commands)
    code, output, errors = kernel_host.run(texts)
    assert code == 0, errors
    assert output.splitlines()[0] == "error 4 Insufficient Permissions"
    assert output.splitlines()[1].startswith("ok types=")


def test_the_kernel_is_sound_after_all_of_this(boards: dict[str, Card], do: Do) -> None:
    assert boards
    assert complaints(do) == []
