# SPDX-License-Identifier: Apache-2.0
"""The NVSwitch fabric of one host for people and programs: generation, Fabric Manager, modules and lost NVLinks.

The generation is that of NVLink, as the catalogue has it for the GPUs' PCI ids. NVML's version of a link is no source:
its header numbers NVLink 4 as 6 and NVLink 5 as 7, and drivers answer 7 on an H100 (nvml.h, nvmlNvlinkVersion_t).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl import catalog
from vgpuctl.agent.wire.fabric import FabricManagerFacts
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.layout import FabricMode
from vgpuctl.sharing.fabric import has_nvswitch

_SERVICE = "nvidia-fabricmanager.service"


class ManagerState(StrEnum):
    """Fabric Manager's state: it answers, will answer in a moment, or does not."""

    RUNNING = "running"
    STARTING = "starting"
    SILENT = "silent"


@dataclass(frozen=True)
class LostLinks:
    """A GPU that has lost NVLinks to the NVSwitches. gpu: its address, None where nobody knows which GPU it is."""

    module: int
    gpu: str | None
    lost: int
    links: int


@dataclass(frozen=True)
class HostFabric:
    """The NVSwitch fabric of a host.

    nvlink_generation: 3 for A100, 4 for H100 and H200, 5 for B200; None for a GPU that the catalogue does not have.
    switches: addresses of the NVSwitches that links of GPUs with NVIDIA's driver lead to. mode: `bare`, `shared` or
    `vgpu`, None for another FABRIC_MODE or none. manager: None where nobody tells it; address: where it listens;
    problem: why it tells no partitions. modules: the PCI functions of the GPUs by their numbers.
    """

    nvlink_generation: int | None
    switches: tuple[str, ...]
    mode: str | None
    manager: ManagerState | None
    address: str | None
    problem: str | None
    modules: Mapping[int, str]
    lost_links: tuple[LostLinks, ...]


def fabric_of(facts: HostFacts) -> HostFabric | None:
    """The fabric of a host, None for one without NVSwitch: no link leads to one, and it has no Fabric Manager."""
    gpus = [one for one in facts.gpus if has_nvswitch(one)]
    switches = tuple(sorted({peer for gpu in gpus for peer in _switches(gpu)}))
    manager = facts.fabric_manager
    if not gpus or (manager is None and not switches):
        return None
    modules = {module: gpu.address for gpu in gpus if (module := _module(gpu)) is not None}
    return HostFabric(
        max((one for gpu in gpus if (one := _generation(gpu)) is not None), default=None),
        switches,
        mode_word(None if manager is None else manager.mode),
        _state(manager, facts),
        None if manager is None else manager.address,
        None if manager is None else manager.problem,
        dict(sorted(modules.items())),
        _lost_links(manager, gpus),
    )


def mode_word(mode: int | None) -> str | None:
    """FABRIC_MODE as the layout names it, None for one that it has no name for."""
    return next((str(one) for one in FabricMode if one.number == mode), None)


def _generation(gpu: Gpu) -> int | None:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return None if board is None or board.nvlink is None else board.nvlink.generation


def _switches(gpu: Gpu) -> list[str]:
    links = None if gpu.topology is None else gpu.topology.nvlinks
    return [one.peer for one in links or () if one.peer_kind == "switch" and one.peer is not None]


def _state(manager: FabricManagerFacts | None, facts: HostFacts) -> ManagerState | None:
    """What it answers, where it was asked; else what systemd says of its service."""
    if manager is None:
        return None
    if manager.problem is not None:
        return ManagerState.STARTING if manager.is_starting else ManagerState.SILENT
    if manager.partitions is not None:
        return ManagerState.RUNNING
    service = next((one for one in facts.services or () if one.name == _SERVICE), None)
    if service is None:
        return None
    return ManagerState.RUNNING if service.active else ManagerState.SILENT


def _lost_links(manager: FabricManagerFacts | None, gpus: Sequence[Gpu]) -> tuple[LostLinks, ...]:
    """As Fabric Manager counts them, in the partition where the GPU has most links; in mode 0 as NVML shows them.

    In the other modes NVML shows links of a GPU without a partition as it likes.
    """
    addresses = {_module(gpu): gpu.address for gpu in gpus}
    found: dict[int, LostLinks] = {}
    for partition in (manager and manager.partitions) or ():
        for one in partition.gpus:
            if one.links < one.most_links and (one.module not in found or one.most_links > found[one.module].links):
                lost = one.most_links - one.links
                found[one.module] = LostLinks(one.module, addresses.get(one.module), lost, one.most_links)
    for gpu in gpus if manager is not None and manager.mode == FabricMode.BARE.number else ():
        links = (gpu.topology and gpu.topology.nvlinks) or ()
        total = sum(len(one.numbers) for one in links)
        lost = sum(len(one.numbers) for one in links if not one.is_active)
        if (module := _module(gpu)) is not None and 0 < lost < total:  # all of them: they were never trained
            found[module] = LostLinks(module, gpu.address, lost, total)
    return tuple(found[module] for module in sorted(found))


def _module(gpu: Gpu) -> int | None:
    return None if gpu.topology is None else gpu.topology.module
