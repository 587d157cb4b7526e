# SPDX-License-Identifier: Apache-2.0
"""Two emulated hosts with the same cards, joined by a network, and VMs whose guest says what a move must bring along.

The hosts need QEMU 10 and libvirt 11, as Debian 13 has them: they have the programs of the machine they run on.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import libvirt

import vgpuctl_lab as lab
from tests.lab_fixtures import KernelHost
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.faults import KINDS, SIMULATED_ONLY
from vgpuctl_lab.kernel_faults import START_LIBVIRTD

NAMES = ("a", "b")
CARDS = "a40:vf-profile,a40:mdev-vf,t4:mdev,flex-170:vf,t4:mdev"
OTHER_T4 = "0000:05:00.0"
LIMIT_S = 300.0
LEAST_LIBVIRT = 11_000_000
_SERIAL = "/var/log/libvirt/qemu/{name}.serial"
_LINE = re.compile(r"vgpuctl lab guest: count (\w{8}) sum (\w{8})((?: gpu \w{8} \w{8})*)\r")
# Make the card's VFs if it has none, and give one to the driver that can move it.
_BIND_INTEL = """
cd /sys/bus/pci/devices
if [ $(cat {card}/sriov_numvfs) = 0 ]; then
    echo 0 >{card}/sriov_drivers_autoprobe && echo 4 >{card}/sriov_numvfs || exit 1
fi
echo xe-vfio-pci >{address}/driver_override
[ -e {address}/driver ] || echo {address} >../drivers_probe
"""


class Way(StrEnum):
    """How a host hands out a device; each is one card of CARDS, the first ones, in their order."""

    PROFILE = "vf-profile"
    MDEV_VF = "mdev-vf"
    MDEV_PF = "mdev-pf"
    INTEL = "vf"

    @property
    def card(self) -> str:
        """The card's address."""
        return f"0000:{list(Way).index(self) + 1:02x}:00.0"

    @property
    def is_mdev(self) -> bool:
        """True for a vGPU with a UUID."""
        return self in (Way.MDEV_VF, Way.MDEV_PF)


@dataclass(frozen=True)
class Words:
    """One line of the guest. gpus: of each vGPU the mark and the count that its registers hold; 0 after a reset."""

    count: int
    memory: int
    gpus: tuple[tuple[int, int], ...]


@dataclass
class MoveHost:
    """One of the hosts: commands as root, libvirt, and the state of its kernel module."""

    machine: KernelHost
    record: lab.LabHost
    _connection: libvirt.virConnect | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The host's name."""
        return self.record.name

    def run(self, text: str) -> str:
        """Run shell text as root, which must succeed."""
        code, output, errors = self.machine.run(text)
        assert code == 0, f"{self.name}: {text} ended with {code}\n{output}\n{errors}"
        return output

    @property
    def uri(self) -> str:
        """The address of its libvirt."""
        keys = f"keyfile={self.record.private_key}&known_hosts={self.record.known_hosts}&no_tty=1&no_verify=1"
        return f"qemu+ssh://root@{self.record.address}:{self.record.port}/system?{keys}"

    def connection(self) -> libvirt.virConnect:
        """The connection to its libvirt, opened once."""
        if self._connection is None or not self._connection.isAlive():
            self._connection = libvirt.open(self.uri)
        return self._connection

    def domain(self, name: str) -> libvirt.virDomain:
        """A domain. Raises libvirtError where there is none."""
        return self.connection().lookupByName(name)

    def has_domain(self, name: str) -> bool:
        """True if it has a domain of this name."""
        return name in [one.name() for one in self.connection().listAllDomains()]

    def fault(self, way: Way, kind: str, value: int) -> None:
        """Set a fault of a card; 0 ends it."""
        text = (
            f"exec 3<>/proc/vgpulab/control; echo fault {way.card} {kind} {value} >&3; read -r answer <&3; echo $answer"
        )
        assert self.run(text).strip() == "ok"

    def end_faults(self) -> None:
        """End the faults of moves of all cards."""
        kinds = " ".join(kind for kind in KINDS if kind.startswith("move-") and kind not in SIMULATED_ONLY)
        cards = " ".join(way.card for way in Way if way is not Way.INTEL)
        each = "echo fault $card $kind 0 >/proc/vgpulab/control"
        self.run(f"for card in {cards}; do for kind in {kinds}; do {each}; done; done")

    def forget_domains(self) -> None:
        """End and undefine every domain."""
        for domain in self.connection().listAllDomains():
            if domain.isActive():
                domain.destroy()
            if domain.isPersistent():
                domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)

    def types(self, card: str) -> dict[str, int]:
        """The ids of a card's vGPU types by name."""
        cards = re.split(r"^card ", self.run("cat /proc/vgpulab/cards"), flags=re.MULTILINE)
        (text,) = [one for one in cards if one.startswith(card)]
        return {
            name.split(None, 1)[-1]: int(number)
            for number, name in re.findall(r"^type (\d+) .*?name=(.*)$", text, re.MULTILINE)
        }

    def vgpus(self) -> list[dict[str, str]]:
        """The lines `vgpu` of the module's state, oldest first."""
        lines = self.run("cat /proc/vgpulab/state").splitlines()
        return [dict(word.split("=", 1) for word in line.split()[2:]) for line in lines if line.startswith("vgpu ")]

    def kernel_log(self) -> list[str]:
        """The kernel's lines about moves."""
        return [line for line in self.run("dmesg").splitlines() if "vGPU migration:" in line]

    def reboot(self) -> None:
        """Switch it off and on, and make its VFs again."""
        self.close()
        self.machine.reboot()
        self.run("/usr/lib/nvidia/sriov-manage -e ALL")

    def kill_libvirtd(self) -> None:
        """End libvirtd at once; what it runs goes on."""
        self.close()
        # A zombie still counts as a process.
        self.run("pid=$(cat /run/libvirtd.pid); kill -9 $pid; while [ -e /proc/$pid ]; do sleep 0.1; done")

    def start_libvirtd(self) -> None:
        """Start it unless it runs, as init does on a real host, and wait until it answers."""
        self.run(START_LIBVIRTD)
        wait_for(self._answers, f"libvirt of {self.name} answers")

    def _answers(self) -> bool:
        try:
            return bool(self.connection().getLibVersion())
        except libvirt.libvirtError:
            self.close()
            return False

    def close(self) -> None:
        """End its connections."""
        if self._connection is not None:
            with suppress(libvirt.libvirtError):
                self._connection.close()
            self._connection = None
        self.machine.close()


