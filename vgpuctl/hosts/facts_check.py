# SPDX-License-Identifier: Apache-2.0
"""Rules for facts beyond their types, on which placement, domains and the store rely."""

import re
from collections.abc import Iterator, Sequence

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.facts import FabricFacts, Gpu, GpuTopology, HostFacts
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.agent.wire.migration import LONGEST_METADATA, GpuMigration

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ID = re.compile(r"[0-9a-f]{4}")
_CPU = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
_CPUS = re.compile(rf"{_CPU}(?:,{_CPU})*")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_DRIVER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,4}")
_VGPU = re.compile(rf"{_ADDRESS.pattern}|{_UUID.pattern}")
_WORD = re.compile(r"[a-z][a-z -]{0,79}")
_MOST_BRIDGES = 64
_MOST_NVLINKS = 256
_MOST_FAULTS = 32
_MOST_GPUS = 1024
_MOST_FUNCTIONS = 65_536
_MOST_CPUS = 65_536
_MOST_MIB = 1 << 40
_MOST_VGPUS = 4096
_MOST_MB_S = 10_000_000
_MOST_STATE_BYTES = 1 << 50
_LONGEST_TEXT = 4096


def check_facts(facts: HostFacts) -> None:
    """Accept facts that a host can have. Raises WireError that names the field."""
    _at_most(facts.cpus, _MOST_CPUS, "cpus")
    for name in ("memory_mib", "memory_available_mib"):
        _at_most(getattr(facts, name), _MOST_MIB, name)
    _at_most(len(facts.gpus), _MOST_GPUS, "gpus")
    _check_nodes(facts.numa_nodes)
    seen: set[str] = set()
    for number, gpu in enumerate(facts.gpus):
        where = f"gpus[{number}]"
        _at_most(gpu.total_vfs, _MOST_FUNCTIONS, f"{where}.total_vfs")
        _at_most(len(gpu.vfs), _MOST_FUNCTIONS, f"{where}.vfs")
        _at_most(gpu.memory_mib or 0, _MOST_MIB, f"{where}.memory_mib")
        _fits(_ID, gpu.vendor_id, f"{where}.vendor_id", "four hex digits")
        _fits(_ID, gpu.device_id, f"{where}.device_id", "four hex digits")
        if gpu.local_cpus:
            _fits(_CPUS, gpu.local_cpus, f"{where}.local_cpus", "a list of CPUs")
        if gpu.topology is not None:
            _check_topology(gpu.topology, f"{where}.topology")
        if gpu.migration is not None:
            _check_migration(gpu.migration, f"{where}.migration")
        for address, field in _addresses(gpu):
            _fits(_ADDRESS, address, f"{where}.{field}", "a PCI address")
            if address in seen:
                raise WireError(f"{where}.{field}", f"{address} is there twice")
            seen.add(address)


def _check_topology(topology: GpuTopology, where: str) -> None:
    """Nearness of two GPUs compares these, so they are few."""
    if topology.root is not None:
        _fits(_ROOT, topology.root, f"{where}.root", "a PCI root such as pci0000:40")
    _at_most(len(topology.bridges), _MOST_BRIDGES, f"{where}.bridges")
    for number, bridge in enumerate(topology.bridges):
        _fits(_ADDRESS, bridge, f"{where}.bridges[{number}]", "a PCI address")
    links = topology.nvlinks or ()
    _at_most(len(links), _MOST_NVLINKS, f"{where}.nvlinks")
    _at_most(sum(len(one.numbers) for one in links), _MOST_NVLINKS, f"{where}.nvlinks")
    for number, one in enumerate(links):
        if one.peer is not None:
            _fits(_ADDRESS, one.peer, f"{where}.nvlinks[{number}].peer", "a PCI address")
        if one.peer_kind is not None:
            _fits(_WORD, one.peer_kind, f"{where}.nvlinks[{number}].peer_kind", "a word")
        for link in one.numbers:
            _at_most(link, _MOST_NVLINKS, f"{where}.nvlinks[{number}].numbers")
    if topology.fabric is not None:
        _check_fabric(topology.fabric, f"{where}.fabric")


