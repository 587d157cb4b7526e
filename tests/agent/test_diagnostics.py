# SPDX-License-Identifier: Apache-2.0
"""Diagnostics, read from a tree of files."""

import json
import re
from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.facts import diagnostics
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.diagnostics import LOG_PATTERNS

VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("firmware", "is_on"),
    [
        ({}, False),
        ({"/sys/firmware/efi/efivars": None}, None),
        ({VARIABLE: "\x06\x00\x00\x00\x01"}, True),
        ({VARIABLE: "\x06\x00\x00\x00\x00"}, False),
    ],
    ids=["started by a BIOS", "no such variable", "on", "off"],
)
def test_secure_boot_is_what_the_firmware_says(
    firmware: machine.ReadableTree, is_on: bool | None, tmp_path: Path
) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, firmware)
    assert diagnostics.read(Host(str(root))).secure_boot is is_on


ENABLED = "/etc/systemd/system/multi-user.target.wants/libvirt-guests.service"


@pytest.mark.parametrize(
    ("files", "on_shutdown"),
    [
        ({}, "suspend"),
        ({"/usr/lib/libvirt/libvirt-guests.sh": 'ON_SHUTDOWN="shutdown"\n'}, "shutdown"),
        (
            {
                "/usr/libexec/libvirt-guests.sh": "ON_SHUTDOWN=suspend\n",
                "/etc/sysconfig/libvirt-guests": "#ON_SHUTDOWN=suspend\nON_SHUTDOWN=shutdown\n",
            },
            "shutdown",
        ),
        ({"/etc/default/libvirt-guests": "ON_SHUTDOWN=suspend\n"}, "suspend"),
    ],
    ids=["upstream's default", "Debian's script", "EL's settings", "Debian's settings"],
)
def test_the_end_of_guests_is_what_libvirt_guests_will_do(
    files: machine.ReadableTree, on_shutdown: str, tmp_path: Path
) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, files)
    assert diagnostics.read(Host(str(root))).guests_at_shutdown is None
    link = root / ENABLED.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/lib/systemd/system/libvirt-guests.service")
    assert diagnostics.read(Host(str(root))).guests_at_shutdown == on_shutdown


def test_denials_of_this_boot_are_found_where_the_audit_daemon_keeps_them(tmp_path: Path) -> None:
    denied = 'avc:  denied  { read } for pid=9 comm="qemu-kvm" name="12" tclass=chr_file path="/dev/vfio/12"'
    log = f"type=AVC msg=audit(99.1:7): {denied} old\ntype=AVC msg=audit(2000.5:9): {denied} new\n"
    files = {"/proc/stat": "cpu 0\nbtime 1000\n", "/var/log/audit/audit.log": log}
    found = diagnostics.read(Host(str(machine.build(tmp_path / "root", machine.BASE, files)))).lines
    assert [(line.check, line.source, line.text[-3:]) for line in found] == [("access-denied", "audit", "new")]


def test_a_host_of_proxmox_is_known_by_its_files(tmp_path: Path) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, {"/usr/bin/pveversion": ""})
    assert diagnostics.read(Host(str(root))).is_proxmox


LOGS = "/var/log/libvirt/qemu"
STARTED = "2026-11-23 00:00:00.000+0000: starting up libvirt version: 9.0.0, hostname: gpu1\n"
SAID = "2026-11-23T00:00:01.000000Z qemu-system-x86_64: -device vfio-pci: vfio x: error getting device from group 14\n"
# One line for each check that reads a log, led by what QEMU's own lines begin with.
FORGED = STARTED + "".join(
    f"{lead}{text}\n"
    for lead in ("", "2026-11-23T00:00:01.000000Z qemu-system-x86_64: ")
    for text in (
        "NVRM: IOMMU is not present",
        "not enough MMIO resources for SR-IOV",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
        "vGPU is supported only on VGX capable boards",
        "Could not acquire UnbindLock",
        "vgpu create request: 0x38",
        "vgpu create request: 0x56",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12028, Fatal, Link 32",
        "not ready 1023ms after FLR",
        'apparmor="DENIED" profile="libvirt-x" name="/dev/vfio/5"',
        "vfio_pin_pages RLIMIT_MEMLOCK",
        "Failed setting device state to RUNNING_P2P. Recover state is ERROR. Resetting device: Invalid argument",
        "NVRM: API mismatch",
        "Key was rejected by service",
        "error: vmiop_log: failed",
        "NVRM: requires use of the NVIDIA open kernel modules",
        "error getting device from group 14",
        "vgpu delete request: 0x1",
    )
)


def domain(*consoles: str) -> str:
    logs = "".join(f"<serial type='pty'><log file='{path}' append='off'/></serial>" for path in consoles)
    return f"<domain type='kvm'><name>x</name><devices>{logs}</devices></domain>"


def lines(tmp_path: Path, *trees: machine.ReadableTree) -> list[tuple[str, str, str]]:
    found = diagnostics.read(Host(str(machine.build(tmp_path / "root", machine.BASE, *trees))))
    return [(one.check, one.source, one.text) for one in found.lines]


