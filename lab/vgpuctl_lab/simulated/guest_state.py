# SPDX-License-Identifier: Apache-2.0
"""The files that libvirt makes when a guest starts: its UEFI variables, and its TPM.

They are real files of the machine's disk, with invented contents that a migration takes along. The end of a domain
leaves them, as with libvirt before 8.9; removing them is the agent's work then.
"""

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.tree import VARIABLES_BYTES

NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
TPM_FOLDER = "/var/lib/libvirt/swtpm"


def make(machine: MachineFolder, vm_uuid: str, xml: str) -> None:
    """Make the files of a guest that starts, those that are missing."""
    nvram, tpm = _paths(machine, vm_uuid, xml)
    if nvram is not None:
        _write(nvram, f"variables of {vm_uuid}".ljust(VARIABLES_BYTES))
    if tpm is not None:
        _write(tpm, f"TPM of {vm_uuid} {os.urandom(8).hex()}")


def carry(source: MachineFolder, target: MachineFolder, vm_uuid: str, xml: str) -> None:
    """Give the files of a guest that arrives the contents that they have where it comes from."""
    for here, there in zip(_paths(source, vm_uuid, xml), _paths(target, vm_uuid, xml), strict=True):
        if here is not None and there is not None and here.is_file():
            shutil.copy2(here, there)


def _paths(machine: MachineFolder, vm_uuid: str, xml: str) -> tuple[Path | None, Path | None]:
    """Where a guest's UEFI variables and its TPM are; None for what it has not."""
    root = ElementTree.fromstring(xml)
    system = root.find("os")
    has_uefi = system is not None and (system.get("firmware") == "efi" or system.find("loader") is not None)
    nvram = root.findtext("os/nvram") or f"{NVRAM_FOLDER}/{root.findtext('name')}_VARS.fd"
    tpm = f"{TPM_FOLDER}/{vm_uuid}/tpm2/tpm2-00.permall"
    has_tpm = root.find("devices/tpm") is not None
    return (
        Path(f"{machine.root}{nvram}") if has_uefi else None,
        Path(f"{machine.root}{tpm}") if has_tpm else None,
    )


def _write(place: Path, text: str) -> None:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o600)
