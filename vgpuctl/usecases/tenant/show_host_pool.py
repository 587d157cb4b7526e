# SPDX-License-Identifier: Apache-2.0
"""show-host-pool: a pool of hosts with its GPUs, who may use it and what is free."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vgpuctl.errors import VgpuctlError
from vgpuctl.quota.host_pools import HostPool
from vgpuctl.usecases.host.list_gpus import ListedGpu, list_gpus
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class GpuOfHostPool:
    """A GPU. shares: held on it. used_mib, free_mib: None where it was not read. closed: why it takes no new VM."""

    gpu: str
    board: str
    shares: int
    total_mib: int | None
    used_mib: int | None
    free_mib: int | None
    closed: str | None


@dataclass(frozen=True)
class HostOfHostPool:
    """A host with its GPUs. vms: how many there are on it. problem: why its GPUs are not known."""

    host: str
    vms: int
    gpus: tuple[GpuOfHostPool, ...]
    problem: str | None


@dataclass(frozen=True)
class ShownHostPool:
    """A pool. vms: by tenant, how many VMs are on its hosts, also of tenants that have no grant any more.

    total_mib, used_mib, free_mib: memory of those of its GPUs that were read.
    """

    pool: HostPool
    vms: Mapping[str, int]
    total_mib: int
    used_mib: int
    free_mib: int
    hosts: tuple[HostOfHostPool, ...]


def show_host_pool(
    services: Services, name: str, *, refresh: bool
) -> tuple[ShownHostPool, tuple[tuple[str, VgpuctlError], ...]]:
    """A pool, from cached facts unless refresh, and the hosts of it that did not answer. Raises NotFound."""
    with services.store.reading() as session:
        pool = session.host_pool(name)
        vms = [vm for vm in session.vms() if vm.host in pool.hosts]
    known = [host for host in pool.hosts if host in services.hosts()]
    gpus, seen = list_gpus(services, refresh=refresh, hosts=known)
    problems = {host: error.message for host, error in seen.failures}
    problems |= {host: "it is not in the inventory" for host in pool.hosts if host not in known}
    memory = [one.memory for one in gpus if one.memory is not None]
    on_host = Counter(vm.host for vm in vms)
    shown = ShownHostPool(
        pool,
        dict(sorted(Counter(vm.request.tenant for vm in vms).items())),
        sum(one.total_mib for one in memory),
        sum(one.used_mib for one in memory),
        sum(one.free_mib for one in memory),
        tuple(
            HostOfHostPool(
                host, on_host[host], tuple(_gpu(one) for one in gpus if one.host == host), problems.get(host)
            )
            for host in pool.hosts
        ),
    )
    return shown, seen.failures


def _gpu(one: ListedGpu) -> GpuOfHostPool:
    memory = one.memory
    return GpuOfHostPool(
        one.gpu.address,
        one.board,
        len(one.leases),
        None if memory is None else memory.total_mib,
        None if memory is None else memory.used_mib,
        None if memory is None else memory.free_mib,
        None if one.closed is None else one.closed.reason,
    )
