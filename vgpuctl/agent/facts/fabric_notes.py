# SPDX-License-Identifier: Apache-2.0
"""What the agent notes of an NVSwitch fabric, because it is not told later.

modules: the number of each GPU on its baseboard, which NVML tells while NVIDIA's driver has the card and not when a VM
has it. The key is the card's path through the PCI bridges: a card in another slot is not known by it. partitions: those
that the agent activated, for whom. table: a Fabric Manager that was restarted asks for numbers and lists none. The file
outlives the boot.
"""

import json
from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.facts import nvml_gpus, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.decode import WireError, from_json, to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import FabricPartition, UsedPartition
from vgpuctl.agent.wire.facts import Gpu, GpuTopology
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass, replace

PATH = "/etc/vgpuctl/fabric.json"


@dataclass(frozen=True)
class NotedModule:
    """The number of the GPU at a path."""

    path: str
    module: int


@dataclass(frozen=True)
class NotedPartition:
    """A partition that the agent activated in a boot, by its number. since: then, in seconds of uptime."""

    number: int
    used: UsedPartition
    boot_id: str
    since: float


@dataclass(frozen=True)
class NotedSet:
    """A partition of the board, active or not."""

    number: int
    modules: Tuple[int, ...]


@dataclass(frozen=True)
class FabricNotes:
    """The file. table: the partitions that Fabric Manager listed last."""

    modules: Tuple[NotedModule, ...] = ()
    partitions: Tuple[NotedPartition, ...] = ()
    table: Tuple[NotedSet, ...] = ()


def read(host: Host) -> FabricNotes:
    """Read the notes. Raises Problem."""
    try:
        return from_json(FabricNotes, json.loads(host.read_optional(PATH) or "{}"))
    except (WireError, ValueError, RecursionError) as error:
        raise Problem(
            ProblemCode.UNEXPECTED_VALUE,
            f"{PATH} cannot be read: {error}",
            path=PATH,
            hint="stop the VMs whose GPUs are on the fabric, remove the file, and start them again",
        ) from error


def write(host: Host, notes: FabricNotes) -> None:
    """Write the notes where they differ. Raises Problem."""
    if notes != read(host):
        host.put_file(PATH, json.dumps(to_json(notes), indent=1, sort_keys=True).encode() + b"\n", 0o600)


def with_modules(host: Host, gpus: Tuple[Gpu, ...]) -> Tuple[Gpu, ...]:
    """Return the GPUs with the modules that were noted of those of which NVML tells none now. Raises Problem."""
    noted = {one.path: one.module for one in read(host).modules}
    return tuple(_with_module(gpu, noted.get(path_of(host, gpu.address) or "")) for gpu in gpus)


def _with_module(gpu: Gpu, module: Optional[int]) -> Gpu:
    topology = gpu.topology or GpuTopology()
    if module is None or topology.module is not None:
        return gpu
    return replace(gpu, topology=replace(topology, module=module))


def read_modules(host: Host) -> Dict[str, int]:
    """Return the module of each GPU by its address: as NVML tells it now, else as it was noted. Raises Problem."""
    noted = {one.path: one.module for one in read(host).modules}
    paths = {address: path_of(host, address) for address in pci.read_addresses(host)} if noted else {}
    return {**{address: noted[path] for address, path in paths.items() if path in noted}, **_told(host)}


def note_modules(host: Host) -> None:
    """Note what NVML tells of modules now, while the cards are with NVIDIA's driver. Raises Problem."""
    notes = read(host)
    known = {one.path: one.module for one in notes.modules}
    known.update({path: module for address, module in _told(host).items() if (path := path_of(host, address))})
    write(host, replace(notes, modules=tuple(NotedModule(path, known[path]) for path in sorted(known))))


def _told(host: Host) -> Dict[str, int]:
    nvml, _problem = Nvml.open(host)
    if nvml is None:
        return {}
    with nvml:
        gpus = nvml_gpus.read(nvml)[0]
    return {address: gpu.topology.module for address, gpu in gpus.items() if gpu.topology.module is not None}


def path_of(host: Host, address: str) -> Optional[str]:
    """Return the folder of a function below its PCI bridges, None where the kernel does not show it."""
    link = host.link(pci.folder(address))
    return None if link is None else link[link.find("/pci") + 1 :]


def note_listed(host: Host, listed: Sequence[FabricPartition]) -> None:
    """Note which partitions there are, and forget who had those that are not active any more. Raises Problem."""
    table = tuple(NotedSet(one.number, tuple(sorted(one.modules))) for one in listed)
    active = {one.number for one in listed if one.is_active}
    kept = tuple(one for one in noted_partitions(host) if one.number in active)
    write(host, replace(read(host), table=table, partitions=kept))


def noted_partitions(host: Host) -> List[NotedPartition]:
    """Return the notes of this boot: no partition outlives another. Raises Problem."""
    boot_id = read_boot_id(host)
    return [one for one in read(host).partitions if one.boot_id == boot_id]


def read_boot_id(host: Host) -> str:
    """Return the id of the host's boot. Raises Problem."""
    return host.read("/proc/sys/kernel/random/boot_id").strip()


def note_partition(host: Host, number: int, used: Optional[UsedPartition]) -> None:
    """Note whom a partition is activated for, before that is done; None once it is not active. Raises Problem."""
    notes = read(host)
    kept = [one for one in notes.partitions if one.number != number]
    noted = () if used is None else (NotedPartition(number, used, read_boot_id(host), round(host.uptime(), 3)),)
    write(host, replace(notes, partitions=(*kept, *noted)))
