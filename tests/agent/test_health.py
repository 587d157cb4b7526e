# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs: each value as the machine has it, and a sentence for each that could not be read."""

from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts import health
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Request, reply_from_json, reply_to_json
from vgpuctl.agent.wire.health import OFF_THE_BUS, Bar, EccErrors, GpuHealth, HostHealth, RemappedRows, RetiredPages

IDS = bytes.fromhex("de103522")


def config(*registers: int) -> bytes:
    """The header of an A40's config space with these BAR registers."""
    header = bytearray(64)
    header[:4] = IDS
    for number, value in enumerate(registers):
        header[0x10 + 4 * number : 0x14 + 4 * number] = value.to_bytes(4, "little")
    return bytes(header)


def read_tree(folder: Path, header: bytes, files: machine.ReadableTree | None = None) -> HostHealth:
    """The health of a host with an A40 that has this config space."""
    root = machine.build(folder / "root", machine.BASE, machine.a40(driver="vfio-pci"), files or {})
    (root / machine.device_path(PF).lstrip("/") / "config").write_bytes(header)
    return health.read(Host(str(root)))


def of_fault(folder: Path, kind: str, value: int = 1, board: str = "a40") -> GpuHealth:
    """The health of a simulated card with a fault."""
    simulated = Machine(folder, board)
    simulated.begin(kind, value)
    [gpu] = health.read(simulated.host).gpus
    return gpu


def test_a_healthy_card_has_every_value(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    reply = answer(simulated.host, Request("health"))
    assert reply_from_json(reply_to_json(reply)) == reply
    assert reply.health is not None
    [gpu] = reply.health.gpus
    assert gpu == GpuHealth(
        address=PF,
        kernel_ids="10de:2235",
        config_ids="10de:2235",
        driver="nvidia",
        bars=tuple(Bar(number, size, True) for number, size in zip((0, 1, 3), simulated.card.bars_bytes, strict=True)),
        reset_methods=("flr", "bus"),
        uuid=simulated.card.uuid,
        vbios="94.02.00.00.00",
        volatile=EccErrors(0, 0),
        aggregate=EccErrors(0, 0),
        remapped=RemappedRows(0, 0, False, False),
    )
    assert reply.health.unread == ()
    assert reply.health.boot_id == simulated.files.state().boot_id


def test_a_card_off_the_bus_has_all_ones_in_its_config_space_and_is_lost_to_nvml(tmp_path: Path) -> None:
    gpu = of_fault(tmp_path, "fallen")
    assert gpu.config_ids == OFF_THE_BUS
    assert [xid.code for xid in gpu.xids] == [79]
    assert any("NVML does not show it" in text for text in gpu.unread)


def test_xids_are_told_with_time_and_text_and_only_of_their_card(tmp_path: Path) -> None:
    lines = (
        "4,1,1000000,-;Linux version 6.1\n"
        "3,2,2500000,-;NVRM: Xid (PCI:0000:41:00): 95, pid=12, name=python, Uncontained\n"
        "3,3,3500000,-;NVRM: Xid (PCI:0000:41:00.0): 154, GPU recovery action changed from 0x0 (None) to 0x1\n"
        "3,4,4500000,-;NVRM: Xid (PCI:0000:42:00): 79, another card\n"
        "3,5,5500000,-;nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Fatal\n"
    )
    found = read_tree(tmp_path, config(0xA0000000, 0xC, 0x3820), {"/dev/kmsg": lines})
    assert found.log_begins_s == 1.0
    assert [(xid.code, xid.at_s, xid.text) for xid in found.gpus[0].xids] == [
        (95, 2.5, "pid=12, name=python, Uncontained"),
        (154, 3.5, "GPU recovery action changed from 0x0 (None) to 0x1"),
    ]


def test_a_guest_that_floods_the_log_with_its_own_xids_hides_no_other(tmp_path: Path) -> None:
    flood = (
        f"3,{2 + number},{3000000 + number},-;NVRM: Xid (PCI:0000:41:00): 31, MMU Fault\n" for number in range(500)
    )
    lines = "".join(["3,1,2500000,-;NVRM: Xid (PCI:0000:41:00): 119, Timeout waiting for RPC\n", *flood])
    xids = read_tree(tmp_path, config(0xA0000000, 0xC, 0x3820), {"/dev/kmsg": lines}).gpus[0].xids
    assert [xid.code for xid in xids] == [119, *[31] * 64]
    assert xids[-1].at_s == 3.000499


def test_a_log_that_is_hidden_is_said_and_not_taken_for_silence(tmp_path: Path) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, machine.a40(driver="vfio-pci"))
    (root / "dev/kmsg").unlink()
    found = health.read(Host(str(root)))
    assert found.unread == ("the kernel's log /dev/kmsg cannot be read, so Xids are unknown",)


