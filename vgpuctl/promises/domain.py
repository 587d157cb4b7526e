# SPDX-License-Identifier: Apache-2.0
"""Rows about the running domain: vCPUs, memory, disks, interfaces, display, TPM, as libvirt shows them."""

from collections.abc import Iterator

from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.display import VgpuDisplay, VideoModel
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.interfaces import Interface, host_mac
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.nic import limit_kib_s
from vgpuctl.model.switch import Switch
from vgpuctl.model.units import MIB, format_mib
from vgpuctl.promises.answer import RowAnswer, RowAnswers, not_looked, same
from vgpuctl.promises.witnessed import NotLookedAt, Promised, SeenInterface, Witnessed

_XML = "`virsh dumpxml` on the host shows the domain; a VM that is stopped and started again is defined as promised"
_TWICE = "end the one that is left over with `virsh shutdown` on its host; `vgpuctl gc --dry-run` names it"
_NETWORK = "`virsh net-list --all` on the host; `vgpuctl show-network`; `vgpuctl repair`"
_VOLUME = "`virsh vol-list` on the host; the guest writes into it until it ends, so copy what it has before that"
_BYTES_PER_MB = 1_000_000
_TPM = "2.0"


def runs_once(_promised: Promised, seen: Witnessed) -> RowAnswers:
    """No other host runs it. Nothing is said where none was seen to: not every host was asked just now."""
    for host, words in seen.elsewhere:
        yield RowAnswer("", False, "on its host alone", f"on {host} too: {words}", remedy=_TWICE)


