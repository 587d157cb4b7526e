# SPDX-License-Identifier: Apache-2.0
"""The answers of unattended installations. Microsoft publishes no schema of Autounattend.xml outside of its ADK.

So passes, components and elements are held against its reference, as far as the file uses them.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.unit.guests.cases import NETWORK, PORT, REQUEST, vm
from tests.unit.guests.test_windows_setup import DRIVER, TOKEN, settings_of
from vgpuctl.catalog.guest_os import GUEST_OSES
from vgpuctl.guests.seed.image import answers_files, answers_image, seed_files, seed_image
from vgpuctl.model.disk import DiskRequest, InstallRequest
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import CloudInit

UNATTEND = "urn:schemas-microsoft-com:unattend"
WCM = "http://schemas.microsoft.com/WMIConfig/2002/State"
# Microsoft, Unattended Windows Setup Reference: the passes in which a component may stand.
PASSES = {
    "Microsoft-Windows-International-Core-WinPE": {"windowsPE"},
    "Microsoft-Windows-PnpCustomizationsWinPE": {"windowsPE"},
    "Microsoft-Windows-Setup": {"windowsPE"},
    "Microsoft-Windows-International-Core": {"specialize", "oobeSystem"},
    "Microsoft-Windows-Shell-Setup": {"offlineServicing", "generalize", "specialize", "auditUser", "oobeSystem"},
}
INSTALL = InstallRequest("windows-iso", drivers="virtio-win", unattended=True)
WINDOWS = replace(REQUEST, os="win11", disk=DiskRequest(), install=INSTALL, guest_driver=DRIVER)
PATH = f"{{{UNATTEND}}}"


def _answers(os: str = "win11", install: InstallRequest = INSTALL) -> ElementTree.Element:
    files = answers_files(CloudInit(hostname="w<&>1"), vm(replace(WINDOWS, os=os, install=install)))
    return ElementTree.fromstring(files["Autounattend.xml"])


def _texts(root: ElementTree.Element, name: str) -> list[str | None]:
    return [one.text for one in root.iter(PATH + name)]


@pytest.mark.parametrize("os", ["win10", "win11", "windows-server-2019", "windows-server-2022", "windows-server-2025"])
def test_every_component_stands_in_a_pass_that_has_it(os: str) -> None:
    root = _answers(os)
    assert root.tag == f"{PATH}unattend"
    passes = [one.get("pass") for one in root]
    assert passes == ["windowsPE", "specialize", "oobeSystem"]
    for settings in root:
        for component in settings:
            assert settings.get("pass") in PASSES[component.get("name") or ""]
            assert (component.get("processorArchitecture"), component.get("versionScope")) == ("amd64", "nonSxS")
    added = [one for one in root.iter() if f"{{{WCM}}}action" in one.attrib]
    assert {one.get(f"{{{WCM}}}action") for one in added} == {"add"}


def test_the_disk_gets_what_uefi_boots() -> None:
    root = _answers()
    created = [[(one.tag.removeprefix(PATH), one.text) for one in part] for part in root.iter(f"{PATH}CreatePartition")]
    assert created == [
        [("Order", "1"), ("Type", "EFI"), ("Size", "260")],
        [("Order", "2"), ("Type", "MSR"), ("Size", "16")],
        [("Order", "3"), ("Type", "Primary"), ("Extend", "true")],
    ]
    changed = [[one.text for one in part] for part in root.iter(f"{PATH}ModifyPartition")]
    assert changed == [["1", "1", "FAT32", "System"], ["2", "3", "NTFS", "Windows", "C"]]
    (target,) = root.iter(f"{PATH}InstallTo")
    assert [one.text for one in target] == ["0", "3"]


@pytest.mark.parametrize(
    ("os", "folder"),
    [("win10", "w10"), ("win11", "w11"), ("windows-server-2019", "2k19"), ("windows-server-2025", "2k25")],
)
def test_drivers_are_looked_for_on_every_letter_of_an_optical_drive(os: str, folder: str) -> None:
    root = _answers(os)
    paths = _texts(root, "Path")
    assert f"D:\\vioscsi\\{folder}\\amd64" in paths
    assert f"F:\\NetKVM\\{folder}\\amd64" in paths
    keys = [one.get(f"{{{WCM}}}keyValue") for one in root.iter(f"{PATH}PathAndCredentials")]
    assert len(set(keys)) == len(keys) == 20
    assert not list(_answers(os, replace(INSTALL, drivers=None)).iter(f"{PATH}PathAndCredentials"))


def test_the_password_is_another_one_each_time_and_is_replaced_at_the_first_logon() -> None:
    first, second = (_texts(_answers(), "Value") for _ in range(2))
    passwords = [one for one in first if one and one.startswith("aA1!")]
    assert len(passwords) == 2
    assert len(set(passwords)) == 1
    assert not set(passwords) & set(second)
    files = seed_files(CloudInit(), vm(WINDOWS))
    assert settings_of(files["vgpuctl.ps1"])["account"] == "admin"
    assert "Set-LocalUser" in files["vgpuctl.ps1"]


def test_the_first_logon_runs_the_script_from_the_seed() -> None:
    cloud_init = replace(TOKEN, hostname="w<&>1")
    files = seed_files(cloud_init, vm(replace(WINDOWS, network="front")), [Attachment(NETWORK, PORT)])
    root = ElementTree.fromstring(answers_files(cloud_init, vm(WINDOWS))["Autounattend.xml"])
    assert _texts(root, "ComputerName") == ["w---1"]
    lines = [one or "" for one in _texts(root, "CommandLine")]
    assert "vgpuctl.ps1" in lines[-1]
    assert max(map(len, lines)) < 1024, "Setup takes no longer ones"
    settings = settings_of(files["vgpuctl.ps1"])
    (interface,) = settings["interfaces"]
    assert interface == {
        "mac_address": "52-00-00-00-00-07", "address": "10.0.0.7", "prefix_length": 24, "gateway": "10.0.0.1",
        "resolvers": ["10.0.0.1"],
    }  # fmt: skip
    assert settings["token"]
    assert answers_image(cloud_init, vm(WINDOWS)).find(b"AUTOUNATTEND.XML;1") > 0


def test_the_seed_that_stays_answers_no_installer() -> None:
    ubuntu = replace(WINDOWS, os="ubuntu-24.04", guest_driver=GuestDriver())
    for request in (WINDOWS, ubuntu):
        seed = seed_image(TOKEN, vm(request))
        assert b"AUTOUNATTEND" not in seed and b"autoinstall" not in seed
        uuid = vm(request).uuid.encode()
        assert uuid in seed and uuid in answers_image(TOKEN, vm(request)), "both are known to be this VM's"
    assert b"autoinstall" in answers_image(TOKEN, vm(ubuntu))


def test_windows_setup_looks_at_the_disk_before_it_wipes_it() -> None:
    (setup,) = (one for one in _answers().iter(f"{PATH}component") if one.get("name") == "Microsoft-Windows-Setup")
    (command,) = setup.iter(f"{PATH}RunSynchronousCommand")
    line = command.findtext(f"{PATH}Path") or ""
    assert len(line) < 260, "Setup takes no longer ones"
    assert "list partition" in line and "wpeutil shutdown" in line
    assert line.count("(") == line.count(")")
    (found,) = re.findall(r'findstr /c:"(.*?)"', line)
    # Lines of diskpart for an installed disk and for an empty one (Microsoft, "list partition").
    assert found in "  Partition 1    System             260 MB  1024 KB"
    for said in ("Microsoft DiskPart version 10.0.26100.1150", "Disk 0 is now the selected disk.",
                 "There are no partitions on this disk to show.", "On computer: MININT-1K2B3C4"):  # fmt: skip
        assert found not in said


@pytest.mark.parametrize(("content", "code"), [(bytes(4096), 0), (bytes(510) + b"\x55\xaa" + bytes(3584), 1)])
def test_ubuntus_installer_ends_where_the_disk_is_not_empty(content: bytes, code: int, tmp_path: Path) -> None:
    """The early command runs as the installer runs it; a program named lsblk shows a file for the disk."""
    request = replace(REQUEST, os="ubuntu-24.04", disk=DiskRequest(), install=InstallRequest("iso", unattended=True))
    user_data = yaml.safe_load(answers_files(CloudInit(), vm(request))["user-data"])
    (command,) = user_data["autoinstall"]["early-commands"]
    disk = tmp_path / "disk"
    if code:
        content = bytes([0] * 446 + [0, 32, 33, 0, 131, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]) + content[462:]
    disk.write_bytes(content)
    lsblk = tmp_path / "lsblk"
    lsblk.write_text(f"#!/bin/sh\nprintf '/dev/loop0 loop\\n/dev/sr0 rom\\n/dev/zram0 disk\\n{disk} disk\\n'\n")
    lsblk.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (b"nothing is written" in done.stderr) == bool(code)


def test_ubuntus_installer_hands_the_script_on_to_the_installed_system() -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv me"
    request = replace(
        REQUEST, os="ubuntu-24.04", disk=DiskRequest(), install=InstallRequest("ubuntu-iso", unattended=True),
        guest_driver=GuestDriver(DriverSource.PACKAGES, package="nvidia-driver"),
    )  # fmt: skip
    files = answers_files(replace(TOKEN, ssh_authorized_keys=(key,)), vm(request))
    assert files["user-data"].startswith("#cloud-config\n")
    install = yaml.safe_load(files["user-data"])["autoinstall"]
    assert install["version"] == 1
    inside = install["user-data"]
    assert inside["users"][0]["ssh_authorized_keys"] == [key]
    (written,) = inside["write_files"]
    assert written["content"].startswith("#!/bin/sh\n")
    assert inside["runcmd"] == [[written["path"]]]
    assert "vendor-data" not in files


def test_every_profile_of_windows_has_its_folder_of_drivers() -> None:
    for profile in GUEST_OSES.values():
        if profile.is_windows:
            assert _texts(_answers(profile.name), "Path")