def words_in(host: MoveHost, path: str, *, after: int = 0) -> Words:
    """Wait until a guest has written a line with a later count to this file of its serial port."""
    found: list[Words] = []

    def has_line() -> bool:
        lines = _LINE.findall(host.machine.run(f"tail -n 3 {path}")[1])
        found[:] = [_words(*one) for one in lines if int(one[0], 16) > after][-1:]
        return bool(found)

    wait_for(has_line, f"a guest counts in {path} of {host.name}")
    return found[0]


def qemu_status(host: MoveHost, name: str) -> str:
    """What the QEMU of a domain says of itself, such as `inmigrate` or `postmigrate`."""
    answer = host.run(f"virsh -q -c qemu:///system qemu-monitor-command {name} --hmp info status")
    return answer.strip().partition("(")[2].rstrip(")") or answer.strip()


@dataclass(frozen=True)
class Device:
    """A vGPU, or an Intel VF, of one host. address: of the function that it is or lies on."""

    host: MoveHost
    way: Way
    address: str
    uuid: str | None

    @property
    def source_xml(self) -> str:
        """The `<address>` of its hostdev's source."""
        if self.uuid is not None:
            return f"<address uuid='{self.uuid}'/>"
        domain, bus, slot, function = re.split("[:.]", self.address)
        return f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"

    def hostdev_xml(self, alias: str) -> str:
        """Its hostdev in a domain."""
        kind = "type='mdev' model='vfio-pci'" if self.uuid is not None else "type='pci' managed='no'"
        source = f"<source>{self.source_xml}</source><alias name='{alias}'/>"
        return f"<hostdev mode='subsystem' {kind}>{source}</hostdev>"

    @property
    def state(self) -> dict[str, str]:
        """Its line in the module's state."""
        found = [
            one for one in self.host.vgpus() if one["function"] == self.address and one["uuid"] == (self.uuid or "-")
        ]
        assert len(found) == 1, f"{self.host.name} has {len(found)} vGPUs on {self.address}"
        return found[0]

    def delete(self) -> None:
        """Remove it, once the VM's QEMU has let go of it."""
        if self.uuid is not None:
            text = f"echo 1 >/sys/bus/mdev/devices/{self.uuid}/remove"
        elif self.way is Way.PROFILE:
            text = f"echo 0 >/sys/bus/pci/devices/{self.address}/nvidia/current_vgpu_type"
        else:
            return
        wait_for(lambda: self.host.machine.run(text)[0] == 0, f"{self.host.name}: {text}")


def make_device(host: MoveHost, way: Way, type_name: str = "", number: int = 1, *, card: str = "") -> Device:
    """Make a vGPU of a type on a card. number: of the VF, from 1, or of the vGPU where there are no VFs."""
    card = card or way.card
    address = card if way is Way.MDEV_PF else f"{card[:8]}{number >> 3:02x}.{number & 7}"
    folder = f"/sys/bus/pci/devices/{address}"
    if way is Way.INTEL:
        host.run(_BIND_INTEL.format(card=way.card, address=address))
        return Device(host, way, address, None)
    type_id = host.types(card)[type_name]
    if way is Way.PROFILE:
        host.run(f"echo {type_id} >{folder}/nvidia/current_vgpu_type")
        return Device(host, way, address, None)
    uuid = str(uuid4())
    host.run(f"echo {uuid} >{folder}/mdev_supported_types/nvidia-{type_id}/create")
    return Device(host, way, address, uuid)


