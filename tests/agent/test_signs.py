# SPDX-License-Identifier: Apache-2.0
"""Signs of trouble that are no facts, read from a tree of files."""

from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.facts import signs
from vgpuctl.agent.host import Host

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
    assert signs.read(Host(str(root))).secure_boot is is_on


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
    assert signs.read(Host(str(root))).guests_at_shutdown is None
    link = root / ENABLED.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/lib/systemd/system/libvirt-guests.service")
    assert signs.read(Host(str(root))).guests_at_shutdown == on_shutdown


def test_denials_of_this_boot_are_found_where_the_audit_daemon_keeps_them(tmp_path: Path) -> None:
    denied = 'avc:  denied  { read } for pid=9 comm="qemu-kvm" name="12" tclass=chr_file path="/dev/vfio/12"'
    log = f"type=AVC msg=audit(99.1:7): {denied} old\ntype=AVC msg=audit(2000.5:9): {denied} new\n"
    files = {"/proc/stat": "cpu 0\nbtime 1000\n", "/var/log/audit/audit.log": log}
    found = signs.read(Host(str(machine.build(tmp_path / "root", machine.BASE, files)))).lines
    assert [(line.check, line.source, line.text[-3:]) for line in found] == [("access-denied", "audit", "new")]


def test_a_host_of_proxmox_is_known_by_its_files(tmp_path: Path) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, {"/usr/bin/pveversion": ""})
    assert signs.read(Host(str(root))).is_proxmox
