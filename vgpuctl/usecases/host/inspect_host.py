# SPDX-License-Identifier: Apache-2.0
"""inspect-host, list-hosts, list-gpus and list-profiles: what the agents read, beside what the store has promised."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType
from vgpuctl.catalog.lookup import board_by_pci
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.lease import Lease
from vgpuctl.planner.layout import plan_host
from vgpuctl.usecases.support.layout_records import shares_made
from vgpuctl.usecases.support.observations import libvirt_problems, look
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import Survey, survey


@dataclass(frozen=True)
class ListedHost:
    """One host of the inventory: its facts, or why it does not answer.

    layout: `as declared`, `2 differences`, or None where no layout is declared. libvirt_problem: why libvirt does not
    answer on a host whose agent does.
    """

    name: str
    facts: HostFacts | None
    problem: VgpuctlError | None
    layout: str | None = None
    libvirt_problem: VgpuctlError | None = None


@dataclass(frozen=True)
class ListedGpu:
    """One GPU with its board's name and the leases on it. libvirt_problem: why its host's libvirt does not answer."""

    host: str
    board: str
    gpu: Gpu
    leases: tuple[Lease, ...]
    libvirt_problem: str | None = None


@dataclass(frozen=True)
class ListedProfile:
    """One vGPU type of one GPU."""

    host: str
    gpu: str
    board: str
    profile: VgpuType


def inspect_host(services: Services, name: str) -> HostFacts:
    """Read one host now and remember the facts."""
    return services.host(name).agent.facts()


def list_hosts(services: Services) -> Sequence[ListedHost]:
    """Read every host now; one that does not answer is a row with its problem."""
    names = services.hosts()
    seen = survey(services, names, refresh=True)
    facts = {capacity.name: capacity.facts for capacity in seen.capacities}
    problems = dict(seen.failures)
    silent = look(services, seen.read)
    return [
        ListedHost(
            name,
            facts.get(name),
            problems.get(name),
            _layout_state(services, name, facts.get(name)),
            silent.get(name),
        )
        for name in names
    ]


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


def list_profiles(services: Services, *, refresh: bool) -> tuple[Sequence[ListedProfile], Survey]:
    """The vGPU types of every GPU and how many more can be created now."""
    gpus, seen = list_gpus(services, refresh=refresh)
    return [
        ListedProfile(listed.host, listed.gpu.address, listed.board, profile)
        for listed in gpus
        for profile in sorted(listed.gpu.types, key=lambda type_: (type_.framebuffer_mib or 0, type_.name))
    ], seen


def _layout_state(services: Services, name: str, facts: HostFacts | None) -> str | None:
    layout = services.inventory.layout(name) if facts is not None else None
    if facts is None or layout is None:
        return None
    with services.store.reading() as session:
        leases = session.leases(host=name)
    plan = plan_host(layout, facts, leases, shares_made(services, name, facts))
    return "as declared" if plan.is_in_layout else f"{len(plan.differences)} differences"


def board_name(gpu: Gpu) -> str:
    """What the driver calls the GPU, else the catalogue, else its PCI ids."""
    board = board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")
