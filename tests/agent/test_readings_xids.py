# SPDX-License-Identifier: Apache-2.0
"""Xids as a counter: kept on the host by the number of the kernel's message, whoever reads and whatever floods."""

import json
import threading
from pathlib import Path

import pytest

from tests.agent.measured import gpu_of, play, read
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.readings import xids
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

BOOT = "boot-1"
BUS = PF.rpartition(".")[0]


def line(code: int, text: str = "pid=1, name=python, Ch 00000000", bus: str = BUS) -> str:
    """The driver's message for an Xid."""
    return f"NVRM: Xid (PCI:{bus}): {code}, {text}"


def records(simulated: Machine, *texts: str, first: int = 0, facility: int = 0) -> None:
    """Replace the kernel's log by messages with numbers from `first` on."""
    prefix = facility << 3 | 3
    body = "".join(f"{prefix},{first + number},{number * 1000},-;{text}\n" for number, text in enumerate(texts))
    (simulated.files.root / "dev/kmsg").write_text(body)


def another_agent(simulated: Machine) -> SimulatedHost:
    """A second agent process on the same machine."""
    return SimulatedHost(str(simulated.files.folder))


def counted(host: SimulatedHost, boot: str = BOOT) -> dict[tuple[str, str], int]:
    return xids.count(host, boot).of(PF)


def test_xids_are_counted_by_code_and_class(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(
        simulated,
        line(31),
        line(31),
        line(79, "GPU has fallen off the bus."),
        line(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        line(999),
        line(45, bus="0000:99:00"),
        "NVRM: Xid is a word",
        "usb 1-1: new device",
    )
    assert counted(simulated.host) == {
        ("31", "restart-app"): 2,
        ("79", "restart-bm"): 1,
        ("154", "restart-bm"): 1,
        ("999", "contact-support"): 1,
    }


def test_a_second_reading_counts_nothing_twice_and_a_new_xid_once(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    simulated.begin("xid", 31)
    assert gpu_of(simulated).get("xid", "31", "restart-app") == 1
    assert gpu_of(simulated).get("xid", "31", "restart-app") == 1
    simulated.begin("xid", 31)
    assert gpu_of(simulated).get("xid", "31", "restart-app") == 2


def test_several_agents_count_each_message_once(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    first, second = another_agent(simulated), another_agent(simulated)
    for number in range(1, 6):
        simulated.begin("xid", 13)
        assert counted(first if number % 2 else second) == {("13", "restart-app"): number}
    assert counted(another_agent(simulated)) == {("13", "restart-app"): 5}


def test_agents_at_the_same_time_count_each_message_once(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, *(line(43) for _ in range(500)))
    found: list[dict[tuple[str, str], int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(counted(another_agent(simulated))))  # each a process of its own
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{("43", "ignore"): 500}] * 4


def test_the_counts_outlive_the_ring_and_tell_what_was_lost(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, line(31), line(31))
    assert counted(simulated.host) == {("31", "restart-app"): 2}
    # The ring went round: messages 2 to 9 were overwritten before anybody read them.
    records(simulated, line(48), first=10)
    found = xids.count(another_agent(simulated), BOOT)
    assert found.of(PF) == {("31", "restart-app"): 2, ("48", "workflow-48"): 1}
    assert found.lost == 8
    assert xids.count(another_agent(simulated), BOOT).lost == 0


def test_lost_messages_are_said(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, "one")
    read(simulated)
    records(simulated, "two", first=5)
    simulated.host = another_agent(simulated)
    said = read(simulated).unread
    assert said == (
        "4 messages of the kernel's log were overwritten before anybody read them; they may have been Xids",
    )


def test_a_reboot_starts_from_nothing(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, *(line(31) for _ in range(5)))
    assert counted(simulated.host) == {("31", "restart-app"): 5}
    records(simulated, line(31))
    assert counted(simulated.host, "boot-2") == {("31", "restart-app"): 1}


def test_what_a_program_of_the_host_writes_is_no_xid(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, line(79), facility=1)
    assert counted(simulated.host) == {}


def test_a_flood_of_codes_and_gpus_is_bounded(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    codes = [line(code) for code in range(1000, 2000)]
    records(simulated, *codes, *(line(31, bus=f"0000:{bus:02x}:{slot:02x}") for bus in range(8) for slot in range(16)))
    found = xids.count(simulated.host, BOOT)
    assert len(found.of(PF)) == 257
    assert found.of(PF)[xids.OTHER, "contact-support"] == 1000 - 256
    assert len(found.counts) == 64
    assert len((simulated.files.root / "run/vgpuctl/xids.json").read_bytes()) < 65_536


def test_a_flood_of_one_code_is_read_in_parts(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, *(line(31) for _ in range(60_000)))
    # As many lines as a reading takes, and those that came with the last of them.
    assert 50_000 <= counted(simulated.host)["31", "restart-app"] < 51_000
    assert counted(simulated.host) == {("31", "restart-app"): 60_000}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"boot_id": "boot-1"}',
        '{"boot_id": "boot-1", "last": "x", "counts": {}, "driver_loaded_at_s": 0}',
        '{"boot_id": "boot-1", "last": 0, "counts": {"0000:41:00": [1]}, "driver_loaded_at_s": null}',
    ],
)
def test_counts_that_cannot_be_read_are_counted_anew(text: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    records(simulated, line(31))
    counted(simulated.host)
    (simulated.files.root / "run/vgpuctl/xids.json").write_text(text)
    assert counted(another_agent(simulated)) == {("31", "restart-app"): 1}
    assert json.loads((simulated.files.root / "run/vgpuctl/xids.json").read_text())["boot_id"] == BOOT


def test_a_hidden_log_is_said_and_hides_no_other_measure(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    (simulated.files.root / "dev/kmsg").unlink()
    readings = read(simulated)
    assert readings.unread == ("Xids are not counted: the kernel's log /dev/kmsg cannot be read",)
    [gpu] = readings.gpus
    assert gpu.measured.why_missing("xid") == "not-readable: the kernel's log cannot be read"
    assert gpu.measured.get("power_watts") is not None


def test_a_folder_that_cannot_be_made_is_a_problem_with_a_way_out(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    (simulated.files.root / "run/vgpuctl").write_text("a file")
    with pytest.raises(Problem) as refused:
        counted(simulated.host)
    assert refused.value.path == "/run/vgpuctl"
    assert "cannot be kept" in refused.value.message


def test_the_lab_logs_the_xids_of_a_scenario_when_they_are_due(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    play(simulated, f"gpu:{PF} xid/31 0 0:0 100:10", f"gpu:{PF} xid/119 0 0:0 1000:0 1001:1", began_s=55)
    assert gpu_of(simulated).all("xid") == ((("31", "restart-app"), 5.0),)
    assert gpu_of(simulated).all("xid") == ((("31", "restart-app"), 5.0),)
    with simulated.files.change() as state:
        state.skipped_s += 1000
    found = dict(gpu_of(simulated).all("xid"))
    assert found == {("31", "restart-app"): 10, ("119", "reset-gpu"): 1}
