# SPDX-License-Identifier: Apache-2.0
"""libvirt's own client moves running domains between two simulated hosts, as docs/lab.md says; nothing of vgpuctl."""

import shlex
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import Client, fleet, machine
from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop
from vgpuctl_lab.simulated.fleet import shell_command
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.libvirt_wire import Procedure, Reader, Status, text
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import Vgpu

__all__ = ["fleet"]

FLEET = (2, "a40+t4+rtx-3090")
SOURCE, TARGET = "sim-001", "sim-002"
A40, T4, CONSUMER = range(3)
MEMORY_MIB = 512
FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
MIGRATABLE = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
COMPLETED = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED
RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED


def of_mdev(name: str) -> str:
    return f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{name}'/></source></hostdev>"


def of_function(function: str) -> str:
    domain, bus, rest = function.split(":")
    slot, _, number = rest.partition(".")
    address = f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{number}'/>"
    return f"<hostdev mode='subsystem' type='pci' managed='no'><source>{address}</source></hostdev>"


def domain_xml(name: str, devices: str) -> str:
    return (
        f"<domain type='kvm'><name>{name}</name><uuid>{uuid.uuid4()}</uuid>"
        f"<memory unit='MiB'>{MEMORY_MIB}</memory><vcpu>2</vcpu>"
        "<os><type arch='i686' machine='pc'>hvm</type></os>"
        f"<devices>{devices}</devices></domain>"
    )


class Hosts:
    """Both hosts: their machines, and connections of libvirt's client to them."""

    def __init__(self, folder: lab.LabFolder) -> None:
        self.folder = folder
        self.machines = {name: machine(folder, name) for name in (SOURCE, TARGET)}
        self.uris = {name: self._uri(name) for name in self.machines}
        self.open()

    def open(self) -> None:
        """Open every connection anew."""
        self.source = libvirt.open(self.uris[SOURCE])
        self.target = libvirt.open(self.uris[TARGET])
        # libvirt's client (9.0) loses an answer when a thread calls again at once on a connection another one waits at.
        self.watching = libvirt.open(self.uris[SOURCE])
        self.watching_target = libvirt.open(self.uris[TARGET])

    def _uri(self, name: str) -> str:
        """A URI that reaches a host's libvirt by ssh, with the lab's own keys."""
        way = self.folder.path / f"way-to-{name}"
        command = shell_command(name, ("virt-ssh-helper", "qemu:///system"), folder=self.folder)
        way.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
        way.chmod(0o700)
        return f"qemu+ext:///system?command={way}"

    def card(self, host: str, number: int) -> CardShape:
        return self.machines[host].shape.cards[number]

    def mdev(self, host: str, type_number: int = 0) -> str:
        """Make a mediated device on a host's T4. Returns its UUID."""
        card, name = self.card(host, T4), str(uuid.uuid4())
        with self.machines[host].change() as state:
            state.vgpus.append(Vgpu(card.address, card.address, card.types[type_number].type_id, 0, uuid=name))
        return name

    def vf(self, host: str) -> str:
        """Give the first VF of a host's A40 a type. Returns the VF."""
        card = self.card(host, A40)
        with self.machines[host].change() as state:
            function = state.vfs_of(card)[0]
            state.vgpus.append(Vgpu(card.address, function, card.types[0].type_id, 0))
        return function

    def close(self) -> None:
        for one in (self.source, self.target, self.watching, self.watching_target):
            one.close()

    def reboot(self, host: str) -> None:
        lab.simulated.reboot(host, folder=self.folder)

    def fault(self, host: str, kind: str, value: int | None = None) -> None:
        """Let a fault begin, of a card on the T4."""
        card = self.card(host, T4).address if lab.faults.KINDS[kind].of_card else None
        lab.faults.begin(host, kind, value, card=card, folder=self.folder)

    def held(self, host: str) -> dict[str, list[str]]:
        """What the QEMU of each running domain holds, by name."""
        domains = self.machines[host].state().domains.values()
        return {domain.name: [*domain.mdevs, *domain.functions] for domain in domains}

    def states(self, name: str) -> list[tuple[int, int] | None]:
        """State and reason of a domain on the source and on the target, None where it is not."""
        return [_state(connection, name) for connection in (self.watching, self.watching_target)]

    def qemu_log(self, host: str, name: str) -> str:
        return (self.machines[host].root / f"var/log/libvirt/qemu/{name}.log").read_text()

    def kernel_log(self, host: str) -> str:
        return (self.machines[host].root / "dev/kmsg").read_text()

    def vms_of_nvml(self, host: str, number: int) -> list[str]:
        """The VMs of a card's running vGPUs, as NVML tells them."""
        nvml = SimulatedNvml(self.machines[host])
        nvml.init()
        device = nvml.device_get_handle_by_pci_bus_id(self.card(host, number).address)
        return [nvml.vgpu_instance_get_vm_id(one)[0] for one in nvml.device_get_active_vgpus(device)]


