# SPDX-License-Identifier: Apache-2.0
"""Live migration between simulated hosts: what QEMU's driver of libvirt does, on domains of the test driver.

A client carries the calls to both hosts: begin (source), prepare (target), perform (source), finish (target), confirm
(source). docs/lab.md tells the rules.
"""

import asyncio
from asyncio import StreamWriter
from collections.abc import Sequence
from xml.etree import ElementTree

from vgpuctl_lab.simulated import guest_state, moved_disks
from vgpuctl_lab.simulated.libvirt_domains import (
    STATE_PAUSED,
    STATE_RUNNING,
    STATE_SHUTOFF,
    XML_INACTIVE,
    XML_SECURE_MIGRATABLE,
    HostDomains,
    call,
)
from vgpuctl_lab.simulated.libvirt_wire import (
    DomainName,
    ErrorCode,
    Event,
    Packet,
    Procedure,
    Reader,
    Status,
    optional_text,
    read_domain,
    text,
)
from vgpuctl_lab.simulated.libvirt_xml import abi_difference, memory_bytes
from vgpuctl_lab.simulated.machine import migration
from vgpuctl_lab.simulated.machine.transfer import Rates, Transfer
from vgpuctl_lab.simulated.migration_jobs import (
    MIGRATION_IN,
    MIGRATION_OUT,
    NOT_RUNNING,
    Incoming,
    MigrationJobs,
    Outgoing,
    statistics,
)

Peers = dict[str, "Moves"]
"""The other hosts of the lab, by name."""
_PERSIST_DEST, _UNDEFINE_SOURCE, _PAUSED = 1 << 3, 1 << 4, 1 << 5
_OFFLINE, _POSTCOPY, _TLS = 1 << 10, 1 << 15, 1 << 16
# Reasons of these states.
_RUNNING_MIGRATED, _RUNNING_CANCELED, _PAUSED_USER, _PAUSED_MIGRATION, _SHUTOFF_MIGRATED = 2, 6, 1, 2, 4
# Details of events.
_STARTED_MIGRATED, _SUSPENDED_MIGRATED, _STOPPED_MIGRATED, _STOPPED_FAILED = 1, 1, 3, 5
_RESUMED_UNPAUSED, _RESUMED_MIGRATED = 0, 1
_FIRST_PORT = 49152
_SCHEMES = ("tcp", "rdma", "unix")
_TICK_S = 0.01
# A move takes this long by the clock, unless a fault makes it slow or it does not end.
_SHOWN_S = 0.2
_UNEXPECTED = "operation failed: job 'migration out' unexpectedly failed"
_LOAD_FAILED = "operation failed: job 'migration in' failed: load of migration failed: Invalid argument"
_QEMU_REFUSES = "internal error: unable to execute QEMU command"
_CERTIFICATE = "etc/pki/qemu/ca-cert.pem"
_NO_CERTIFICATE = (
    f"{_QEMU_REFUSES} 'object-add': Unable to access credentials /{_CERTIFICATE}: No such file or directory"
)


class MoveFailed(Exception):
    """What ends a migration, in libvirt's words."""

    def __init__(self, said: str = _UNEXPECTED, code: ErrorCode = ErrorCode.OPERATION_FAILED) -> None:
        super().__init__(said)
        self.code = code


