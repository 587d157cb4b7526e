# SPDX-License-Identifier: Apache-2.0
"""Two simulated hosts, libvirt's own client of both, and domains with a vGPU that it moves and saves."""

import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import fleet, machine
from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop
from vgpuctl_lab.simulated.fleet import shell_command
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import Vgpu

__all__ = ["FLEET", "clean", "fleet", "hosts"]

FLEET = (2, "a40+t4+rtx-3090")
"""What a test file that takes `hosts` has as its FLEET."""
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
LOST = "Failed setting device state to RUNNING_P2P. Recover state is ERROR. Resetting device: Invalid argument"
RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED


PLACE = "<address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/>"
"""Of the device in the guest."""


def of_mdev(name: str) -> str:
    source = f"<source><address uuid='{name}'/></source>"
    return f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'>{source}{PLACE}</hostdev>"


def of_function(function: str) -> str:
    domain, bus, rest = function.split(":")
    slot, _, number = rest.partition(".")
    address = f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{number}'/>"
    return f"<hostdev mode='subsystem' type='pci' managed='no'><source>{address}</source>{PLACE}</hostdev>"


def domain_xml(name: str, devices: str) -> str:
    """A domain with a TPM, whose UUID is a new one."""
    return (
        f"<domain type='kvm'><name>{name}</name><uuid>{uuid.uuid4()}</uuid>"
        f"<memory unit='MiB'>{MEMORY_MIB}</memory><vcpu>2</vcpu>"
        "<os><type arch='i686' machine='pc'>hvm</type></os>"
        f"<devices>{devices}<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices></domain>"
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

    def tpm(self, host: str, vm_uuid: str) -> str:
        return (self.machines[host].root / f"var/lib/libvirt/swtpm/{vm_uuid}/tpm2/tpm2-00.permall").read_text()

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
                domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
            if is_running:
                domain.destroy()
        with hosts.machines[host].change() as state:
            state.vgpus.clear()


class Guest:
    """A domain that runs on the source with one device, and the device that waits for it on the target."""

    def __init__(self, hosts: Hosts, *, is_vf: bool = False, type_there: int = 0, others: str = "") -> None:
        self.hosts = hosts
        self.name = f"guest-{uuid.uuid4().hex[:8]}"
        if is_vf:
            self.here, self.there = hosts.vf(SOURCE), hosts.vf(TARGET)
            element = of_function(self.here)
        else:
            self.here, self.there = hosts.mdev(SOURCE), hosts.mdev(TARGET, type_there)
            element = of_mdev(self.here)
        self.domain = hosts.source.defineXML(domain_xml(self.name, element + others))
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
        state = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_UNPAUSED)
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


def refused(guest: Guest, xml: str | None = None) -> tuple[int, str]:
    """The code and the words of the error that a move ends with."""
    with pytest.raises(libvirt.libvirtError) as caught:
        guest.move(xml=xml)
    assert guest.is_back()
    return caught.value.get_error_code(), caught.value.get_error_message()
