# SPDX-License-Identifier: Apache-2.0
"""The life of domains on a host: defined, started, shut down, forced off, undefined. Storage is in storage.py."""

import re
import time
from collections.abc import Callable, Sequence

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.facts.capabilities import undefine_state_flags
from vgpuctl.guests.facts.domain_facts import DomainState, domain_state
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.domain_reader import DomainReader
from vgpuctl.model.rehearsal import Rehearsal
from vgpuctl.model.times import format_time_to_second

PREEMPTION_NAMESPACE = "urn:vgpuctl:preemption:1"
_POLL_S = 0.2
_GRACEFUL_S = 60.0
_DESTROY_LIMIT_S = 60.0
# The values of attributes and the text of elements: what is left of XML without them is its elements and attributes.
_VALUES = re.compile(r"""(?<==)'[^']*'|(?<==)"[^"]*"|(?<=>)[^<]+""")


class Hypervisor(DomainReader):
    """libvirt on one host, as a context manager: what it says (see DomainReader) and changes of its domains.

    Every method that changes something is idempotent and answers whether it changed anything.
    killed: UUIDs of domains that did not end by SIGTERM. ended_in_order: UUIDs of domains whose guests powered off
    when they were last asked.
    """

    def __init__(
        self,
        uri: str,
        *,
        host: str | None = None,
        check: Callable[[str], None] | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        super().__init__(uri, host=host, check=check, rehearsal=rehearsal)
        self.killed: set[str] = set()
        self._accepted: set[str] = set()

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

    def resume(self, name: str, *, uuid: str | None = None) -> None:
        """Let a guest that is paused, or suspended by its power management, go on. Raises DomainRejected."""
        domain = self._domain(name, uuid)
        with translated(f"resume domain {name} on {self.host}", DomainRejected):
            if domain_state(domain.state()[0]) is DomainState.SUSPENDED:
                domain.pMWakeup(0)
            else:
                domain.resume()

    def shutdown(self, name: str, timeout_s: float, *, uuid: str | None = None) -> bool:
        """Ask the guest to power off, and after `timeout_s` take its power; False when it was off."""
        state = self.state(name, uuid=uuid)
        if state is None or not state.is_active():
            return False
        domain = self._domain(name, uuid)
        library = libvirt_module()
        deadline = time.monotonic() + timeout_s
        try:
            domain.shutdown()
            while time.monotonic() < deadline:
                if not domain.isActive():
                    return True
                time.sleep(_POLL_S)
        except library.libvirtError as refused:
            # A guest that is paused or went down meanwhile cannot be asked; destroy settles both.
            if error_code(refused) != library.VIR_ERR_OPERATION_INVALID:
                raise translate(refused, f"shut down domain {name} on {self.host}") from refused
        self.destroy(name, uuid=uuid)
        return True

    def has_shut_down(self, name: str, *, uuid: str | None = None) -> bool:
        """True if the guest of a domain that is off has powered it off, asked or by itself.

        False if it was killed, and after a restart of libvirtd, which then no longer knows.
        """
        library = libvirt_module()
        domain = self._find(name, uuid)
        try:
            ended = (library.VIR_DOMAIN_SHUTOFF, library.VIR_DOMAIN_SHUTOFF_SHUTDOWN)
            return domain is not None and tuple(domain.state()) == ended
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_DOMAIN:
                return False
            raise translate(refused, f"read why domain {name} is off on {self.host}") from refused

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