@pytest.fixture(scope="module")
def hosts(fleet: lab.LabFolder) -> Iterator[Hosts]:
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    ensure_event_loop()
    found = Hosts(fleet)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def clean(hosts: Hosts) -> Iterator[None]:
    yield
    for host, connection in ((SOURCE, hosts.source), (TARGET, hosts.target)):
        lab.faults.clear(host, folder=hosts.folder)
        for domain in connection.listAllDomains():
            is_running = domain.isActive()
            if domain.isPersistent():
                domain.undefine()
            if is_running:
                domain.destroy()
        with hosts.machines[host].change() as state:
            state.vgpus.clear()


class Guest:
    """A domain that runs on the source with one device, and the device that waits for it on the target."""

    def __init__(self, hosts: Hosts, *, is_vf: bool = False, type_there: int = 0) -> None:
        self.hosts = hosts
        self.name = f"guest-{uuid.uuid4().hex[:8]}"
        if is_vf:
            self.here, self.there = hosts.vf(SOURCE), hosts.vf(TARGET)
            self._element, self._other = of_function(self.here), of_function(self.there)
        else:
            self.here, self.there = hosts.mdev(SOURCE), hosts.mdev(TARGET, type_there)
            self._element, self._other = of_mdev(self.here), of_mdev(self.there)
        self.domain = hosts.source.defineXML(domain_xml(self.name, self._element))
        self.domain.create()
        self.watched = hosts.watching.lookupByName(self.name)

    def target_xml(self) -> str:
        return str(self.domain.XMLDesc(MIGRATABLE)).replace(self.here, self.there)

    def move(self, *, flags: int = FLAGS, xml: str | None = None, **given: str | int) -> libvirt.virDomain:
        xml = xml or self.target_xml()
        wanted = {
            libvirt.VIR_MIGRATE_PARAM_URI: "tcp://127.0.0.1",
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: xml,
            libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: xml,
            **given,
        }
        return self.domain.migrate3(self.hosts.target, wanted, flags)

    @contextmanager
    def moving(self) -> Iterator[list[libvirt.libvirtError]]:
        """Let it move beside the block. Yields the error that the move ends with, once the block has ended."""
        errors: list[libvirt.libvirtError] = []

        def move() -> None:
            try:
                self.move()
            except libvirt.libvirtError as error:
                errors.append(error)

        thread = Thread(target=move)
        thread.start()
        try:
            until(lambda: self.watched.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_UNBOUNDED)
            yield errors
        finally:
            thread.join(20)

    def is_back(self) -> bool:
        """True if it runs on the source alone, with its device, and the target's is free."""
        state = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATION_CANCELED)
        untouched = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
        before, after = self.hosts.states(self.name)
        return (
            before in (state, untouched)
            and after is None
            and self.hosts.held(SOURCE) == {self.name: [self.here]}
            and self.hosts.held(TARGET) == {}
        )


def _state(connection: libvirt.virConnect, name: str) -> tuple[int, int] | None:
    for domain in connection.listAllDomains():
        # A domain that ends meanwhile has no state any more.
        with suppress(libvirt.libvirtError):
            if domain.name() == name:
                state, reason = domain.state()
                return state, reason
    return None


def until(condition: Callable[[], bool], limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("is_vf", [False, True], ids=["mdev", "vf"])
def test_a_running_domain_changes_its_host_and_its_device(hosts: Hosts, is_vf: bool) -> None:
    guest = Guest(hosts, is_vf=is_vf)
    vm_uuid = guest.domain.UUIDString()
    moved = guest.move()
    assert (moved.name(), moved.UUIDString()) == (guest.name, vm_uuid)
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]
    assert (hosts.held(SOURCE), hosts.held(TARGET)) == ({}, {guest.name: [guest.there]})
    assert moved.isPersistent()
    number = A40 if is_vf else T4
    assert (hosts.vms_of_nvml(SOURCE, number), hosts.vms_of_nvml(TARGET, number)) == ([], [vm_uuid])
    stats = moved.jobStats(COMPLETED)
    assert (stats["operation"], stats["memory_total"]) == (
        libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN,
        MEMORY_MIB << 20,
    )
    assert 0 < stats["downtime"] < stats["time_elapsed"]
    assert "reason=migrated" in hosts.qemu_log(SOURCE, guest.name)
    assert "Failed" not in hosts.qemu_log(TARGET, guest.name)


