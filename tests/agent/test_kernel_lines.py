# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel's log that name a GPU, as every reader of the log sees them."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.facts import health
from vgpuctl.agent.kernel_lines import XidLine, read_xid
from vgpuctl.agent.readings import xids
from vgpuctl.agent.recording.texts import is_wanted_line, keep_of_kernel_line

BUS = PF.rpartition(".")[0]
# Every form of the bracket that drivers have printed, and what a later driver may add.
BRACKETS = (
    f"PCI:{BUS}",
    f"PCI:{BUS}.0",
    f"PCI:0000{BUS}",
    f"PCI:0000{BUS}.0",
    f"PCI:{BUS.upper()}",
    BUS,
    f"PCI:{BUS} GPU-I:05",
    f"PCI:{BUS} GPU-I:05 GPU-CI:00",
    f"PCI:{BUS}.0 GPU-I:11 GPU-CI:02",
    f"PCI:0000{BUS} GPU-I:05",
    f"{BUS} GPU-I:05",
    f"PCI:{BUS} GPU-CI:01",
    f"PCI: {BUS}",
    f"PCI:{BUS} GPU-I:05 GPU-CI:00 VF:07",
)
# Lines that speak of an Xid, or of what looks like one.
TWINS = (
    "NVRM: Xid is a word",
    f"nvidia-nvswitch3: SXid (PCI:{BUS}.0): 12028, Fatal, Link 32 egress non-posted PRIV error",
    f"usb 1-1: Product: NVRM: Xid (PCI:{BUS}): 79, GPU has fallen off the bus.",
    f"NVRM: Xid (PCI:{BUS}):",
    f"NVRM: Xid (PCI:{BUS}7): 79, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:41:00): 79, GPU has fallen off the bus.",
    f"NVRM: GPU at PCI:{BUS}: GPU-0b3b8ad5-2a01-4b5e-9b0a-000000000001",
)


def log(simulated: Machine, *lines: str, facility: int = 0) -> None:
    first = facility << 3 | 3
    body = "".join(f"{first},{number},{number * 1000 + 1000},-;{line}\n" for number, line in enumerate(lines))
    (simulated.files.root / "dev/kmsg").write_text(body)


