# SPDX-License-Identifier: Apache-2.0
"""The saved state of a domain that was suspended to disk: libvirt's managed save, which the next start restores.

A save is a migration to a file, with its rules: each device must give its state (reference/moves 3.1, rows 5 and 12).
"""

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.libvirt_errors import libvirt_module, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor

_LONGEST_MS = 2_000_000
"""The most that QEMU takes."""


class SavedState:
    """The saved state of one domain, or that it has none."""

    def __init__(self, hypervisor: Hypervisor, name: str, uuid: str) -> None:
        self._hypervisor = hypervisor
        self._name = name
        self._uuid = uuid

    @property
    def _where(self) -> str:
        return f"domain {self._name} on {self._hypervisor.host}"

    def save(self) -> None:
        """Write memory and devices of a running domain to the host's disk and end its QEMU.

        Raises DomainRejected; the guest goes on then.
        """
        with translated(f"suspend {self._where}", DomainRejected):
            domain = self._hypervisor.connection.lookupByUUIDString(self._uuid)
            # QEMU ends a save, as any migration, only when the rest fits into this; a vGPU's state never gets less.
            domain.migrateSetMaxDowntime(_LONGEST_MS)
            domain.managedSave(0)

    def xml(self) -> str | None:
        """Read the XML with which the domain is restored; None for one without a saved state, and an unknown one."""
        library = libvirt_module()
        with translated(f"read the saved state of {self._where}"):
            for domain in self._hypervisor.connection.listAllDomains(library.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE):
                if domain.UUIDString() == self._uuid:
                    return str(domain.managedSaveGetXMLDesc(library.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))
        return None

    def change(self, xml: str) -> None:
        """Replace the XML with which the domain is restored. Raises DomainRejected where the guest would see it."""
        with translated(f"give the saved state of {self._where} its devices", DomainRejected):
            self._hypervisor.connection.lookupByUUIDString(self._uuid).managedSaveDefineXML(xml, 0)

    def drop(self) -> None:
        """Delete the saved state: the next start boots the guest from its disk."""
        with translated(f"delete the saved state of {self._where}"):
            self._hypervisor.connection.lookupByUUIDString(self._uuid).managedSaveRemove(0)