def test_a_move_that_is_not_persistent_leaves_the_source_defined_and_the_target_transient(hosts: Hosts) -> None:
    guest = Guest(hosts)
    moved = guest.move(flags=libvirt.VIR_MIGRATE_LIVE)
    assert hosts.states(guest.name)[0] == (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED)
    assert not moved.isPersistent()
    assert guest.domain.jobStats(COMPLETED)["operation"] == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT


def test_both_hosts_tell_what_qemu_tells(hosts: Hosts) -> None:
    guest = Guest(hosts)
    seen: dict[str, list[tuple[int, int]]] = {SOURCE: [], TARGET: []}

    def note(_connection: object, domain: libvirt.virDomain, event: int, detail: int, host: str) -> None:
        if domain.name() == guest.name:
            seen[host].append((event, detail))

    both = ((SOURCE, hosts.source), (TARGET, hosts.target))
    numbers = [
        one.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, note, name) for name, one in both
    ]
    try:
        guest.move()
        until(lambda: len(seen[SOURCE]) >= 3 and len(seen[TARGET]) >= 3)
    finally:
        for number, (_, one) in zip(numbers, both, strict=True):
            one.domainEventDeregisterAny(number)
    assert seen[SOURCE] == [
        (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_UNDEFINED, libvirt.VIR_DOMAIN_EVENT_UNDEFINED_REMOVED),
    ]
    assert seen[TARGET] == [
        (libvirt.VIR_DOMAIN_EVENT_STARTED, libvirt.VIR_DOMAIN_EVENT_STARTED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_DEFINED, libvirt.VIR_DOMAIN_EVENT_DEFINED_ADDED),
        (libvirt.VIR_DOMAIN_EVENT_RESUMED, libvirt.VIR_DOMAIN_EVENT_RESUMED_MIGRATED),
    ]


def refused(guest: Guest, xml: str) -> tuple[int, str]:
    """The code and the words of the error that a move ends with."""
    with pytest.raises(libvirt.libvirtError) as caught:
        guest.move(xml=xml)
    assert guest.is_back()
    return caught.value.get_error_code(), caught.value.get_error_message()


def test_the_target_needs_the_device(hosts: Hosts) -> None:
    guest = Guest(hosts)
    missing = str(uuid.uuid4())
    xml = guest.target_xml().replace(guest.there, missing)
    assert refused(guest, xml=xml) == (
        libvirt.VIR_ERR_DEVICE_MISSING,
        f"device not found: mediated device '{missing}' not found",
    )


def test_the_target_needs_a_device_that_is_free(hosts: Hosts) -> None:
    guest = Guest(hosts, is_vf=True)
    other = hosts.target.createXML(domain_xml("other", of_function(guest.there)))
    with pytest.raises(libvirt.libvirtError, match=f"PCI device {guest.there} is in use") as caught:
        guest.move()
    assert caught.value.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID
    assert hosts.held(TARGET) == {"other": [guest.there]}
    other.destroy()
    assert guest.is_back()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "<vcpu placement='static'>2<",
            "<vcpu placement='static'>4<",
            "Target domain vCPU max 4 does not match source 2",
        ),
        (f"<memory unit='KiB'>{MEMORY_MIB << 10}<", "<memory unit='KiB'>65536<", "max memory 65536 does not match"),
        ("machine='pc'", "machine='q35'", "Target domain machine type q35 does not match source pc"),
        ("<uuid>", "<uuid>0000", "Target domain uuid 0000"),
        ("<name>", "<name>x", "Target domain name 'x"),
        ("</devices>", "<interface type='user'/></devices>", "Target domain net card count 1 does not match source 0"),
    ],
    ids=["vcpus", "memory", "machine", "uuid", "name", "devices"],
)
def test_the_guest_must_see_the_same_machine(hosts: Hosts, old: str, new: str, words: str) -> None:
    guest = Guest(hosts)
    assert old in guest.target_xml()
    code, said = refused(guest, xml=guest.target_xml().replace(old, new, 1))
    assert code == libvirt.VIR_ERR_CONFIG_UNSUPPORTED
    assert said.startswith("unsupported configuration: ")
    assert words in said