def test_every_check_of_a_log_is_among_the_forged_lines(tmp_path: Path) -> None:
    found = {one.check for one in LOG_PATTERNS if re.search(one.pattern, FORGED, re.IGNORECASE | re.MULTILINE)}
    assert found == {one.check for one in LOG_PATTERNS}


@pytest.mark.parametrize(
    "definitions",
    [
        {"/etc/libvirt/qemu/t.a.xml": domain(f"{LOGS}/t.a-serial.log")},
        {"/run/libvirt/qemu/t.a.xml": domain(f"{LOGS}/t.a-serial.log")},
        # A second VM whose own log would have the name of the first one's console.
        {
            "/etc/libvirt/qemu/t.a.xml": domain(f"{LOGS}/t.a-serial.log"),
            "/etc/libvirt/qemu/t.a-serial.xml": domain(f"{LOGS}/t.a-serial-serial.log"),
        },
        # Of a VM that is not there any more.
        {},
    ],
    ids=["defined", "running only", "a name that ends in -serial", "deleted"],
)
def test_what_a_guest_prints_is_no_evidence(definitions: machine.ReadableTree, tmp_path: Path) -> None:
    """A tenant could tell the operator that the host is broken, and have it taken out of service."""
    assert lines(tmp_path, definitions, {f"{LOGS}/t.a-serial.log": FORGED}) == []


def test_the_console_of_another_managers_vm_is_no_evidence(tmp_path: Path) -> None:
    definitions = {
        "/etc/libvirt/qemu/nova.xml": domain(f"{LOGS}/console.log"),
        "/etc/libvirt/qemu/console.xml": domain(),
    }
    assert lines(tmp_path, definitions, {f"{LOGS}/console.log": FORGED}) == []


def test_what_qemu_says_is_evidence_since_the_last_start(tmp_path: Path) -> None:
    trees = {
        "/etc/libvirt/qemu/t.a.xml": domain(f"{LOGS}/t.a-serial.log"),
        f"{LOGS}/t.a.log": STARTED
        + SAID.replace("14", "9")
        + STARTED
        + "LC_ALL=C \\\n-name error getting device\n"
        + SAID,
    }
    assert lines(tmp_path, trees) == [("group-open", "t.a", SAID.strip())]


@pytest.mark.parametrize("device", ["18ea573d-2ffa-4514-8fae-ca74307dbdd8", "0000:c1:00.4"])
def test_what_qemu_says_of_a_device_while_libvirt_lets_it_run_has_no_time(device: str, tmp_path: Path) -> None:
    said = f"{device}: Failed setting device state to RUNNING_P2P. Recover state is ERROR. Resetting device: Invalid"
    trees = {
        "/etc/libvirt/qemu/t.a.xml": domain(f"{LOGS}/t.a-serial.log"),
        f"{LOGS}/t.a.log": f"{STARTED}LC_ALL=C \\\n-append '{said}' \\\n{said}\n",
    }
    line = f"{said} (line 3 since the start of 2026-11-23 00:00:00.000+0000)"
    assert lines(tmp_path, trees) == [("vgpu-state-lost", "t.a", line)]


def test_the_same_words_said_twice_of_a_device_are_two_resets(tmp_path: Path) -> None:
    said = (
        "0000:c1:00.4: Failed setting device state to STOP_COPY. Recover state is ERROR. Resetting device: I/O error\n"
    )
    trees = {"/etc/libvirt/qemu/t.a.xml": domain(), f"{LOGS}/t.a.log": STARTED + said * 2}
    assert len(lines(tmp_path, trees)) == 2


def test_a_definition_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    root = machine.build(
        tmp_path / "root", machine.BASE, {"/etc/libvirt/qemu/t.a.xml": "<domain", f"{LOGS}/t.a.log": STARTED + SAID}
    )
    found = diagnostics.read(Host(str(root)))
    assert found.lines == ()
    assert "t.a.xml cannot be read" in found.unread[0]


def test_the_managers_errors_are_its_own_and_not_what_a_guests_driver_told_it(tmp_path: Path) -> None:
    root = machine.build(tmp_path / "root", machine.BASE)
    messages = [
        "error: vmiop_log: (0x0): Failed to allocate the vGPU's heap",
        "notice: vmiop_log: (0x0): Driver Version: error failed",
        "notice: vmiop_log: (0x0): Driver Version:\nerror: vmiop_log: forged",
        list("error: vmiop_log: (0x0): é".encode("latin-1")),
    ]
    journal = "".join(json.dumps({"MESSAGE": one}) + "\n" for one in [*messages, None])
    program = root / "usr/bin/journalctl"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{journal}END\n")
    program.chmod(0o755)
    found = [one.text for one in diagnostics.read(Host(str(root))).lines]
    assert found == [messages[0], "error: vmiop_log: (0x0): \ufffd"]