def _check_fabric(fabric: FabricFacts, where: str) -> None:
    _fits(_WORD, fabric.state, f"{where}.state", "a word")
    if fabric.cluster_uuid is not None:
        _fits(_UUID, fabric.cluster_uuid, f"{where}.cluster_uuid", "a UUID")
    _at_most(len(fabric.faults), _MOST_FAULTS, f"{where}.faults")
    for number, fault in enumerate(fabric.faults):
        _fits(_WORD, fault, f"{where}.faults[{number}]", "a few words")


def _check_migration(migration: GpuMigration, where: str) -> None:
    """Metadata is given to the NVML of other hosts, and estimates count with the numbers."""
    _check_metadata(migration.metadata, f"{where}.metadata")
    _at_most(len(migration.signature or ""), _LONGEST_TEXT, f"{where}.signature")
    _check_driver(migration.host_driver, f"{where}.host_driver")
    for name in ("read_mb_s", "write_mb_s"):
        _at_most(getattr(migration, name) or 0, _MOST_MB_S, f"{where}.{name}")
    _at_most(len(migration.vgpus), _MOST_VGPUS, f"{where}.vgpus")
    for number, one in enumerate(migration.vgpus):
        inside = f"{where}.vgpus[{number}]"
        _check_metadata(one.metadata, f"{inside}.metadata")
        _check_driver(one.guest_driver, f"{inside}.guest_driver")
        _at_most(one.state_bytes or 0, _MOST_STATE_BYTES, f"{inside}.state_bytes")
        if one.device is not None:
            _fits(_VGPU, one.device, f"{inside}.device", "a vGPU")
        if one.vm_uuid is not None:
            _fits(_UUID, one.vm_uuid, f"{inside}.vm_uuid", "a UUID")


def _check_metadata(text: str | None, path: str) -> None:
    if text is not None:
        _at_most(len(text), 2 * LONGEST_METADATA, path)
        _fits(_BASE64, text, path, "Base64")


def _check_driver(text: str | None, path: str) -> None:
    if text is not None:
        _fits(_DRIVER, text, path, "a version")


def _check_nodes(nodes: Sequence[NumaNode]) -> None:
    """No more CPUs in all lists together than a host can have, since placement writes them out."""
    cpus = threads = 0
    for number, node in enumerate(nodes):
        where = f"numa_nodes[{number}]"
        _at_most(node.memory_mib, _MOST_MIB, f"{where}.memory_mib")
        cpus += _count_cpus(node.cpus, f"{where}.cpus") if node.cpus else 0
        threads += sum(_count_cpus(core, f"{where}.cores") for core in node.cores)
        _at_most(cpus, _MOST_CPUS, f"{where}.cpus")
        _at_most(threads, _MOST_CPUS, f"{where}.cores")


def _count_cpus(cpus: str, path: str) -> int:
    _fits(_CPUS, cpus, path, "a list of CPUs")
    ranges = [part.partition("-") for part in cpus.split(",")]
    counts = [int(last or first) - int(first) + 1 for first, _, last in ranges]
    if min(counts) < 1:
        raise WireError(path, f"{cpus[:40]!a} has a range that ends before it begins")
    return sum(counts)


def _addresses(gpu: Gpu) -> Iterator[tuple[str, str]]:
    yield gpu.address, "address"
    for number, function in enumerate(gpu.vfs):
        yield function.address, f"vfs[{number}].address"
    for number, companion in enumerate(gpu.companions):
        yield companion.address, f"companions[{number}].address"


def _fits(expression: re.Pattern[str], text: str, path: str, what: str) -> None:
    if not expression.fullmatch(text):
        raise WireError(path, f"{text[:40]!a} is not {what}")


def _at_most(value: int, most: int, path: str) -> None:
    if value > most:
        raise WireError(path, f"{value} is more than {most}")