def vcpus(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The number of vCPUs, and the host's CPU of each one that has its own."""
    vm, domain = promised.vm, seen.domain
    own = _own_cpus(promised)
    wanted = [str(vm.request.vcpus), *_cpu_words(vm.request.cpu_weight, vm.request.cpu_limit)]
    wanted += [f"{number} on CPU {cpu}" for number, cpu in own.items()]
    if isinstance(domain, NotLookedAt):
        yield not_looked("", ", ".join(wanted), domain)
        return
    weight = None if vm.request.cpu_weight is None else domain.cpu_weight
    limit = None if vm.request.domain is not None else domain.cpu_limit
    found = [str(domain.vcpus), *_cpu_words(weight, limit)]
    for number in own:
        cpus = ",".join(map(str, sorted(domain.pins.get(number, ())))) or "any"
        found.append(f"{number} on CPU {cpus}")
    yield same("", wanted, found, _XML)


def _cpu_words(weight: int | None, limit: int | None) -> list[str]:
    """libvirt may show the host's usual weight where nobody asked for one, and an adopted domain has its own limit."""
    return [
        *([] if weight is None else [f"weight {weight}"]),
        *([] if limit is None else [f"up to {limit}% of a CPU each"]),
    ]


def memory(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The memory, the size of its pages, and the host's cells that it is bound to."""
    request, numa = promised.vm.request, promised.vm.numa
    cells = frozenset(cell.numa_node for cell in numa.cells) if numa is not None else frozenset[int]()
    wanted = _memory(request.memory_mib, request.hugepages_kib, cells)
    domain = seen.domain
    if isinstance(domain, NotLookedAt):
        yield not_looked("", ", ".join(wanted), domain)
        return
    bound = frozenset(number for numbers, _mib in domain.tuning.memory for number in numbers)
    found = _memory(domain.memory_mib, domain.hugepages_kib, bound if cells else frozenset())
    yield same("", wanted, found, _XML)


def disks(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Each disk: the volume that the domain writes into, its limits, and its size where somebody read it."""
    for name, asked in _asked_disks(promised):
        volume = promised.disks.get(name)
        limits = _limits(asked.iops, None if asked.mbps is None else asked.mbps * _BYTES_PER_MB)
        if volume is None or volume.path is None:
            yield not_looked(name, ", ".join(limits) or "a disk", "the store does not know the path of its volume")
            continue
        if isinstance(seen.domain, NotLookedAt):
            yield not_looked(name, volume.name, seen.domain)
            continue
        sizes = None if volume.capacity_bytes is None or isinstance(seen.sizes, NotLookedAt) else seen.sizes
        if sizes is not None and volume.path not in sizes:
            yield RowAnswer(name, False, volume.name, f"pool {volume.pool} has no such volume", remedy=_VOLUME)
            continue
        disk = next((one for one in seen.domain.disks if one.path == volume.path), None)
        found = [] if disk is None else [volume.name, *_limits(disk.iops, disk.bytes_s)]
        yield same(name, [volume.name, *limits], found, _XML)
        if volume.capacity_bytes is None or isinstance(seen.sizes, NotLookedAt):
            continue
        size = seen.sizes[volume.path]
        is_kept = size >= volume.capacity_bytes
        words = format_mib(volume.capacity_bytes // MIB)
        yield RowAnswer(name, is_kept, words, format_mib(size // MIB), remedy=_XML)


def interfaces(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Each interface: its address, its network, its rate where libvirt limits it, and whether its link is up."""
    places = {one.port.position: one for one in promised.attachments}
    for interface in promised.interfaces:
        place = places.get(interface.position)
        subject = interface.network
        mac = place.port.mac_address if place is not None else host_mac(promised.vm.uuid, interface.position)
        wanted = [mac, *_network_words(interface, place), "link up"]
        if isinstance(seen.domain, NotLookedAt):
            yield not_looked(subject, ", ".join(wanted), seen.domain)
            continue
        there = next((one for one in seen.domain.interfaces if one.mac_address == mac.lower()), None)
        yield same(subject, wanted, [] if there is None else _seen_words(mac, there, place), _XML)
        if place is None or place.network.request.backend is Backend.LIBVIRT:
            name = interface.network if place is None else place.network.host_name
            yield _active(subject, name, seen)


def display(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The display, its emulated adapter, and whether the picture of a vGPU is shown."""
    asked = promised.vm.request.display
    if not asked.has_picture and not asked.shows_vgpu:
        return
    shown = {VgpuDisplay.ON: ["a vGPU's picture"], VgpuDisplay.RAMFB: ["a vGPU's picture with ramfb"]}
    wanted = [
        *([str(asked.kind), str(asked.video or VideoModel.NONE)] if asked.has_picture else []),
        *(shown.get(asked.vgpu, []) if asked.vgpu is not None and promised.leases else []),
    ]
    if isinstance(seen.domain, NotLookedAt):
        yield not_looked("", ", ".join(wanted), seen.domain)
        return
    domain = seen.domain
    found = [str(asked.kind)] if asked.kind is not None and asked.kind in domain.graphics else []
    found += list(domain.video[:1]) if asked.has_picture else []
    found += ["a vGPU's picture with ramfb" if one.endswith("+ramfb") else "a vGPU's picture" for one in domain.shown]
    yield same("", wanted, found, _XML)


def tpm(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The emulated TPM of a VM that has one."""
    if promised.vm.request.tpm is not Switch.ON:
        return
    if isinstance(seen.domain, NotLookedAt):
        yield not_looked("", _TPM, seen.domain)
        return
    yield same("", [_TPM], [seen.domain.tpm] if seen.domain.tpm is not None else [], _XML)


def _own_cpus(promised: Promised) -> dict[int, int]:
    """The host's CPU of each vCPU that has one of its own, by the vCPU's number."""
    numa = promised.vm.numa
    own, first = dict[int, int](), 0
    for cell in () if numa is None else numa.cells:
        own |= {first + number: cpu for number, cpu in enumerate(cell.cpus)}
        first += cell.vcpus
    return own


def _memory(mib: int, page_kib: int | None, cells: frozenset[int]) -> list[str]:
    pages = [] if page_kib is None else [f"pages of {format_page_size(page_kib)}"]
    return [format_mib(mib), *pages, *(f"cell {cell}" for cell in sorted(cells))]


def _asked_disks(promised: Promised) -> Iterator[tuple[str, DiskRequest | DataDisk]]:
    request = promised.vm.request
    if request.disk is not None:
        yield "", request.disk
    for disk in request.data_disks:
        yield disk.name, disk


def _limits(iops: int | None, bytes_s: int | None) -> list[str]:
    return [
        *([] if not iops else [f"{iops} operations a second"]),
        *([] if not bytes_s else [f"{bytes_s / _BYTES_PER_MB:g} MB/s"]),
    ]


def _network_words(interface: Interface, place: Attachment | None) -> list[str]:
    limit = [] if interface.bandwidth_mbps is None else [f"{limit_kib_s(interface.bandwidth_mbps)} KiB/s"]
    if place is None:
        return [interface.network, *limit]
    if place.network.request.backend is Backend.OVN:
        return [f"port {place.port.id}"]
    return [place.network.host_name, place.port.address, *limit]


def _seen_words(mac: str, there: SeenInterface, place: Attachment | None) -> list[str]:
    """The values of the domain's interface, in the form of the promise."""
    link = "link up" if there.is_up else "link down"
    if there.port is not None and place is not None and place.network.request.backend is Backend.OVN:
        return [mac, f"port {there.port}", link]
    network = there.network or "no network of libvirt"
    address = [there.address or "any address"] if place is not None else []
    rates = sorted({one for one in there.kib_s if one is not None})
    return [mac, network, *address, *(f"{rate} KiB/s" for rate in rates), link]


def _active(subject: str, name: str, seen: Witnessed) -> RowAnswer:
    wanted = f"network {name} is active"
    if isinstance(seen.active_networks, NotLookedAt):
        return not_looked(subject, wanted, seen.active_networks)
    is_kept = name in seen.active_networks
    found = wanted if is_kept else f"network {name} is not active"
    return RowAnswer(subject, is_kept, wanted, found, remedy=_NETWORK)
