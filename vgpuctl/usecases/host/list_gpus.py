# SPDX-License-Identifier: Apache-2.0
"""list-gpus: every GPU with what the store has promised of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.lookup import board_by_pci
from vgpuctl.model.lease import Lease
from vgpuctl.usecases.support.observations import libvirt_problems, look
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import Survey, survey


@dataclass(frozen=True)
class ListedGpu:
    """One GPU with its board's name and the leases on it. libvirt_problem: why its host's libvirt does not answer."""

    host: str
    board: str
    gpu: Gpu
    leases: tuple[Lease, ...]
    libvirt_problem: str | None = None


def list_gpus(services: Services, *, refresh: bool) -> tuple[Sequence[ListedGpu], Survey]:
    """The GPUs of every host, from cached facts unless refresh; libvirt is asked on the hosts that are read."""
    seen = survey(services, services.hosts(), refresh=refresh)
    look(services, seen.read)
    with services.store.reading() as session:
        leases = session.leases()
        silent = libvirt_problems(session)
    gpus = [
        ListedGpu(
            capacity.name,
            board_name(gpu),
            gpu,
            tuple(lease for lease in leases if lease.host == capacity.name and lease.share.gpu == gpu.address),
            silent.get(capacity.name),
        )
        for capacity in seen.capacities
        for gpu in capacity.facts.gpus
    ]
    return gpus, seen


def board_name(gpu: Gpu) -> str:
    """The driver's name of the GPU, else the catalogue's, else its PCI ids."""
    board = board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")
