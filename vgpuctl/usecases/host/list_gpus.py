# SPDX-License-Identifier: Apache-2.0
"""list-gpus: every GPU with what the store has promised of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.lookup import board_by_pci
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.lease import Lease
from vgpuctl.sharing.gate import closed_functions, refuse_closed_gpu, refuse_closed_host
from vgpuctl.sharing.offer import Refusal
from vgpuctl.usecases.support.gpu_health import look_at_health
from vgpuctl.usecases.support.observations import (
    NEVER_OBSERVED,
    Observation,
    ObservedHost,
    describe_age,
    libvirt_problems,
    look,
    missing_gpus,
    observed_hosts,
)
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import Survey, survey


@dataclass(frozen=True)
class ListedGpu:
    """One GPU with its board's name and the leases on it. libvirt_problem: why its host's libvirt does not answer.

    observation: `present`, `unreadable` or `missing`; seen: the same in words, with its age. gpu: of a GPU that is
    missing, the last reading.
    closed: why it takes no new VM whatever is free: cordoned, in quarantine, or its host is closed. closed_vfs: the
    same of single VFs, by address.
    layout_differences: of its host to the declared layout when the controller last compared; None when it never did.
    """

    host: str
    board: str
    gpu: Gpu
    leases: tuple[Lease, ...]
    libvirt_problem: str | None = None
    observation: Observation = NEVER_OBSERVED
    seen: str = ""
    closed: Refusal | None = None
    closed_vfs: Mapping[str, str] = field(default_factory=dict)
    layout_differences: tuple[str, ...] | None = None


def list_gpus(services: Services, *, refresh: bool) -> tuple[Sequence[ListedGpu], Survey]:
    """The GPUs of every host, from cached facts unless refresh; libvirt is asked on the hosts that are read."""
    seen = survey(services, services.hosts(), refresh=refresh)
    look(services, seen.read)
    look_at_health(services, seen.read)
    with services.store.reading() as session:
        leases = session.leases()
        silent = libvirt_problems(session)
        hosts = observed_hosts(session)
        missing = missing_gpus(session)
        now = session.now()
        restrictions = tuple(session.restrictions())  # with those that this look has set
    rules = {one.name: replace(one.rules, restrictions=restrictions) for one in seen.capacities}
    wanted = set(services.hosts())
    read = [(one.name, gpu, _observed(hosts, one.name, gpu)) for one in seen.capacities for gpu in one.facts.gpus]
    read += [(host, gpu, observed) for host, gpu, observed in missing if host in wanted]
    gpus = [
        ListedGpu(
            host,
            board_name(gpu),
            gpu,
            tuple(lease for lease in leases if lease.host == host and lease.share.gpu == gpu.address),
            silent.get(host),
            observed,
            describe_age(observed, now),
            _closed(rules.get(host), gpu),
            closed_functions(gpu, rules[host]) if host in rules else {},
            None if host not in hosts else hosts[host].layout,
        )
        for host, gpu, observed in sorted(read, key=lambda one: (one[0], one[1].address))
    ]
    return gpus, seen


def _observed(hosts: Mapping[str, ObservedHost], host: str, gpu: Gpu) -> Observation:
    """The last observation of a GPU; of facts that an older vgpuctl cached there is none."""
    return NEVER_OBSERVED if host not in hosts else hosts[host].gpus.get(gpu.address, NEVER_OBSERVED)


def _closed(rules: HostRules | None, gpu: Gpu) -> Refusal | None:
    return None if rules is None else refuse_closed_gpu(gpu, rules) or refuse_closed_host(rules)


def board_name(gpu: Gpu) -> str:
    """The driver's name of the GPU, else the catalogue's, else its PCI ids."""
    board = board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")