@pytest.mark.parametrize("bracket", BRACKETS)
def test_every_form_of_the_bracket_is_an_xid_to_every_reader(bracket: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    line = f"NVRM: Xid ({bracket}): 94, pid=7194, name=secret, Contained: CE User Channel (0x9)"
    log(simulated, line)
    assert read_xid(line) == XidLine(BUS, 94, "pid=7194, name=secret, Contained: CE User Channel (0x9)")
    [gpu] = health.read(simulated.host).gpus
    assert [(one.code, one.text[:8]) for one in gpu.xids] == [(94, "pid=7194")]
    assert xids.count(simulated.host, "boot").of(PF) == {("94", "restart-app"): 1}
    assert is_wanted_line(line)
    assert read_xid(keep_of_kernel_line(line)) == XidLine(
        BUS, 94, "pid=7194, name=hidden, Contained: CE User Channel (0x9)"
    )


@pytest.mark.parametrize("text", ["", ",", ", GPU has fallen off the bus."])
def test_an_xid_needs_no_words_after_its_code(text: str) -> None:
    found = read_xid(f"NVRM: Xid (PCI:{BUS} GPU-I:05): 79{text}")
    assert found is not None and (found.code, found.text) == (79, text.lstrip(", "))


@pytest.mark.parametrize("line", TWINS)
def test_what_only_speaks_of_an_xid_is_none_to_any_reader(line: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    log(simulated, line)
    [gpu] = health.read(simulated.host).gpus
    assert gpu.xids == () and xids.count(simulated.host, "boot").of(PF) == {}


def test_an_xid_that_a_program_wrote_is_none_to_any_reader(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    log(simulated, f"NVRM: Xid (PCI:{BUS}): 79, forged", facility=1)
    [gpu] = health.read(simulated.host).gpus
    assert gpu.xids == () and xids.count(simulated.host, "boot").of(PF) == {}


FAILED = (
    # One message of the driver in several lines, as the kernel escapes it.
    (
        rf"NVRM: The NVIDIA GPU {PF}\x0aNVRM: (PCI ID: 10de:2235) installed in this system has\x0a"
        "NVRM: fallen off the bus and is not responding to commands.",
    ),
    # The same by a kernel that logs each line alone, and as one line.
    (
        f"NVRM: The NVIDIA GPU {PF}",
        "NVRM: (PCI ID: 10de:2235) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ),
    (f"NVRM: The NVIDIA GPU {PF} (PCI ID: 10de:2235) installed in this system has fallen off the bus.",),
    (f"NVRM: GPU {PF}: GPU has fallen off the bus.",),
    (f"NVRM: GPU at PCI:{PF}: has fallen off the bus.",),
    (f"NVRM: GPU {PF}: RmInitAdapter failed! (0x62:0x65:2028)",),
    (f"NVRM: GPU {PF}: rm_init_adapter failed, device minor number 0",),
    (f"nvidia {PF}: probe with driver nvidia failed with error -1",),
    (f"nvidia: probe of {PF} failed with error -1",),
    (f"xe {PF}: probe with driver xe failed with error -110",),
    (f"amdgpu: probe of {PF} failed with error -22",),
    (f"amdgpu {PF}: amdgpu: Fatal error during GPU init",),
    (f"xe {PF}: [drm] *ERROR* CRITICAL: Xe has declared device {PF} as wedged.",),
    (f"NVRM: BAR1 is 0M @ 0x0 (PCI:{PF})", f"nvidia {PF}: probe with driver nvidia failed with error -1"),
)
WELL = (
    (f"NVRM: Xid (PCI:{BUS}): 79, GPU has fallen off the bus.",),
    (f"NVRM: GPU at PCI:{PF}: GPU-0b3b8ad5-2a01-4b5e-9b0a-000000000001",),
    (f"nvidiafb: probe of {PF} failed with error -22",),
    (f"nouveau {PF}: probe with driver nouveau failed with error -38",),
    (f"snd_hda_intel {BUS}.1: probe with driver snd_hda_intel failed with error -2",),
    ("nvidia 0000:99:00.0: probe with driver nvidia failed with error -1",),
    (
        rf"NVRM: The NVIDIA GPU {PF} (PCI ID: 10de:1b06)\x0aNVRM: installed in this system is not supported by open\x0a"
        r"NVRM: nvidia.ko because it does not include the required GPU\x0aNVRM: System Processor (GSP).",
        f"nvidia {PF}: probe with driver nvidia failed with error -1",
    ),
    (
        f"NVRM: The NVIDIA GPU {PF} (PCI ID: 10de:1b06)",
        "NVRM: installed in this system is supported through the NVIDIA 470.xx",
        "NVRM: Legacy drivers. Please visit http://www.nvidia.com/object/unix.html",
        f"nvidia: probe of {PF} failed with error -1",
    ),
    ("NVRM: GPU has fallen off the bus.", "NVRM: The NVIDIA probe routine failed for 1 device(s)."),
    (f"NVRM: The NVIDIA GPU {PF}", "usb 1-1: new device", "NVRM: fallen off the bus"),
)


def found_in(simulated: Machine, lines: tuple[str, ...]) -> list[str]:
    log(simulated, *lines)
    [gpu] = health.read(simulated.host).gpus
    return [one.text for one in gpu.driver_failures]


@pytest.mark.parametrize("lines", FAILED)
def test_a_driver_that_gives_a_card_up_without_an_xid_is_told_of_the_card(
    lines: tuple[str, ...], tmp_path: Path
) -> None:
    simulated = Machine(tmp_path, "a40")
    [text] = found_in(simulated, lines)
    assert "\\x0a" not in text and any(word in text for word in ("fallen off", "ailed", "Fatal", "wedged"))
    assert all(is_wanted_line(line) for line in lines if "probe" in line or "wedged" in line or "Fatal" in line)


@pytest.mark.parametrize("lines", WELL)
def test_lines_about_other_cards_and_of_drivers_that_only_try_are_no_failure(
    lines: tuple[str, ...], tmp_path: Path
) -> None:
    assert found_in(Machine(tmp_path, "a40"), lines) == []
