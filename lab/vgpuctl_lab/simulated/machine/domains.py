# SPDX-License-Identifier: Apache-2.0
"""The effects of starting and ending a VM: its QEMU holds devices, libvirt binds functions to vfio-pci."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from vgpuctl_lab.simulated.machine.distribution import DOMAINS
from vgpuctl_lab.simulated.machine.drivers import VFIO, Drivers
from vgpuctl_lab.simulated.machine.shape import VF_PROFILE
from vgpuctl_lab.simulated.machine.state import Domain, MachineFolder, State

QEMU_LOGS = "var/log/libvirt/qemu"
# What leads a line: libvirt's time, and the time and the name that QEMU gives its own messages (`-msg timestamp=on`).
_BY_LIBVIRT = "%Y-%m-%d %H:%M:%S.%f+0000: "
BY_QEMU = "%Y-%m-%dT%H:%M:%S.%fZ qemu-system-x86_64: "
NO_NODES: Mapping[str, int] = {}
WEDGED = "vf-wedged"
# A QEMU killed before this age wedges its VFs.
_YOUNG_S = 60.0
_OF_TEST_DRIVER = re.compile(r"<target dev='testnet\d+'/>")
_TAP = re.compile(r"<target dev='vnet(\d+)'/>")
_INTERFACE = re.compile(r"<interface .*?</interface>", re.DOTALL)


class StartRefused(Exception):
    """Why libvirt or QEMU would not start the VM, in words like theirs."""


@dataclass(frozen=True)
class HostDevice:
    """One `hostdev` of a domain: a mediated device (uuid) or a PCI function, managed by libvirt or not."""

    uuid: str | None = None
    function: str | None = None
    is_managed: bool = False


def start(
    machine: MachineFolder,
    vm_uuid: str,
    name: str,
    devices: Sequence[HostDevice],
    pages: tuple[str, int] | None = None,
    nodes_kib: Mapping[str, int] = NO_NODES,
    xml: str | None = None,
) -> None:
    """Let a VM's QEMU open its devices and take its memory. pages: size in KiB and number of huge pages.

    nodes_kib: how much of the memory must be on which NUMA node. xml: the domain, of which libvirt keeps a file while
    it runs; a small one without it.

    Raises StartRefused; nothing has changed then.
    """
    with machine.change() as state:
        domain = Domain(name, state.next_pid, started_at=state.now())
        state.next_pid += 1
        for wanted in devices:
            if wanted.uuid is not None:
                _open_mdev(machine, state, wanted.uuid, domain)
            elif wanted.function is not None:
                _open_function(machine, state, wanted.function, domain, is_managed=wanted.is_managed)
        if pages is not None:
            _take_pages(machine, state, domain, *pages, nodes_kib)
        state.domains[vm_uuid] = domain
        _keep_file(machine, vm_uuid, domain, None if xml is None else _with_taps(machine, xml))
    version = machine.shape.versions.get("libvirtd", "").rpartition(" ")[2]
    log_of_qemu(machine, name, f"starting up libvirt version: {version}, hostname: {machine.folder.name}")


def log_of_qemu(machine: MachineFolder, name: str, line: str, *, form: str = _BY_LIBVIRT) -> None:
    """Write a line into libvirt's log of a domain's QEMU. form: what leads the line, for datetime.strftime()."""
    path = machine.root / QEMU_LOGS / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.fromtimestamp(machine.state().now(), UTC).strftime(form)
    with path.open("a") as file:
        file.write(f"{now}{line}\n")


def _with_taps(machine: MachineFolder, xml: str) -> str:
    """Name the device of each network interface, as libvirt does: `vnet` and a number that no running VM has.

    libvirt's test driver names those of each domain `testnet0` and so on.
    """
    running = [file.read_text() for file in (machine.root / DOMAINS).glob("*.xml")]
    numbers = itertools.count(max((int(one) for text in running for one in _TAP.findall(text)), default=-1) + 1)

    def named(interface: re.Match[str]) -> str:
        bare = _OF_TEST_DRIVER.sub("", interface[0])
        if "<target" in bare:
            return bare
        return bare.replace("</interface>", f"<target dev='vnet{next(numbers)}'/></interface>")

    return _INTERFACE.sub(named, xml)


def _keep_file(machine: MachineFolder, vm_uuid: str, domain: Domain, xml: str | None) -> None:
    """Write libvirt's file of a running domain."""
    if xml is None:
        name = escape(domain.name)
        xml = f"<domain type='kvm'><name>{name}</name><uuid>{vm_uuid}</uuid><memory>1048576</memory></domain>"
    folder = machine.root / DOMAINS
    folder.mkdir(parents=True, exist_ok=True)
    body = xml[xml.index("<domain") :]
    text = f"<domstatus state='running' reason='booted' pid='{domain.pid}'>\n{body}\n</domstatus>\n"
    (folder / f"{domain.name}.xml").write_text(text)


