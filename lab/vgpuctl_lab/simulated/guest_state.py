# SPDX-License-Identifier: Apache-2.0
"""The files that libvirt makes when a guest starts: its UEFI variables, and its TPM.

They are real files of the machine's disk, with invented contents. The end of a domain leaves them, as with libvirt
before 8.9; removing them is the agent's work then.
"""

import os
from pathlib import Path
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.tree import VARIABLES_BYTES

NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
TPM_FOLDER = "/var/lib/libvirt/swtpm"


def make(machine: MachineFolder, vm_uuid: str, xml: str) -> None:
    """Make the files of a guest that starts, those that are missing."""
    root = ElementTree.fromstring(xml)
    system = root.find("os")
    if system is not None and (system.get("firmware") == "efi" or system.find("loader") is not None):
        nvram = system.findtext("nvram") or f"{NVRAM_FOLDER}/{root.findtext('name')}_VARS.fd"
        _make_file(machine, nvram, f"variables of {vm_uuid}".ljust(VARIABLES_BYTES))
    if root.find("devices/tpm") is None:
        return
    _make_file(machine, f"{TPM_FOLDER}/{vm_uuid}/tpm2/tpm2-00.permall", f"TPM of {vm_uuid} {os.urandom(8).hex()}")


def _make_file(machine: MachineFolder, path: str, text: str) -> None:
    place = Path(f"{machine.root}{path}")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o600)
