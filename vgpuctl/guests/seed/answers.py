# SPDX-License-Identifier: Apache-2.0
"""The answers of unattended installations: Autounattend.xml for Windows, autoinstall for Ubuntu.

Both are on a medium of their own, which only the first run of a VM has. Windows Setup looks at the root of every
removable medium for its file, and Ubuntu's installer reads a NoCloud seed as cloud-init does.
Both wipe a disk without a question, so each looks first whether the disk is empty, and ends where it is not.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.guests.seed.linux_setup import linux_setup
from vgpuctl.guests.seed.network import seeded_interfaces
from vgpuctl.guests.seed.windows_setup import SETUP_FILE, computer_name, windows_setup
from vgpuctl.guests.templating import render_template
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import CloudInit, Vm

ANSWER_FILE = "Autounattend.xml"
ACCOUNT = "admin"
# Folders of the virtio-win medium: DRIVER\\SYSTEM\\amd64.
_FOLDERS = {
    "win10": "w10",
    "win11": "w11",
    "windows-server-2019": "2k19",
    "windows-server-2022": "2k22",
    "windows-server-2025": "2k25",
}
_DRIVERS = ("vioscsi", "viostor", "NetKVM", "vioserial")
_LETTERS = "DEFGH"
_FIND_AND_RUN = (
    "powershell.exe -NoProfile -ExecutionPolicy Bypass -Command"
    " \"Get-CimInstance Win32_LogicalDisk -Filter 'DriveType=5'"
    f" | ForEach-Object {{ $f = Join-Path $_.DeviceID '{SETUP_FILE}'; if (Test-Path $f) {{ & $f }} }}\""
)


@dataclass(frozen=True)
class Partition:
    """One partition of the first disk. size_mib: None for the rest of the disk. format: None for one without files."""

    number: int
    type: str
    size_mib: int | None
    format: str | None = None
    label: str | None = None
    letter: str | None = None


@dataclass(frozen=True)
class WindowsAnswers:
    """All that Autounattend.xml says. image_index: of the edition in the installation medium."""

    computer_name: str
    account: str
    password: str
    image_index: int
    driver_paths: tuple[str, ...]
    partitions: tuple[Partition, ...]
    first_logon_commands: tuple[str, ...]
    guard: str


# Microsoft, "UEFI/GPT-based hard drive partitions": the order EFI, MSR, Windows.
_PARTITIONS = (
    Partition(1, "EFI", 260, "FAT32", "System"),
    Partition(2, "MSR", 16),
    Partition(3, "Primary", None, "NTFS", "Windows", "C"),
)


# It lists the partitions of the disk that Setup is to wipe. A line of a partition has its number between blanks, in
# every language. Where there is one, the VM is shut down, and Setup waits for a key that nobody presses.
_GUARD = (
    'cmd.exe /c "(echo select disk 0&echo list partition)>X:\\guard.txt'
    '&diskpart /s X:\\guard.txt|findstr /c:" 1  "&&(wpeutil shutdown&pause)||ver"'
)


def windows_first_logon(cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment]) -> dict[str, str]:
    """Write the script of the first logon, by file name. It gives the account a password that nobody knows."""
    script = windows_setup(cloud_init, vm.request, account=ACCOUNT, interfaces=seeded_interfaces(vm, attachments))
    assert script is not None
    return {SETUP_FILE: script}


def windows_answers(cloud_init: CloudInit, vm: Vm) -> dict[str, str]:
    """Write Autounattend.xml, by file name.

    Each call makes another password. It is nowhere but in this file, and the script of the first logon replaces it by
    one that nobody knows; after that the guest agent sets the operator's.
    """
    install, system = vm.request.install, vm.request.os or ""
    folder = _FOLDERS[system]
    has_drivers = install is not None and install.drivers is not None
    answers = WindowsAnswers(
        computer_name=computer_name(cloud_init.hostname or vm.request.name),
        account=ACCOUNT,
        password=f"aA1!{secrets.token_urlsafe(24)}",
        # Media of Windows Server: 1 is Standard without a desktop, 2 with one. Others: the medium's first edition.
        image_index=2 if system.startswith("windows-server-") else 1,
        driver_paths=tuple(
            f"{letter}:\\{driver}\\{folder}\\amd64" for letter in _LETTERS for driver in _DRIVERS if has_drivers
        ),
        partitions=_PARTITIONS,
        first_logon_commands=("powercfg.exe /hibernate off", _FIND_AND_RUN),
        guard=_GUARD,
    )
    return {ANSWER_FILE: render_template("autounattend.xml.j2", answers=answers)}


def ubuntu_answers(cloud_init: CloudInit, vm: Vm, keys: list[str]) -> str:
    """Write user-data with autoinstall: the whole disk, OpenSSH with the VM's keys, and no password.

    The VM has one disk then. The early command ends the installation before anything is written to a disk that is not
    empty: Ubuntu's installer stops at the first of them that fails. The installed
    system runs the script of the GPU at its first boot, from the user-data that the installer hands on.
    Source: Ubuntu, Autoinstall configuration reference manual.
    """
    return render_template(
        "autoinstall.j2",
        hostname=cloud_init.hostname or vm.request.name,
        keys=keys,
        script=linux_setup(cloud_init, vm.request),
    )
