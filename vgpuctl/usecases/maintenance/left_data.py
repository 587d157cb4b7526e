# SPDX-License-Identifier: Apache-2.0
"""Where the data of a dead host's VMs is: on storage that other hosts have too, or on the host's own alone."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import DataLost, StateError, VgpuctlError
from vgpuctl.guests.storage import Storage
from vgpuctl.guests.storage_facts import VolumeFact
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.volumes import is_recorded

_Found = Mapping[tuple[str, str], VolumeFact]


@dataclass(frozen=True)
class LeftData:
    """The VMs' volumes, and those of them that other hosts have.

    volumes: the recorded ones by VM's UUID. found: by host that answered, its volumes by pool and name. silent: the
    hosts that did not, with the reason.
    """

    volumes: Mapping[str, Sequence[Volume]]
    found: Mapping[str, _Found]
    silent: Mapping[str, VgpuctlError]

    @property
    def answering(self) -> Collection[str]:
        """The hosts that may take a VM."""
        return self.found.keys()

    def hosts_of(self, vm: Vm) -> Collection[str]:
        """The hosts that have every volume of a VM.

        Raises DataLost when all other hosts answered and none has them, StateError while that is not known and for a
        volume that only has the name.
        """
        hosts = set(self.answering)
        for volume in self.volumes[vm.uuid]:
            there = {
                host: fact for host in hosts if (fact := self.found[host].get((volume.pool, volume.name))) is not None
            }
            hosts = {host for host, fact in there.items() if is_recorded(fact, volume)}
            if hosts:
                continue
            if there:
                raise StateError(
                    f"volume {volume.name} on {', '.join(sorted(there))} is not the one that was made for {vm.label}"
                )
            if self.silent:
                host, error = next(iter(self.silent.items()))
                raise StateError(
                    f"its {volume.kind} {volume.name} is on no host that answers;"
                    f" {counted(len(self.silent), 'host')} did not, so it may not be lost: {error.line_of(host)}",
                    hint=f"give the command again when they answer; `vgpuctl forget-host {vm.host}` gives the VM up",
                )
            raise DataLost(f"its {volume.kind} was on {vm.host} itself: no other host has volume {volume.name}")
        return hosts


def find_data(services: Services, host: str, vms: Sequence[Vm]) -> LeftData:
    """Ask all other hosts for the volumes of a dead host's VMs."""
    with services.store.reading() as session:
        volumes = {vm.uuid: session.volumes(vm_uuid=vm.uuid, host=vm.host) for vm in vms}
    pools = {one.pool for recorded in volumes.values() for one in recorded}
    others = [name for name in services.inventory.select(None) if name != host]
    results = run_on_hosts(others, lambda name: _volumes_in(services, name, pools), forks=services.forks)
    return LeftData(
        volumes,
        {one.name: one.value for one in results if one.value is not None},
        {one.name: one.error for one in results if one.error is not None},
    )


def _volumes_in(services: Services, host: str, pools: Collection[str]) -> _Found:
    storage = Storage(services.host(host).hypervisor)
    known = {one.name for one in storage.pools()}
    return {(pool, one.name): one for pool in pools if pool in known for one in storage.volumes(pool)}