@pytest.mark.parametrize(
    ("host", "kind", "words", "log"),
    [
        (SOURCE, "move-unsupported", "cannot migrate domain: {here}: VFIO migration is not supported in kernel", ""),
        (SOURCE, "move-untracked", "{here}: VFIO device doesn't support device and IOMMU dirty tracking", ""),
        (SOURCE, "move-refused", "job 'migration out' unexpectedly failed", "{here}: the state cannot be saved"),
        (SOURCE, "move-read-error", "job 'migration out' unexpectedly failed", "failed after 65536 bytes"),
        (TARGET, "move-header-refused", "load of migration failed: Invalid argument", "the state's header was refused"),
        (TARGET, "move-port", f"unable to connect to server at '{TARGET}:49152': Connection refused", ""),
    ],
    ids=lambda value: value if str(value).startswith("move-") else "",
)
def test_the_source_goes_on_after_a_move_that_fails(hosts: Hosts, host: str, kind: str, words: str, log: str) -> None:
    guest = Guest(hosts)
    hosts.fault(host, kind)
    _, said = refused(guest, xml=guest.target_xml())
    assert words.format(here=guest.here) in said
    assert log.format(here=guest.here) in hosts.kernel_log(host)


LOST = "Failed setting device state to RUNNING_P2P. Recover state is ERROR. Resetting device: Invalid argument"


