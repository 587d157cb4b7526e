# SPDX-License-Identifier: Apache-2.0
"""Profiles of operating systems: what they decide, and sizes from libosinfo's database or our table."""

from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.catalog.guest_os import (
    GUEST_OSES,
    list_warnings,
    parse_guest_os,
    refuse_too_small,
    smallest_sizes,
    with_os_defaults,
)
from vgpuctl.catalog.osinfo import OsResources, OsSizes, read_resources
from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DataDisk, DiskBus, DiskRequest, InstallRequest
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import DirectKernel, Firmware, VmRequest

PLAIN = VmRequest("web-1", "acme")
# The form of a file of osinfo-db 20250606, os/microsoft.com/win-11.xml.
FILE = """<?xml version="1.0"?>
<libosinfo version="0.0.1">
  <os id="http://example.org/thing/1">
    <resources arch="all"><minimum><ram>1073741824</ram></minimum></resources>
    <resources arch="x86_64">
      <minimum><n-cpus>2</n-cpus><ram>6442450944</ram><storage>68719476736</storage></minimum>
      <recommended><ram>8589934592</ram></recommended>
    </resources>
  </os>
</libosinfo>
"""


def database(tmp_path: Path, text: str, name: str = "microsoft.com/win-11") -> tuple[str, ...]:
    path = tmp_path / "os" / f"{name}.xml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return (str(tmp_path),)


def test_windows_11_gets_secure_boot_a_tpm_and_a_scsi_disk() -> None:
    made = with_os_defaults(replace(PLAIN, os="win11", disk=DiskRequest(), data_disks=(DataDisk("data"),)))
    assert (made.firmware, made.secure_boot, made.tpm) == (Firmware.UEFI, Switch.ON, Switch.ON)
    assert made.disk is not None and made.disk.bus is DiskBus.SCSI and made.data_disks[0].bus is DiskBus.SCSI
    assert with_os_defaults(made) == made


def test_what_the_user_says_goes_over_the_profile() -> None:
    asked = replace(PLAIN, os="win11", secure_boot=Switch.OFF, tpm=Switch.OFF, disk=DiskRequest(bus=DiskBus.SATA))
    made = with_os_defaults(asked)
    assert (made.secure_boot, made.tpm, made.disk) == (Switch.OFF, Switch.OFF, asked.disk)
    assert "Secure Boot and a TPM; its installer refuses without" in list_warnings(made)[-1]


@pytest.mark.parametrize("name", [name for name, profile in GUEST_OSES.items() if not profile.is_windows])
def test_linux_gets_uefi_without_secure_boot_and_no_tpm(name: str) -> None:
    made = with_os_defaults(replace(PLAIN, os=name))
    assert (made.firmware, made.secure_boot, made.tpm) == (Firmware.UEFI, Switch.OFF, Switch.OFF)


def test_without_a_profile_secure_boot_alone_asks_for_uefi() -> None:
    assert with_os_defaults(PLAIN).firmware is Firmware.BIOS
    assert with_os_defaults(replace(PLAIN, secure_boot=Switch.ON)).firmware is Firmware.UEFI


def test_secure_boot_with_a_bios_is_refused() -> None:
    with pytest.raises(UsageError, match="Secure Boot needs the firmware uefi"):
        with_os_defaults(replace(PLAIN, firmware=Firmware.BIOS, secure_boot=Switch.ON))
    assert with_os_defaults(replace(PLAIN, os="win10", firmware=Firmware.BIOS)).secure_boot is Switch.OFF


def test_sizes_are_those_of_the_database_for_this_architecture(tmp_path: Path) -> None:
    folders = database(tmp_path, FILE)
    assert read_resources("microsoft.com/win-11", folders) == OsResources(
        OsSizes(6144, 2, 65536), OsSizes(8192, None, None)
    )
    assert smallest_sizes(GUEST_OSES["win11"], folders) == OsSizes(6144, 2, 65536)


@pytest.mark.parametrize(
    "text",
    [
        "<libosinfo>",
        '<?xml version="1.0" encoding="rot13"?><libosinfo/>',
        '<?xml version="1.0" encoding="utf-7"?><libosinfo/>',
        '<!DOCTYPE x [<!ENTITY a "b">]><libosinfo/>',
        "<libosinfo><os><resources arch='all'><minimum><ram>-7</ram></minimum></resources></os></libosinfo>",
        "<libosinfo><os><resources arch='aarch64'><minimum><ram>7</ram></minimum></resources></os></libosinfo>",
    ],
)
def test_a_damaged_or_silent_database_leaves_our_table(text: str, tmp_path: Path) -> None:
    assert smallest_sizes(GUEST_OSES["win11"], database(tmp_path, text)) == OsSizes(4096, 2, 65536)


def test_without_a_database_our_table_is_used(tmp_path: Path) -> None:
    assert smallest_sizes(GUEST_OSES["debian-12"], (str(tmp_path),)) == OsSizes(1024, 1, 10240)
    assert smallest_sizes(GUEST_OSES["linux"]).memory_mib == 512


def test_a_small_vm_is_warned_of_and_an_installation_of_windows_refused() -> None:
    small = with_os_defaults(replace(PLAIN, os="win11", vcpus=1, memory_mib=1024, disk=DiskRequest(size_mib=1024)))
    assert [line.partition(", the VM has ")[2] for line in list_warnings(small)] == ["1 GiB", "1", "1 GiB"]
    refuse_too_small(small)
    with pytest.raises(UsageError) as refused:
        refuse_too_small(replace(small, install=InstallRequest("windows")))
    assert len(refused.value.context) == 2
    assert list_warnings(replace(PLAIN, memory_mib=64)) == []


def test_an_unknown_profile_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError) as refused:
        parse_guest_os("windows-95")
    assert "windows-server-2025" in (refused.value.hint or "")


@pytest.mark.parametrize("source", [DriverSource.PACKAGES, DriverSource.RUN_FILE, DriverSource.IMAGE])
def test_a_driver_without_a_system_is_a_warning(source: DriverSource) -> None:
    empty = replace(PLAIN, guest_driver=GuestDriver(source), disk=DiskRequest())
    for request in (empty, replace(empty, disk=None)):
        assert "nothing sets up its guest driver" in list_warnings(request)[0]
    for booted in (
        replace(empty, disk=DiskRequest(base_image="debian-12")),
        replace(empty, install=InstallRequest("debian-12-iso")),
        replace(empty, direct_kernel=DirectKernel("vmlinuz", None)),
        replace(empty, guest_driver=GuestDriver()),
    ):
        assert list_warnings(booted) == []
