# SPDX-License-Identifier: Apache-2.0
"""`virsh` of a simulated host: `domstats` and `list`, as an agent reads them.

The VMs of the test driver have no process that could be measured. So the values come from a scenario's curves, else
they are plausible for each VM and only rise.
"""

import zlib
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine.distribution import DOMAINS
from vgpuctl_lab.simulated.machine.sensors import Sensors
from vgpuctl_lab.simulated.machine.state import Domain, MachineFolder

_RUNNING, _BOOTED = 1, 1
_NANO = 1_000_000_000
_WITH_VALUE = ("-c", "--connect")
_DISK_BYTES_PER_S, _BYTES_PER_REQUEST = 200_000, 16_384
_NETWORK_BYTES_PER_S, _BYTES_PER_PACKET = 50_000, 800


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr)."""
    words = _without_options(arguments)
    if not machine.state().services.get("libvirtd.service"):
        socket = "/var/run/libvirt/libvirt-sock-ro"
        said = f"Failed to connect socket to '{socket}': No such file or directory"
        return 1, "", f"error: failed to connect to the hypervisor\nerror: {said}\n"
    if words[:1] == ["domstats"]:
        return 0, "".join(_statistics(machine)), ""
    if words[:1] == ["list"] and "--uuid" in words and "--name" in words:
        domains = machine.state().domains
        return 0, "".join(f"{uuid} {domain.name}\n" for uuid, domain in domains.items()) + "\n", ""
    return 1, "", f"error: unknown command: '{' '.join(words)}'\n"


def _without_options(arguments: Sequence[str]) -> list[str]:
    """The command and its own options, without those of the program before it."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in _WITH_VALUE else 1]
    return words


def _statistics(machine: MachineFolder) -> Iterator[str]:
    sensors = Sensors(machine)
    for uuid, domain in sorted(sensors.state.domains.items(), key=lambda one: one[1].name):
        yield f"Domain: '{domain.name}'\n"
        for key, value in _Vm(machine, sensors, uuid, domain).statistics():
            yield f"  {key}={value}\n"
        yield "\n"


class _Vm:
    """One VM's statistics."""

    def __init__(self, machine: MachineFolder, sensors: Sensors, uuid: str, domain: Domain) -> None:
        self._sensors = sensors
        self._uuid = uuid
        self._age_s = max(sensors.now - domain.started_at, 0.0)
        # How busy it is, by its UUID.
        self._load = (5 + zlib.crc32(uuid.encode()) % 60) / 100
        root = ElementTree.fromstring((machine.root / DOMAINS / f"{domain.name}.xml").read_text())
        found = root.find("domain")
        self._domain = root if found is None else found

    def statistics(self) -> Iterator[tuple[str, str | int]]:
        """Key and value of every statistic, in libvirt's order."""
        vcpus = int(self._domain.findtext("vcpu") or "1")
        cpu_s = self._value("cpu_seconds", self._age_s * vcpus * self._load)
        yield from (("state.state", _RUNNING), ("state.reason", _BOOTED), ("cpu.time", round(cpu_s * _NANO)))
        yield from self._memory()
        yield from (("vcpu.current", vcpus), ("vcpu.maximum", vcpus))
        delay_s = self._value("vcpu_steal_seconds", self._age_s * 0.002 * vcpus)
        for number in range(vcpus):
            yield f"vcpu.{number}.state", _RUNNING
            yield f"vcpu.{number}.time", round(cpu_s / vcpus * _NANO)
            yield f"vcpu.{number}.delay", round(delay_s / vcpus * _NANO)
        yield from self._interfaces()
        yield from self._disks()

    def _memory(self) -> Iterator[tuple[str, int]]:
        memory_kib = int(self._domain.findtext("memory") or "1048576")
        yield "balloon.current", round(self._value("memory_current_bytes", memory_kib * 1024) / 1024)
        yield "balloon.maximum", round(self._value("memory_maximum_bytes", memory_kib * 1024) / 1024)
        yield "balloon.rss", round(self._value("memory_rss_bytes", memory_kib * 1024 * 0.9) / 1024)
        unused = self._sensors.of_vm(self._uuid, "memory_unused_bytes")
        # Only a guest with a balloon device tells it.
        if unused is not None:
            yield "balloon.unused", round(unused / 1024)

    def _interfaces(self) -> Iterator[tuple[str, str | int]]:
        interfaces = self._domain.findall("devices/interface")
        yield "net.count", len(interfaces)
        for number, interface in enumerate(interfaces):
            target = interface.find("target")
            name = f"vnet{number}" if target is None else target.get("dev", f"vnet{number}")
            moved = self._age_s * self._load * _NETWORK_BYTES_PER_S
            yield f"net.{number}.name", name
            for short, direction, errors in (("rx", "received", "receive"), ("tx", "sent", "send")):
                size = round(self._value(f"network_{direction}_bytes/{name}", moved))
                packets = self._value(f"network_{direction}_packets/{name}", size / _BYTES_PER_PACKET)
                yield f"net.{number}.{short}.bytes", size
                yield f"net.{number}.{short}.pkts", round(packets)
                yield f"net.{number}.{short}.errs", round(self._value(f"network_{errors}_errors/{name}", 0))
                yield f"net.{number}.{short}.drop", round(self._value(f"network_{errors}_drops/{name}", 0))

    def _disks(self) -> Iterator[tuple[str, str | int]]:
        disks = [disk for disk in self._domain.findall("devices/disk") if disk.find("target") is not None]
        yield "block.count", len(disks)
        for number, disk in enumerate(disks):
            target, source = disk.find("target"), disk.find("source")
            name = f"vd{number}" if target is None else target.get("dev", f"vd{number}")
            moved = self._age_s * self._load * _DISK_BYTES_PER_S
            yield f"block.{number}.name", name
            if source is not None and source.get("file"):
                yield f"block.{number}.path", source.get("file", "")
            for short, done, request in (("rd", "read", "read"), ("wr", "written", "write")):
                size = round(self._value(f"block_{done}_bytes/{name}", moved))
                requests = self._value(f"block_{request}_requests/{name}", size / _BYTES_PER_REQUEST)
                seconds = self._value(f"block_{request}_seconds/{name}", requests * 0.0005)
                yield f"block.{number}.{short}.reqs", round(requests)
                yield f"block.{number}.{short}.bytes", size
                yield f"block.{number}.{short}.times", round(seconds * _NANO)

    def _value(self, measure: str, otherwise: float) -> float:
        told = self._sensors.of_vm(self._uuid, measure)
        return otherwise if told is None else max(told, 0.0)