def test_a_state_that_the_target_refuses_late_is_lost_and_the_move_succeeds(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(TARGET, "move-load-refused")
    moved = guest.move()
    assert tuple(moved.state()) == (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)
    assert hosts.held(TARGET) == {guest.name: [guest.there]}
    assert f"{guest.there}: {LOST}" in hosts.qemu_log(TARGET, guest.name)
    assert f"NVRM: vGPU migration: {guest.there}: the state was refused" in hosts.kernel_log(TARGET)


@pytest.mark.parametrize("is_early", [False, True], ids=["late", "early"])
def test_a_state_of_another_type_is_refused(hosts: Hosts, is_early: bool) -> None:
    guest = Guest(hosts, type_there=1)
    if is_early:
        hosts.fault(TARGET, "move-checked-early")
        refused(guest, xml=guest.target_xml())
    else:
        guest.move()
        assert LOST in hosts.qemu_log(TARGET, guest.name)
    here, there = (hosts.card(SOURCE, T4).types[number].type_id for number in range(2))
    assert f"NVRM: vGPU migration: source type 0x{here:x}, destination 0x{there:x}" in hosts.kernel_log(TARGET)


def test_a_move_that_stands_still_has_the_same_left_every_time(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving():
        first = guest.watched.jobStats()
        until(lambda: guest.watched.jobStats()["time_elapsed"] > first["time_elapsed"])
        assert guest.watched.jobStats()["data_remaining"] == first["data_remaining"] == MEMORY_MIB << 20
        lab.faults.clear(SOURCE, folder=hosts.folder)
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]


def test_a_guest_that_dirties_its_memory_faster_than_it_is_copied_is_not_moved(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-dirty", 2000)
    with guest.moving() as errors:
        until(lambda: guest.watched.jobStats()["memory_iteration"] > 3)
        assert guest.watched.jobStats()["data_remaining"] > 0
        guest.watched.abortJob()
    assert [error.get_error_code() for error in errors] == [libvirt.VIR_ERR_OPERATION_ABORTED]


def test_the_state_and_its_rate_decide_the_downtime(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-state", 100)
    hosts.fault(TARGET, "move-bandwidth", 200)
    guest.domain.migrateSetMaxDowntime(10_000)
    stats = guest.move(bandwidth=100).jobStats(COMPLETED)
    # 100 MiB of state and 512 MiB of memory at 100 MiB/s; the limit of 200 MiB/s does not matter.
    assert stats["downtime"] == pytest.approx(6120, abs=1)
    hosts.target.lookupByName(guest.name).destroy()


@pytest.mark.parametrize("host", [SOURCE, TARGET])
def test_the_end_of_a_host_ends_a_move(hosts: Hosts, host: str) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        hosts.reboot(host)
    assert len(errors) == 1
    until(lambda: hosts.held(TARGET) == {})
    assert hosts.held(SOURCE) == ({} if host == SOURCE else {guest.name: [guest.here]})
    hosts.open()


@pytest.mark.parametrize("host", [SOURCE, TARGET])
def test_the_end_of_a_libvirtd_ends_a_move_and_no_domain(hosts: Hosts, host: str) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        hosts.fault(host, "libvirtd")
    assert len(errors) == 1
    lab.faults.clear(host, ["libvirtd"], folder=hosts.folder)
    hosts.open()
    until(guest.is_back)


def test_a_whole_card_does_not_move(hosts: Hosts) -> None:
    address = hosts.card(SOURCE, CONSUMER).address
    xml = domain_xml("whole", of_function(address).replace("managed='no'", "managed='yes'"))
    domain = hosts.source.createXML(xml)
    with pytest.raises(
        libvirt.libvirtError, match=f"cannot migrate domain: {address}: VFIO migration is not supported"
    ):
        domain.migrate3(hosts.target, {libvirt.VIR_MIGRATE_PARAM_URI: "tcp://127.0.0.1"}, libvirt.VIR_MIGRATE_LIVE)
    assert domain.isActive()


def test_a_domain_that_is_off_does_not_move(hosts: Hosts) -> None:
    guest = Guest(hosts)
    guest.domain.destroy()
    with pytest.raises(libvirt.libvirtError, match="domain is not running"):
        guest.move()


def test_a_state_that_takes_longer_than_allowed_stalls_until_more_is_allowed(hosts: Hosts) -> None:
    guest = Guest(hosts)
    assert guest.domain.migrateGetMaxDowntime() == 300
    hosts.fault(SOURCE, "move-state", 500)
    with guest.moving() as errors:
        until(lambda: guest.watched.jobStats()["memory_iteration"] > 3)
        stats = guest.watched.jobStats()
        assert stats["data_remaining"] == 0
        assert stats["data_processed"] == stats["data_total"] == MEMORY_MIB << 20
        assert hosts.states(guest.name) == [
            (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED),
            (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
        ]
        assert hosts.held(TARGET) == {guest.name: [guest.there]}
        there = hosts.watching_target.lookupByName(guest.name)
        with pytest.raises(libvirt.libvirtError, match="only on the source host"):
            there.jobInfo()
        guest.watched.migrateSetMaxDowntime(1000)
    assert errors == []
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]


def test_a_move_can_be_aborted(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        guest.watched.abortJob()
    assert [error.get_error_code() for error in errors] == [libvirt.VIR_ERR_OPERATION_ABORTED]
    assert guest.is_back()
    lab.faults.clear(SOURCE, folder=hosts.folder)
    guest.move()


MOVER = """
import libvirt, sys
source, target = map(libvirt.open, sys.argv[1:3])
libvirt.registerErrorHandler(lambda *_: None, None)
xml = sys.stdin.read()
given = {libvirt.VIR_MIGRATE_PARAM_URI: "tcp://127.0.0.1", libvirt.VIR_MIGRATE_PARAM_DEST_XML: xml}
source.lookupByName(sys.argv[3]).migrate3(target, given, libvirt.VIR_MIGRATE_LIVE)
"""


def test_a_client_that_is_killed_while_it_copies_leaves_the_source_alone(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    arguments = [sys.executable, "-c", MOVER, hosts.uris[SOURCE], hosts.uris[TARGET], guest.name]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        client.stdin.write(guest.target_xml())
        client.stdin.close()
        until(lambda: guest.watched.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_UNBOUNDED and bool(hosts.held(TARGET)))
        client.kill()
    until(guest.is_back)
    until(lambda: guest.watched.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_NONE)


def test_a_client_that_goes_before_the_target_runs_leaves_the_source_paused(hosts: Hosts) -> None:
    guest, folder = Guest(hosts), simulated_folder(hosts.folder)
    raw = text(guest.name) + guest.domain.UUID() + struct.pack(">i", guest.domain.ID())
    given = struct.pack(">I", 1) + text("destination_xml") + struct.pack(">I", 7) + text(guest.target_xml())
    flags = struct.pack(">I", FLAGS)
    with closing(Client(folder, SOURCE)) as source, closing(Client(folder, TARGET)) as target:
        (begun,) = source.call(Procedure.DOMAIN_MIGRATE_BEGIN3_PARAMS, raw + given + flags)
        cookie = text(Reader(begun.body).text())
        (prepared,) = target.call(Procedure.DOMAIN_MIGRATE_PREPARE3_PARAMS, given + cookie + flags)
        cookie = text(Reader(prepared.body).text())
        (done,) = source.call(Procedure.DOMAIN_MIGRATE_PERFORM3_PARAMS, raw + bytes(4) + given + cookie + flags)
        assert done.status == Status.OK
        paused = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
        assert hosts.states(guest.name) == [paused, paused]
    until(lambda: hosts.held(TARGET) == {})
    assert hosts.states(guest.name) == [paused, None]
    assert hosts.held(SOURCE) == {guest.name: [guest.here]}
    guest.domain.resume()
    assert hosts.states(guest.name) == [(RUNNING, libvirt.VIR_DOMAIN_RUNNING_UNPAUSED), None]