def end(machine: MachineFolder, running: set[str], *, is_kill: bool = False, reason: str = "destroyed") -> None:
    """Release the devices of every VM that is not among `running`. is_kill: their QEMU got SIGKILL.

    reason: why they ended, as libvirt writes it.
    """
    if not set(machine.state().domains) - running:
        return
    with machine.change() as state:
        for vm_uuid in set(state.domains) - running:
            domain = state.domains.pop(vm_uuid)
            (machine.root / DOMAINS / f"{domain.name}.xml").unlink(missing_ok=True)
            log_of_qemu(machine, domain.name, f"shutting down, reason={reason}")
            if is_kill and state.now() < domain.started_at + _YOUNG_S:
                _wedge(machine, state, domain)
            for vgpu in state.vgpus:
                if vgpu.uuid in domain.mdevs if vgpu.uuid is not None else vgpu.function in domain.functions:
                    vgpu.closed_at = state.now()
            drivers = Drivers(machine, state)
            for function in domain.bound:
                if state.drivers.get(function) == VFIO:
                    state.overrides.pop(function, None)
                    drivers.unbind(VFIO, function)
                    drivers.probe(function)


def _wedge(machine: MachineFolder, state: State, domain: Domain) -> None:
    """A QEMU that is killed early makes its VFs unusable; only a card with the fault shows it."""
    held = [vgpu for vgpu in state.vgpus if vgpu.uuid in domain.mdevs or vgpu.function in domain.functions]
    ailing = {card.address for card in machine.shape.cards if state.fault(card, WEDGED)}
    state.wedged += [vgpu.function for vgpu in held if vgpu.card in ailing and vgpu.function not in state.wedged]


def _refuse_wedged(machine: MachineFolder, state: State, function: str, device: str) -> None:
    if function in state.wedged:
        machine.log("NVRM: GPU 0000:00:00.0: RmInitAdapter failed! (0x22:0x65:884)")
        raise StartRefused(f"vfio {device}: error getting device from group: Input/output error")


def _take_pages(
    machine: MachineFolder, state: State, domain: Domain, size_kib: str, count: int, nodes_kib: Mapping[str, int]
) -> None:
    wanted = {node: kib // int(size_kib) for node, kib in nodes_kib.items()}
    nodes = machine.shape.numa_nodes
    is_short = any(state.node_pages(size_kib, int(node), nodes)[1] < pages for node, pages in wanted.items())
    if is_short or state.hugepages.get(size_kib, 0) - state.used_pages(size_kib) < count:
        raise StartRefused("unable to map backing store for guest RAM: Cannot allocate memory")
    domain.pages[size_kib] = count
    domain.node_pages.update(wanted)


def _open_mdev(machine: MachineFolder, state: State, uuid: str, domain: Domain) -> None:
    vgpu = state.mdev(uuid)
    if vgpu is None:
        raise StartRefused(f"device not found: mediated device '{uuid}' not found")
    _refuse_wedged(machine, state, vgpu.function, uuid)
    if state.holder_of(vgpu) is not None:
        raise StartRefused(f"Requested operation is not valid: mediated device {uuid} is in use by another domain")
    domain.mdevs.append(uuid)


def _open_function(machine: MachineFolder, state: State, function: str, domain: Domain, *, is_managed: bool) -> None:
    drivers = Drivers(machine, state)
    card = drivers.card_of(function)
    if card is None:
        raise StartRefused(f"Device {function} not found: could not access /sys/bus/pci/devices/{function}/config")
    if state.holder_of(function) is not None:
        raise StartRefused(f"Requested operation is not valid: PCI device {function} is in use by another domain")
    _refuse_wedged(machine, state, function, function)
    has_vgpu = any(vgpu.function == function for vgpu in state.vgpus)
    if card.interface == VF_PROFILE and function != card.address:
        if is_managed:
            raise StartRefused(f"Unable to bind {function} to vfio-pci: a vGPU's VF stays on the driver nvidia")
        if not has_vgpu:
            raise StartRefused(f"vfio {function}: error getting device from group: Input/output error")
    elif state.drivers.get(function) != VFIO:
        if not is_managed:
            raise StartRefused(
                f"vfio {function}: no VFIO device, the driver is {state.drivers.get(function) or 'none'}"
            )
        _move_to_vfio(drivers, state, function)
        domain.bound.append(function)
    # vfio-pci resets a function when it is opened (Linux drivers/vfio/pci/vfio_pci_core.c).
    state.stopped_vfs = [one for one in state.stopped_vfs if one != function]
    domain.functions.append(function)


def _move_to_vfio(drivers: Drivers, state: State, function: str) -> None:
    state.overrides[function] = VFIO
    previous = state.drivers.get(function)
    try:
        if previous is not None:
            drivers.unbind(previous, function)
        drivers.probe(function)
    except OSError as error:
        raise StartRefused(f"Failed to bind PCI device {function} to vfio-pci: {error.strerror}") from error
