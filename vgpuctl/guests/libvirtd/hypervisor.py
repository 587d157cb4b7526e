# SPDX-License-Identifier: Apache-2.0
"""One connection to a host's libvirt: domains, networks and the guest's console. Storage is in storage.py."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from vgpuctl.errors import DomainRejected, GuestError, LibvirtMissing, NetworkMissing
from vgpuctl.guests.facts.capabilities import undefine_state_flags
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
from vgpuctl.guests.libvirt_errors import answer_of, error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.console import Console
from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop
from vgpuctl.guests.libvirtd.screenshot import Screenshot, as_screenshot, receive_screenshot
from vgpuctl.logs import timed
from vgpuctl.model.libvirt_units import hint_of
from vgpuctl.model.times import format_time_to_second

PREEMPTION_NAMESPACE = "urn:vgpuctl:preemption:1"
_POLL_S = 0.2
_GRACEFUL_S = 60.0
_DESTROY_LIMIT_S = 60.0
_KEEP_ALIVE_S = 10
_KEEP_ALIVE_COUNT = 6
# The values of attributes and the text of elements: what is left of XML without them is its elements and attributes.
_VALUES = re.compile(r"""(?<==)'[^']*'|(?<==)"[^"]*"|(?<=>)[^<]+""")


class Hypervisor:
    """libvirt on one host, as a context manager. `host` names it in messages.

    Every method that changes something is idempotent and answers whether it changed anything. uuid, where a method
    takes one: a domain of the name with another UUID counts as not there.
    """

    def __init__(self, uri: str, *, host: str | None = None, check: Callable[[str], None] | None = None) -> None:
        self.uri = uri
        self._check = check
        self.host = host or uri
        self._connection: Any = None
        self.killed: set[str] = set()
        self.ended_in_order: set[str] = set()
        self._accepted: set[str] = set()
        self._watch: int | None = None

    def __enter__(self) -> Self:
        """Open the connection. Raises LibvirtMissing."""
        library = libvirt_module()
        ensure_event_loop()
        try:
            with timed("libvirt-open", host=self.host):
                self._connection = library.open(self.uri)
            # A dead peer ends a call after a minute instead of never; drivers inside this process have no peer.
            with contextlib.suppress(library.libvirtError):
                self._connection.setKeepAlive(_KEEP_ALIVE_S, _KEEP_ALIVE_COUNT)
        except library.libvirtError as refused:
            raise LibvirtMissing(
                f"libvirt on {self.host} does not answer: {answer_of(refused)} (libvirt error {error_code(refused)})",
                hint=hint_of(answer_of(refused)),
            ) from refused
        if self._check is not None:
            try:
                with translated(f"read the name of {self.host}"):
                    hostname = self._connection.getHostname()
                self._check(hostname)
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        try:
            if self._watch is not None:
                connection.unregisterCloseCallback()
                connection.domainEventDeregisterAny(self._watch)
        except libvirt_module().libvirtError:
            pass  # The transport may be gone already, and with it what was registered.
        try:
            connection.close()
        except libvirt_module().libvirtError:
            # The transport may be gone already; nothing is left to close then.
            return

    @property
    def connection(self) -> Any:
        """The virConnect, for this room only."""
        if self._connection is None:
            raise GuestError(f"the connection to libvirt on {self.host} is not open")
        return self._connection

    @property
    def is_alive(self) -> bool:
        """True while the connection works, as far as this side knows. Nothing is asked of the host."""
        return self._connection is not None and self._connection.isAlive() == 1

    def version(self) -> str:
        """Give the version of libvirt on the host, for example `9.0.0`."""
        with translated(f"ask libvirt on {self.host} for its version"):
            number = self.connection.getLibVersion()
        return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"

    def define(self, xml: str) -> None:
        """Define a domain, or replace the definition of the same name and UUID. Raises DomainRejected.

        libvirt validates it against its schema. Reading and compiling the schema takes most of the call's time, so a
        domain that differs only in values from one that this connection accepted is not validated again.
        """
        shape = _VALUES.sub("", xml)
        flags = 0 if shape in self._accepted else libvirt_module().VIR_DOMAIN_DEFINE_VALIDATE
        with translated(f"define the domain on {self.host}", DomainRejected):
            self.connection.defineXMLFlags(xml, flags)
        self._accepted.add(shape)

    def take_name(self, name: str, *, uuid: str) -> bool:
        """Give a domain that is off its name back after somebody renamed it; False when it has it, or is unknown.

        Raises DomainRejected when another domain has the name.
        """
        domain = self._find(name, uuid)
        with translated(f"name the domain {uuid} on {self.host} {name} again", DomainRejected):
            if domain is None or domain.name() == name:
                return False
            domain.rename(name, 0)
        return True

    def start(self, name: str, *, uuid: str | None = None, paused: bool = False) -> bool:
        """Start a defined domain; False when it runs already. Raises DomainRejected."""
        domain = self._domain(name, uuid)
        with translated(f"start domain {name} on {self.host}", DomainRejected):
            if domain.isActive():
                return False
            domain.createWithFlags(libvirt_module().VIR_DOMAIN_START_PAUSED if paused else 0)
        return True

    def shutdown(self, name: str, timeout_s: float, *, uuid: str | None = None) -> bool:
        """Ask the guest to power off, and after `timeout_s` take its power; False when it was off.

        ended_in_order: has the UUIDs of domains whose guests powered off when they were last asked.
        """
        state = self.state(name, uuid=uuid)
        if state is None or not state.is_active():
            return False
        domain = self._domain(name, uuid)
        known = str(domain.UUIDString())
        self.ended_in_order.discard(known)
        library = libvirt_module()
        deadline = time.monotonic() + timeout_s
        try:
            domain.shutdown()
            while time.monotonic() < deadline:
                if not domain.isActive():
                    self.ended_in_order.add(known)
                    return True
                time.sleep(_POLL_S)
        except library.libvirtError as refused:
            # A guest that is paused or went down meanwhile cannot be asked; destroy settles both.
            if error_code(refused) != library.VIR_ERR_OPERATION_INVALID:
                raise translate(refused, f"shut down domain {name} on {self.host}") from refused
        if not self.destroy(name, uuid=uuid):
            self.ended_in_order.add(known)
        return True

    def set_preemption_notice(self, name: str, at: float | None, *, uuid: str | None = None) -> bool:
        """Write into the running domain's metadata when it will be preempted (seconds since the epoch); None: none.

        `virsh metadata NAME urn:vgpuctl:preemption:1` shows it, and libvirt sends a metadata-change event.
        It ends with the domain's run too. Returns False when the domain does not run.
        """
        state = self.state(name, uuid=uuid)
        if state is None or not state.is_active():
            return False
        library = libvirt_module()
        text = None if at is None else f"<preemption at='{format_time_to_second(at)}'/>"
        with translated(f"write a preemption notice into domain {name} on {self.host}"):
            self._domain(name, uuid).setMetadata(
                library.VIR_DOMAIN_METADATA_ELEMENT,
                text,
                "vgpuctl-preemption",
                PREEMPTION_NAMESPACE,
                library.VIR_DOMAIN_AFFECT_LIVE,
            )
        return True

    def destroy(self, name: str, *, uuid: str | None = None) -> bool:
        """Take the domain's power; False when it was off or gone.

        QEMU gets SIGTERM for 60 s before libvirt may use SIGKILL: one that is killed in its first seconds can leave a
        VF that no later guest can use. It can take long to die while the kernel unpins its memory; libvirt then answers
        EBUSY and the call is repeated. killed: has the UUIDs of domains that did not end by SIGTERM.
        """
        library = libvirt_module()
        began = time.monotonic()
        while True:
            state = self.state(name, uuid=uuid)
            if state is None or not state.is_active():
                return False
            try:
                is_forced = time.monotonic() - began > _GRACEFUL_S
                domain = self._domain(name, uuid)
                if is_forced:
                    self.killed.add(str(domain.UUIDString()))
                domain.destroyFlags(0 if is_forced else library.VIR_DOMAIN_DESTROY_GRACEFUL)
            except library.libvirtError as refused:
                # OPERATION_INVALID: it ended meanwhile, which the next look shows.
                passing = (library.VIR_ERR_OPERATION_INVALID, library.VIR_ERR_SYSTEM_ERROR)
                if error_code(refused) not in passing or time.monotonic() - began > _GRACEFUL_S + _DESTROY_LIMIT_S:
                    raise translate(refused, f"destroy domain {name} on {self.host}") from refused
                time.sleep(_POLL_S)
            else:
                return True

    def reset(self, name: str, *, uuid: str | None = None) -> None:
        """Reset the running domain: QEMU keeps running, its guest boots again. Raises DomainRejected."""
        domain = self._domain(name, uuid)
        with translated(f"reset domain {name} on {self.host}", DomainRejected):
            domain.reset(0)

    def undefine(self, name: str, *, uuid: str | None = None, keeps_state: bool = False) -> bool:
        """Remove the definition with its managed save and snapshot metadata; False when it was gone.

        keeps_state: its UEFI variables and its TPM stay, or go too. A TPM of libvirt before 8.9 stays where it is
        persistent, and goes otherwise.
        """
        library = libvirt_module()
        domain = self._find(name, uuid)
        if domain is None:
            return False
        flags = library.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | library.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        with translated(f"undefine domain {name} on {self.host}"):
            # Only the QEMU driver has the others, and libvirt's test driver refuses flags it does not know.
            if self.connection.getType() == "QEMU":
                flags |= library.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                flags |= undefine_state_flags(self.connection.getLibVersion(), keeps_state=keeps_state)
            domain.undefineFlags(flags)
        return True

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
        library = libvirt_module()
        states = {}
        with translated(f"list the domains on {self.host}"):
            for domain in self.connection.listAllDomains(0):
                try:
                    number, reason = domain.state()
                    state = domain_state(number)
                    states[str(domain.UUIDString())] = NamedState(domain.name(), state, has_failed(state, reason))
                except library.libvirtError as refused:
                    # It went away between the list and the look.
                    if error_code(refused) != library.VIR_ERR_NO_DOMAIN:
                        raise
        return states

    def call_on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a domain starts, ends, is defined, undefined or renamed, and when the connection ends.

        It is called in the thread of libvirt's event loop and must return at once. One watcher per connection.
        """
        library = libvirt_module()
        with translated(f"watch the domains on {self.host}"):
            self._watch = self.connection.domainEventRegisterAny(
                None, library.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *_: changed(), None
            )
            self.connection.registerCloseCallback(lambda *_: changed(), None)

    def domains(self) -> list[DomainFact]:
        """Read all domains of the host, ours and others, by name."""
        library = libvirt_module()
        facts = []
        with translated(f"list the domains on {self.host}"):
            for domain in self.connection.listAllDomains(0):
                try:
                    facts.append(self._fact(domain))
                except library.libvirtError as refused:
                    # It went away between the list and the look.
                    if error_code(refused) != library.VIR_ERR_NO_DOMAIN:
                        raise
        return sorted(facts, key=lambda fact: fact.name)

    def _fact(self, domain: Any) -> DomainFact:
        """Read one domain. Raises GuestError, which names it: nobody may take it for one that is not there."""
        state = domain_state(domain.state()[0])
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

    def clear_autostart(self, name: str, *, uuid: str | None = None) -> bool:
        """Keep libvirt from starting the domain with the host; False when it did not, or the domain is unknown."""
        domain = self._find(name, uuid)
        with translated(f"clear autostart of domain {name} on {self.host}"):
            if domain is None or not domain.autostart():
                return False
            domain.setAutostart(0)
        return True

    def set_cpus(self, name: str, vcpus: Sequence[Sequence[int]], *, uuid: str | None = None) -> bool:
        """Keep each vCPU of a running domain on these host CPUs, and its emulator on all of them; False when it was so.

        A domain that is off, or gone, stays as it is: the next start defines it again.
        """
        library = libvirt_module()
        domain = self._find(name, uuid)
        with translated(f"set the CPUs of domain {name} on {self.host}"):
            if domain is None or not domain.isActive():
                return False
            count = self.connection.getInfo()[2]
            wanted = [tuple(cpu in cpus for cpu in range(count)) for cpus in vcpus]
            if [tuple(one) for one in domain.vcpuPinInfo()] == wanted:
                return False
            # libvirt's test driver knows no flags of pinVcpuFlags and keeps no definition apart.
            keeps_definition = self.connection.getType() == "QEMU"
            emulator = tuple(map(any, zip(*wanted, strict=True)))
            for number, cpus in enumerate(wanted):
                domain.pinVcpu(number, cpus)
                if keeps_definition:
                    domain.pinVcpuFlags(number, cpus, library.VIR_DOMAIN_AFFECT_CONFIG)
            domain.pinEmulator(emulator, library.VIR_DOMAIN_AFFECT_LIVE)
            if keeps_definition:
                domain.pinEmulator(emulator, library.VIR_DOMAIN_AFFECT_CONFIG)
        return True

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

    def networks(self) -> dict[str, bool]:
        """Read the host's networks: name → whether it is active."""
        with translated(f"list the networks on {self.host}"):
            return {
                network.name(): bool(network.isActive())
                for network in sorted(self.connection.listAllNetworks(0), key=lambda network: network.name())
            }

    def check_network(self, name: str) -> None:
        """Accept an active network. Raises NetworkMissing that lists what there is."""
        networks = self.networks()
        if networks.get(name):
            return
        context = [f"{other}: {'active' if active else 'not active'}" for other, active in networks.items()]
        if name in networks:
            raise NetworkMissing(
                f"network {name!r} on {self.host} is not active",
                context=context,
                hint=f"run `virsh net-start {name}` and `virsh net-autostart {name}` on the host",
            )
        raise NetworkMissing(
            f"{self.host} has no network {name!r}",
            context=context or ["the host has no network at all"],
            hint="choose one of these with --network, or none with --network none",
        )

    def _find(self, name: str, uuid: str | None = None) -> Any:
        """The domain of the UUID, whatever somebody named it; without a UUID the one of the name. None for none."""
        library = libvirt_module()
        try:
            with timed("libvirt-call", action=f"find domain {name} on {self.host}"):
                if uuid is not None:
                    return self.connection.lookupByUUIDString(uuid)
                return self.connection.lookupByName(name)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_DOMAIN:
                return None
            raise translate(refused, f"find domain {name} on {self.host}") from refused

    def _domain(self, name: str, uuid: str | None = None) -> Any:
        domain = self._find(name, uuid)
        if domain is None:
            raise GuestError(f"{self.host} has no domain {name}", hint="run `vgpuctl repair` to compare store and host")
        return domain