@dataclass(frozen=True)
class Guest:
    """A VM by its devices, with the lab's tiny guest in it."""

    name: str
    uuid: str
    devices: tuple[Device, ...]

    def xml(self) -> str:
        """The definition that its first host gets."""
        hostdevs = "".join(one.hostdev_xml(f"ua-gpu{index}") for index, one in enumerate(self.devices))
        return f"""<domain type='qemu'>
          <name>{self.name}</name><uuid>{self.uuid}</uuid>
          <metadata>{_note(self.devices[0].host)}</metadata>
          <memory unit='MiB'>64</memory><vcpu>1</vcpu>
          <os><type arch='x86_64' machine='q35'>hvm</type>
            <kernel>/run/lab/guest/idle.img</kernel><cmdline>move</cmdline></os>
          <features><acpi/></features>
          <cpu mode='custom' match='exact'><model>qemu64</model></cpu>
          <devices>
            <controller type='usb' model='none'/><memballoon model='none'/>
            <serial type='file'><source path='{_SERIAL.format(name=self.name)}'/></serial>
            {hostdevs}
          </devices></domain>"""

    def start(self) -> libvirt.virDomain:
        """Define and start it on the host of its devices. Raises libvirtError."""
        domain = self.devices[0].host.connection().defineXML(self.xml())
        domain.create()
        return domain

    def says(self, host: MoveHost, *, after: int = 0) -> Words:
        """Wait for a line of the guest with a later count."""
        return words_in(host, _SERIAL.format(name=self.name), after=after)

    def there(self, domain: libvirt.virDomain, devices: Sequence[Device], *, saved: bool = False) -> str:
        """The definition for a target: the source's migratable one, or the saved one, with what is the target's."""
        secure = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE if saved else libvirt.VIR_DOMAIN_XML_SECURE
        if saved:
            text = str(domain.managedSaveGetXMLDesc(secure))
        else:
            text = str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | secure))
        for before, after in zip(self.devices, devices, strict=True):
            assert text.count(before.source_xml) == 1, text
            text = text.replace(before.source_xml, after.source_xml)
        return text.replace(_note(self.devices[0].host), _note(devices[0].host))


def _note(host: MoveHost) -> str:
    """The domain's metadata, which name its host; with the quotation marks of libvirt's answer."""
    return f'<proof:host xmlns:proof="urn:vgpuctl:proof">{host.name}</proof:host>'


def _words(count: str, memory: str, gpus: str) -> Words:
    numbers = [int(word, 16) for word in gpus.split() if word != "gpu"]
    return Words(int(count, 16), int(memory, 16), tuple(zip(numbers[::2], numbers[1::2], strict=True)))


LIVE = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)


def move(
    guest: Guest, devices: Sequence[Device], *, more: Mapping[str, object] | None = None, flags: int = LIVE
) -> libvirt.virDomain:
    """Move a running guest to other devices, client-managed over both connections. Raises libvirtError."""
    domain = guest.devices[0].host.connection().lookupByName(guest.name)
    return move_domain(domain, devices[0].host, guest.there(domain, devices), more=more, flags=flags)


def move_domain(
    domain: libvirt.virDomain,
    target: MoveHost,
    xml: str,
    *,
    more: Mapping[str, object] | None = None,
    flags: int = LIVE,
) -> libvirt.virDomain:
    """Move a running domain to another host, where it gets this definition. Raises libvirtError."""
    domain.migrateSetMaxDowntime(120_000)
    parameters = {
        libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://{target.record.network_address}",
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: xml,
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: xml,
        **(more or {}),
    }
    return domain.migrate3(target.connection(), parameters, flags)


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Poll, with a limit."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.5)


@contextmanager
def two_hosts() -> Iterator[tuple[MoveHost, MoveHost]]:
    """Both hosts, up and with VFs; they go afterwards unless VGPUCTL_MOVES_LAB_FOLDER names the lab's folder."""
    named = os.environ.get("VGPUCTL_MOVES_LAB_FOLDER")
    # Sockets want short paths.
    short = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    folder = lab.LabFolder(Path(named) if named else short / "lab")
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    hosts: list[MoveHost] = []
    try:
        shapes = [parse_host(f"{name}={CARDS}") for name in NAMES]
        for one in lab.up(shapes, folder=folder, memory_mib=2048, say=print):
            hosts.append(MoveHost(KernelHost(one.name, one.inventory, folder), one))
        for host in hosts:
            host.start_libvirtd()
            version = host.connection().getLibVersion()
            assert version >= LEAST_LIBVIRT, f"{host.name} has libvirt {version}: run `make test-moves`"
            host.machine.restore_pristine()
            host.run("/usr/lib/nvidia/sriov-manage -e ALL")
        first, second = hosts
        yield first, second
    finally:
        for host in hosts:
            host.close()
        if not named:
            lab.down(folder=folder, purge=True)
        shutil.rmtree(short, ignore_errors=True)
