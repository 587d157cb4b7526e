# SPDX-License-Identifier: Apache-2.0
"""Reads domains from a host's libvirt: states, XML, consoles, screens. Changes nothing."""

import json
from typing import Any

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.domain_facts import (
    DomainFact,
    DomainState,
    GuestPciDevice,
    NamedState,
    domain_fact,
    domain_state,
    guest_pci_devices,
    has_failed,
)
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.connection import LibvirtConnection
from vgpuctl.guests.libvirtd.console import Console
from vgpuctl.guests.libvirtd.screenshot import Screenshot, as_screenshot, receive_screenshot

_MANY = 6
_CALLS_AT_ONCE = 4
"""Domains that are read at the same time, from _MANY on: each is a round trip to the host. libvirtd answers five calls
of a client at once (max_client_requests of libvirtd.conf)."""


class DomainReader(LibvirtConnection):
    """The domains of one host, ours and others, as libvirt has them now."""

    def uuid_of(self, name: str) -> str | None:
        """Read the UUID of the domain of this name; None when there is none."""
        domain = self._find(name)
        return None if domain is None else str(domain.UUIDString())

    def state(self, name: str, *, uuid: str | None = None) -> DomainState | None:
        """Read the domain's state; None for an unknown domain."""
        library = libvirt_module()
        domain = self._find(name, uuid)
        try:
            return None if domain is None else domain_state(domain.state()[0])
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_DOMAIN:
                return None
            raise translate(refused, f"read the state of domain {name} on {self.host}") from refused

    def states(self) -> dict[str, NamedState]:
        """Read name and state of every domain by UUID, without its XML."""
        with translated(f"list the domains on {self.host}"):
            return {
                str(domain.UUIDString()): NamedState(domain.name(), state, has_failed(state, reason))
                for domain, state, reason in self._listed()
            }

    def domains(self) -> list[DomainFact]:
        """Read all domains of the host, ours and others, by name."""
        with translated(f"list the domains on {self.host}"):
            listed = self._listed()
            if len(listed) < _MANY:
                read = [self._fact_if_there(domain, state) for domain, state, _reason in listed]
            else:
                from concurrent.futures import ThreadPoolExecutor  # most hosts need none of it

                with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
                    read = list(pool.map(lambda one: self._fact_if_there(*one[:2]), listed))
        return sorted((fact for fact in read if fact is not None), key=lambda fact: fact.name)

    def domain(self, uuid: str) -> DomainFact | None:
        """Read the domain of this UUID; None when there is none."""
        library = libvirt_module()
        with translated(f"read domain {uuid} on {self.host}"):
            try:
                domain = self.connection.lookupByUUIDString(uuid)
                return self._fact_if_there(domain, domain_state(domain.state()[0]))
            except library.libvirtError as refused:
                if error_code(refused) != library.VIR_ERR_NO_DOMAIN:
                    raise
                return None

    def _listed(self) -> list[tuple[Any, DomainState, int]]:
        """All domains, each with its state and the reason of it: one call for all of them."""
        library = libvirt_module()
        listed = []
        for domain, found in self.connection.getAllDomainStats(library.VIR_DOMAIN_STATS_STATE, 0):
            listed.append((domain, domain_state(found["state.state"]), found["state.reason"]))
        return listed

    def _fact_if_there(self, domain: Any, state: DomainState) -> DomainFact | None:
        """Read one domain; None if it went away since it was listed."""
        library = libvirt_module()
        try:
            return self._fact(domain, state)
        except library.libvirtError as refused:
            if error_code(refused) != library.VIR_ERR_NO_DOMAIN:
                raise
            return None

    def _fact(self, domain: Any, state: DomainState) -> DomainFact:
        """Read one domain. Raises GuestError, which names it: nobody may take it for one that is not there."""
        xml = domain.XMLDesc(0)
        try:
            return domain_fact(xml, state)
        except GuestError as error:
            uuid = domain.UUIDString()
            raise GuestError(
                f"domain {domain.name()} ({uuid}) on {self.host} could not be read: {error.message}",
                hint=f"see `virsh dumpxml {uuid}` on the host; it is not known which devices and disks the domain uses",
            ) from error

    def xml(self, name: str) -> str | None:
        """Read the domain's XML, the live one when it runs; None for an unknown domain."""
        with translated(f"read the XML of domain {name} on {self.host}"):
            domain = self._find(name)
            return None if domain is None else str(domain.XMLDesc(0))

    def definition(self, name: str, *, uuid: str) -> str | None:
        """Read the XML with which the domain starts next, also while it runs; None for an unknown domain."""
        domain = self._find(name, uuid)
        with translated(f"read the definition of domain {name} on {self.host}"):
            return None if domain is None else str(domain.XMLDesc(libvirt_module().VIR_DOMAIN_XML_INACTIVE))

    def is_autostarted(self, name: str, *, uuid: str | None = None) -> bool:
        """True if libvirt itself starts the domain with the host; False for an unknown domain."""
        domain = self._find(name, uuid)
        with translated(f"read autostart of domain {name} on {self.host}"):
            return domain is not None and bool(domain.autostart())

    def autostarted(self) -> frozenset[str]:
        """UUIDs of the domains that libvirt itself starts with the host."""
        library = libvirt_module()
        with translated(f"list the domains that {self.host} starts with libvirt"):
            domains = self.connection.listAllDomains(library.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
            return frozenset(domain.UUIDString() for domain in domains)

    def pci_devices(self, name: str) -> list[GuestPciDevice]:
        """Ask the running guest's QEMU for its PCI devices (monitor command `query-pci`).

        Devices behind root ports, so all GPUs, show only when the guest's firmware has numbered the buses, a
        moment after the start.
        """
        domain = self._domain(name)
        with translated(f"ask QEMU of domain {name} on {self.host} for its PCI devices"):
            import libvirt_qemu

            answer = libvirt_qemu.qemuMonitorCommand(domain, json.dumps({"execute": "query-pci"}), 0)
        return guest_pci_devices(answer)

    def console(self, name: str, *, force: bool = False) -> Console:
        """Open the serial console of a running guest. force: throw out another session that has it."""
        library = libvirt_module()
        domain = self._domain(name)
        with translated(f"open the console of domain {name} on {self.host}"):
            stream = self.connection.newStream(library.VIR_STREAM_NONBLOCK)
            flags = library.VIR_DOMAIN_CONSOLE_FORCE if force else library.VIR_DOMAIN_CONSOLE_SAFE
            domain.openConsole(None, stream, flags)
        return Console(stream)

    def screenshot(self, name: str, *, uuid: str, screen: int = 0) -> Screenshot:
        """Take a picture of a running guest's screen. Raises GuestError."""
        domain, where = self._domain(name, uuid), f"domain {name} on {self.host}"
        return as_screenshot(receive_screenshot(self.connection, domain, screen, where=where), where=where)