class Moves:
    """The migrations from and to one host. peers: those of all hosts, by name."""

    def __init__(self, domains: HostDomains, name: str, peers: Peers) -> None:
        self._domains = domains
        self._machine = domains.machine
        self._libvirtd = domains.libvirtd
        self._name = name
        self._peers = peers
        self.jobs = MigrationJobs(domains.machine)
        peers[name] = self

    def close(self) -> None:
        """Be no host's peer any more."""
        self.jobs.forget()
        if self._peers.get(self._name) is self:
            del self._peers[self._name]

    async def client_gone(self, owner: StreamWriter) -> None:
        """Do what libvirt does when a client goes in the middle: what it sends here ends, the source stays as it is."""
        for vm_uuid, job in list(self.jobs.outgoing.items()):
            if job.owner is owner and not job.is_performing:
                del self.jobs.outgoing[vm_uuid]
        for vm_uuid, incoming in list(self.jobs.incoming.items()):
            if incoming.owner is owner:
                del self.jobs.incoming[vm_uuid]
                await self._end_incoming(incoming)

    # On the source

    async def begin(self, owner: StreamWriter, packet: Packet) -> Packet:
        """Answer whether a domain can move, with the XML for the target."""
        reader = Reader(packet.body)
        domain, given, flags = reader.domain(), reader.parameters(), reader.number()
        if domain.uuid not in self._machine.state().domains:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        if self.jobs.has_job(domain.uuid):
            return await self.jobs.refuse(packet)
        refused = await self._refusal(domain, flags)
        if refused:
            return packet.error(f"Requested operation is not valid: {refused}", ErrorCode.OPERATION_INVALID)
        source_xml = await self._domains.xml_of(domain, XML_SECURE_MIGRATABLE)
        target_xml = str(given.get("destination_xml", source_xml))
        difference = abi_difference(source_xml, target_xml, str(given.get("destination_name", domain.name)))
        if difference:
            return packet.error(f"unsupported configuration: {difference}", ErrorCode.CONFIG_UNSUPPORTED)
        unsafe = await moved_disks.refusal_at_source(self._libvirtd, source_xml, flags)
        if unsafe:
            return packet.error(*unsafe)
        volumes = await moved_disks.volumes_of(self._libvirtd, source_xml)
        defined = await self._domains.xml_of(domain, XML_SECURE_MIGRATABLE | XML_INACTIVE)
        persistent = str(given.get("persistent_xml", defined))
        transfer = Transfer(memory_bytes(source_xml), migration.state_bytes(self._machine, domain.uuid))
        state = await self._domains.state_of(domain)
        self.jobs.outgoing[domain.uuid] = Outgoing(domain, owner, transfer, was_running=state == STATE_RUNNING)
        return packet.reply(text(_cookie(self._name, domain, persistent, volumes)) + text(target_xml))

    async def _refusal(self, domain: DomainName, flags: int) -> str | None:
        """Why libvirt refuses to begin, None if it does not."""
        if flags & _OFFLINE:
            return "the lab moves running domains alone"
        answer = await self._libvirtd.call(Procedure.DOMAIN_SNAPSHOT_NUM, domain.encoded + bytes(4))
        snapshots = Reader(answer.body).number() if answer.status == Status.OK else 0
        if snapshots:
            return f"cannot migrate domain with {snapshots} snapshots"
        reasons = migration.blockers(self._machine, domain.uuid)
        return f"cannot migrate domain: {'; '.join(reasons)}" if reasons else None

    async def perform(self, packet: Packet) -> Packet:
        """Copy a domain to the target that waits for it; the answer comes when all of it is there."""
        reader = Reader(packet.body)
        domain, _, given, cookie = reader.domain(), reader.optional_text(), reader.parameters(), reader.text()
        flags = reader.number()
        job = self.jobs.outgoing.get(domain.uuid)
        if job is None:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        job.is_performing = True
        try:
            target = self._target_of(cookie, domain)
            self._check_way(domain.uuid, target, flags, str(given.get("migrate_uri", "")))
            await self._copy(job, target, int(given.get("bandwidth", 0)))
        except MoveFailed as failed:
            self.jobs.outgoing.pop(domain.uuid, None)
            await self._go_on(job)
            return packet.error(str(failed), failed.code)
        finally:
            job.is_performing = False
        if job.owner.is_closing():
            # Nobody can tell any more whether the target runs: the source stays paused.
            self.jobs.outgoing.pop(domain.uuid, None)
        return packet.reply(text(cookie))

    def _target_of(self, cookie: str, domain: DomainName) -> "Moves":
        """The host that waits for a domain. Raises MoveFailed."""
        target = self._peers.get(ElementTree.fromstring(cookie).findtext("hostname", ""))
        if target is None or domain.uuid not in target.jobs.incoming:
            raise MoveFailed
        return target

    async def _copy(self, job: Outgoing, target: "Moves", bandwidth_mib: int) -> None:
        """Copy a domain. Raises MoveFailed."""
        uuid, transfer = job.domain.uuid, job.transfer
        began = asyncio.get_running_loop().time()
        incoming = target.jobs.incoming[uuid]
        pace = self._pace(transfer, self._rates(target, uuid, bandwidth_mib))
        while True:
            self._check(job, target, incoming)
            rates = self._rates(target, uuid, bandwidth_mib)
            if transfer.advance(_TICK_S * pace, rates):
                break
            await asyncio.sleep(_TICK_S)
        # Until here a vGPU with PRE_COPY has sent the beginning of its state.
        if migration.cannot_be_read(self._machine, uuid):
            raise _broken(incoming, "Channel error: Input/output error")
        types = migration.types_of(self._machine, uuid)
        if migration.refused_early(target._machine, uuid, types):
            raise _broken(incoming, "Sibling indicated error 1")
        await self._stop(job)
        lost = migration.cannot_be_saved(self._machine, uuid)
        if lost:
            raise _broken(incoming, lost)
        transfer.switch_over(rates)
        await asyncio.sleep(min(transfer.downtime_ms / 1000 / pace, _SHOWN_S))
        self._check(job, target, incoming)
        guest_state.carry(self._machine, target._machine, uuid, incoming.persistent_xml)
        incoming.is_lost = migration.refused_late(target._machine, uuid, types)
        self.jobs.completed[uuid] = statistics(transfer, MIGRATION_OUT, transfer.downtime_ms)
        clock_s = asyncio.get_running_loop().time() - began
        incoming.stats = statistics(transfer, MIGRATION_IN, transfer.downtime_ms, clock_s)

    def _check_way(self, vm_uuid: str, target: "Moves", flags: int, uri: str) -> None:
        """Raises MoveFailed for what QEMU on the source refuses before it copies anything."""
        vgpus = migration.vgpu_names(self._machine, vm_uuid)
        if flags & _POSTCOPY and vgpus:
            said = f"{vgpus[0]}: VFIO migration is not supported with postcopy migration"
            raise MoveFailed(f"{_QEMU_REFUSES} 'migrate': {said}", ErrorCode.INTERNAL_ERROR)
        if flags & _TLS and not (self._machine.root / _CERTIFICATE).is_file():
            raise MoveFailed(_NO_CERTIFICATE, ErrorCode.INTERNAL_ERROR)
        if migration.PORT in target._machine.state().host_faults:
            where = uri.partition("://")[2]
            raise MoveFailed(f"unable to connect to server at '{where}': Connection refused", ErrorCode.SYSTEM_ERROR)

    def _check(self, job: Outgoing, target: "Moves", incoming: Incoming) -> None:
        """Raises MoveFailed for what ends a copying in the middle."""
        if job.is_aborted:
            raise MoveFailed("operation aborted: job 'migration out' canceled by client", ErrorCode.OPERATION_ABORTED)
        if job.domain.uuid not in self._machine.state().domains:
            raise MoveFailed("operation failed: domain is not running")
        is_there = job.domain.uuid in target._machine.state().domains
        if not is_there or target.jobs.incoming.get(job.domain.uuid) is not incoming:
            raise MoveFailed

    def _rates(self, target: "Moves", uuid: str, bandwidth_mib: int) -> Rates:
        return migration.rates(self._machine, target._machine, uuid, bandwidth_mib, self.jobs.max_downtime_ms(uuid))

    def _pace(self, transfer: Transfer, rates: Rates) -> float:
        """How many seconds of the guest pass in one of the clock."""
        expected_s = transfer.expected_s(rates)
        asked_s = self._machine.state().host_faults.get(migration.SECONDS)
        return expected_s / asked_s if asked_s else max(1.0, expected_s / _SHOWN_S)

    async def _stop(self, job: Outgoing) -> None:
        """Stop the guest on the source for the switchover."""
        if job.was_running:
            job.is_suspended = True
            await self._domains.change(Procedure.DOMAIN_SUSPEND, job.domain, Event.SUSPENDED, _SUSPENDED_MIGRATED)
            self._domains.reasons[job.domain.uuid] = (STATE_PAUSED, _PAUSED_MIGRATION)

    async def _go_on(self, job: Outgoing, *, is_confirmed: bool = False) -> None:
        """Let the guest go on on the source: QEMU does it after a copying that failed, else libvirt (is_confirmed)."""
        if job.is_suspended and job.domain.uuid in self._machine.state().domains:
            detail = _RESUMED_MIGRATED if is_confirmed else _RESUMED_UNPAUSED
            await self._domains.change(Procedure.DOMAIN_RESUME, job.domain, Event.RESUMED, detail)
            self._domains.reasons.pop(job.domain.uuid, None)
            if is_confirmed:
                self._domains.reasons[job.domain.uuid] = (STATE_RUNNING, _RUNNING_CANCELED)

    async def confirm(self, packet: Packet) -> Packet:
        """End the domain on the source, or let it go on where the target has failed."""
        reader = Reader(packet.body)
        domain, _, _, flags = reader.domain(), reader.parameters(), reader.text(), reader.number()
        is_cancelled = reader.number()
        job = self.jobs.outgoing.pop(domain.uuid, None)
        if job is None:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        if is_cancelled:
            self.jobs.completed.pop(domain.uuid, None)
            await self._go_on(job, is_confirmed=True)
            return packet.reply()
        async with self._domains.lock:
            await self._domains.change(Procedure.DOMAIN_DESTROY, domain, Event.STOPPED, _STOPPED_MIGRATED)
            await self._domains.note_ends(reason="migrated")
            self.jobs.forget_downtime(domain.uuid)
            self._domains.reasons[domain.uuid] = (STATE_SHUTOFF, _SHUTOFF_MIGRATED)
            if flags & _UNDEFINE_SOURCE:
                await self._libvirtd.call(Procedure.DOMAIN_UNDEFINE, domain.encoded)
                await self._domains.forget_undefined()
        return packet.reply()

    # On the target

    async def prepare(self, owner: StreamWriter, packet: Packet) -> Packet:
        """Start a QEMU that waits for a domain; its devices must be there and free."""
        reader = Reader(packet.body)
        given, cookie = reader.parameters(), ElementTree.fromstring(reader.text())
        xml = str(given["destination_xml"])
        vm_uuid, flags = cookie.findtext("uuid", ""), reader.number()
        volumes = [str(one.text) for one in cookie.iterfind("volume")]
        uri = str(given.get("migrate_uri", f"tcp://{self._machine.shape.hostname}"))
        scheme = uri.partition(":")[0]
        if scheme not in _SCHEMES:
            said = f"argument unsupported: unsupported scheme {scheme} in migration URI {uri}"
            return packet.error(said, ErrorCode.ARGUMENT_UNSUPPORTED)
        if flags & _TLS and not (self._machine.root / _CERTIFICATE).is_file():
            return packet.error(_NO_CERTIFICATE)
        missing = await moved_disks.refusal_at_target(self._libvirtd, xml, volumes, flags)
        if missing:
            return packet.error(*missing)
        async with self._domains.lock:
            self._libvirtd.rename_next(vm_uuid, Event.STARTED, _STARTED_MIGRATED)
            answer = await self._domains.run_xml(call(Procedure.DOMAIN_CREATE_XML, text(xml) + bytes(4)))
            if answer.status != Status.OK:
                self._libvirtd.take_back(vm_uuid, Event.STARTED)
                return packet.reply(answer.body, answer.status)
            domain = read_domain(answer.body)
            await self._domains.change(Procedure.DOMAIN_SUSPEND, domain, Event.SUSPENDED, None)
            self._domains.reasons[vm_uuid] = (STATE_PAUSED, _PAUSED_MIGRATION)
            self.jobs.incoming[vm_uuid] = Incoming(domain, owner, cookie.findtext("persistent", xml))
        if owner.is_closing():
            await self.client_gone(owner)
        return packet.reply(text(_cookie(self._name, domain)) + optional_text(_with_port(uri)))

    async def finish(self, packet: Packet) -> Packet:
        """Let the domain run here, or end it where the source has failed."""
        reader = Reader(packet.body)
        given, _, flags = reader.parameters(), reader.text(), reader.number()
        is_cancelled = reader.number()
        name = str(given.get("destination_name", ""))
        incoming = next((one for one in self.jobs.incoming.values() if one.domain.name == name), None)
        if incoming is None:
            said = f"Domain not found: no domain with matching name '{name}'"
            return packet.error(said, ErrorCode.NO_DOMAIN)
        del self.jobs.incoming[incoming.domain.uuid]
        if is_cancelled:
            await self._end_incoming(incoming)
            if incoming.is_broken:
                return packet.error(_LOAD_FAILED, ErrorCode.OPERATION_FAILED)
            return packet.error("migration successfully aborted", ErrorCode.MIGRATE_FINISH_OK)
        domain = incoming.domain
        if domain.uuid not in self._machine.state().domains:
            return packet.error("internal error: guest unexpectedly quit")
        async with self._domains.lock:
            if flags & _PERSIST_DEST:
                await self._domains.define_xml(incoming.persistent_xml)
            if incoming.is_lost:
                migration.lose_state(self._machine, domain.uuid)
            self._domains.reasons[domain.uuid] = (STATE_PAUSED, _PAUSED_USER)
            if not flags & _PAUSED:
                await self._domains.change(Procedure.DOMAIN_RESUME, domain, Event.RESUMED, _RESUMED_MIGRATED)
                self._domains.reasons[domain.uuid] = (STATE_RUNNING, _RUNNING_MIGRATED)
            self.jobs.completed[domain.uuid] = incoming.stats
        return packet.reply(domain.encoded + text(_cookie(self._name, domain)))

    async def _end_incoming(self, incoming: Incoming) -> None:
        async with self._domains.lock:
            await self._domains.change(Procedure.DOMAIN_DESTROY, incoming.domain, Event.STOPPED, _STOPPED_FAILED)
            await self._domains.note_ends(reason="failed")
            self._domains.reasons.pop(incoming.domain.uuid, None)


def _broken(incoming: Incoming, said: str) -> MoveFailed:
    """The failure of a source whose target cannot load what it has got."""
    incoming.is_broken = True
    return MoveFailed(f"operation failed: job 'migration out' failed: {said}")


def _cookie(host: str, domain: DomainName, persistent_xml: str | None = None, volumes: Sequence[str] = ()) -> str:
    """What one host lets the client tell the other one. volumes: targets of the disks that are volumes."""
    root = ElementTree.Element("qemu-migration")
    values = {"name": domain.name, "uuid": domain.uuid, "hostname": host, "persistent": persistent_xml}
    for name, value in values.items():
        if value is not None:
            ElementTree.SubElement(root, name).text = value
    for target in volumes:
        ElementTree.SubElement(root, "volume").text = target
    return ElementTree.tostring(root, encoding="unicode")


def _with_port(uri: str) -> str:
    scheme, _, place = uri.partition("://")
    has_port = place.rpartition("]")[2].partition(":")[2]
    return uri if has_port else f"{scheme}://{place}:{_FIRST_PORT}"