@pytest.mark.parametrize(
    ("registers", "assigned"),
    [
        ((0xA0000000, 0xC, 0x3820), [True, True]),
        ((0, 0xC, 0x3820), [False, True]),
        ((0xA0000000, 0xC, 0), [True, False]),
    ],
    ids=["as the kernel set them", "the first one is lost", "the upper half of the second is lost"],
)
def test_a_bar_counts_as_assigned_while_its_register_has_an_address(
    registers: tuple[int, ...], assigned: list[bool], tmp_path: Path
) -> None:
    [gpu] = read_tree(tmp_path, config(*registers)).gpus
    assert [bar.is_assigned for bar in gpu.bars] == assigned
    assert [bar.size_bytes for bar in gpu.bars] == [1 << 24, 1 << 36]


def test_a_bar_that_the_kernel_could_not_place_is_not_assigned(tmp_path: Path) -> None:
    assert [bar.is_assigned for bar in of_fault(tmp_path, "bar-unassigned").bars] == [False, True, True]


def test_a_config_space_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    [gpu] = read_tree(tmp_path, IDS).gpus
    assert gpu.config_ids is None
    assert gpu.unread == (f"{PF}: /sys/bus/pci/devices/{PF}/config ends after 4 bytes",)


def test_memory_errors_are_counted(tmp_path: Path) -> None:
    gpu = of_fault(tmp_path, "ecc", 3)
    assert (gpu.volatile, gpu.aggregate) == (EccErrors(0, 3), EccErrors(0, 3))


@pytest.mark.parametrize(
    ("kind", "board", "rows", "pages"),
    [
        ("row-remap-pending", "a40", RemappedRows(0, 1, True, False), None),
        ("row-remap-failed", "a40", RemappedRows(0, 1, False, True), None),
        ("pages-retired", "t4", None, RetiredPages(0, 1, True)),
        ("pages-retired", "a40", RemappedRows(0, 0, False, False), None),
    ],
)
def test_rows_are_remapped_from_ampere_on_and_pages_retired_before(
    kind: str, board: str, rows: RemappedRows | None, pages: RetiredPages | None, tmp_path: Path
) -> None:
    gpu = of_fault(tmp_path, kind, board=board)
    assert (gpu.remapped, gpu.retired, gpu.unread) == (rows, pages, ())


def test_another_firmware_has_another_version(tmp_path: Path) -> None:
    assert of_fault(tmp_path, "vbios-changed").vbios == "94.02.00.01.00"


def test_a_card_without_reset_has_no_method(tmp_path: Path) -> None:
    assert of_fault(tmp_path, "no-reset").reset_methods == ()


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("nvmlDeviceGetRemappedRows", 999, "NVML does not tell the remapped rows: Unknown Error (NVML 999)"),
        ("nvmlDeviceGetTotalEccErrors", 4, "NVML does not tell the volatile memory errors"),
        ("nvmlDeviceGetRemappedRows", 3, None),
    ],
    ids=["an odd code", "no permission", "not supported"],
)
def test_what_nvml_refuses_is_said_unless_the_card_does_not_have_it(
    function: str, code: int, said: str | None, tmp_path: Path
) -> None:
    simulated = Machine(tmp_path, "a40")
    place = simulated.files.root / "etc/vgpulab/nvml_codes"
    place.parent.mkdir(parents=True)
    place.write_text(f"{function} {code}\n")
    [gpu] = health.read(simulated.host).gpus
    assert any(said in text for text in gpu.unread) if said else gpu.unread == ()


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "reset-required")])
def test_nvml_says_that_a_card_is_lost_or_needs_a_reset(code: int, state: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    place = simulated.files.root / "etc/vgpulab/nvml_codes"
    place.parent.mkdir(parents=True)
    place.write_text(f"nvmlDeviceGetVbiosVersion {code}\n")
    assert health.read(simulated.host).gpus[0].nvml_state == state


@pytest.mark.parametrize(
    ("words", "scrubs"),
    [("", True), ("RMDisableScrubOnFree=0", True), ("foo=1;RMDisableScrubOnFree=0x1", False)],
)
def test_a_driver_that_does_not_clear_freed_memory_is_found(words: str, scrubs: bool, tmp_path: Path) -> None:
    files = {"/proc/driver/nvidia/params": f'EnableMSI: 1\nRegistryDwords: "{words}"\n'}
    assert read_tree(tmp_path, config(0xA0000000, 0xC, 0x3820), files).scrubs_memory is scrubs


def test_without_nvidias_driver_nobody_knows_of_clearing(tmp_path: Path) -> None:
    assert read_tree(tmp_path, config(0xA0000000, 0xC, 0x3820)).scrubs_memory is None
