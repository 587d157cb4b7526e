# SPDX-License-Identifier: Apache-2.0
"""Where the data of a dead host's VMs is: on storage that other hosts have too, or on the host's own alone."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import DataLost, StateError, VgpuctlError
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.usecases.image.volumes import is_recorded
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_volumes import VolumeWay

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
        """The hosts that have every volume of a VM, but for a seed that can be made again.

        Raises DataLost when all other hosts answered and none has its disk. Raises StateError while that is not known,
        for a volume that only has the name, for a seed that is gone with its documents, and where no host has both.
        """
        hosts = set(self.answering)
        for volume in sorted(self.volumes[vm.uuid], key=lambda one: one.kind):
            if is_made_again(vm, volume):
                continue
            having = self._having(vm, volume)
            if not having:
                self._refuse_missing(vm, volume)
            if not having & hosts:
                raise StateError(f"no host has its disk and its {volume.kind}: {volume.name} is on {_names(having)}")
            hosts &= having
        return hosts

    def way(self, vm: Vm, volume: Volume, host: str) -> VolumeWay:
        """How a volume gets to one of the hosts that may take the VM."""
        fact = self.found[host].get(_key(volume))
        is_there = fact is not None and is_recorded(fact, volume)
        return VolumeWay.SHARED if is_there or not is_made_again(vm, volume) else VolumeWay.MADE_AGAIN

    def _having(self, vm: Vm, volume: Volume) -> set[str]:
        """The hosts that have a volume. Raises StateError where they only have one of its name."""
        named = {host: found[_key(volume)] for host, found in self.found.items() if _key(volume) in found}
        having = {host for host, fact in named.items() if is_recorded(fact, volume)}
        if named and not having:
            raise StateError(
                f"volume {volume.name} on {_names(named)} is not the one that was made for {vm.printed_name}"
            )
        return having

    def _refuse_missing(self, vm: Vm, volume: Volume) -> None:
        if self.silent:
            host, error = next(iter(self.silent.items()))
            raise StateError(
                f"its {volume.kind} {volume.name} is on no host that answers;"
                f" {counted(len(self.silent), 'host')} did not, so it may not be lost: {error.line_of(host)}",
                hint="give the command again when they answer;"
                f" `vgpuctl forget-host {vm.host} --reason TEXT` gives the VM up",
            )
        if volume.kind is VolumeKind.SEED:
            raise StateError(
                f"its seed was on {vm.host} itself, and cannot be made again: the store keeps none of its documents",
                hint="its disk stays where it is; put the pool of seeds on shared storage too",
            )
        raise DataLost(f"its {volume.kind} was on {vm.host} itself: no other host has volume {volume.name}")


def is_made_again(vm: Vm, volume: Volume) -> bool:
    """True for a seed that the store knows all of. A disk is never made again."""
    return volume.kind is VolumeKind.SEED and vm.request.cloud_init.is_kept()


def _key(volume: Volume) -> tuple[str, str]:
    return volume.pool, volume.name


def _names(hosts: Iterable[str]) -> str:
    return ", ".join(sorted(hosts))


def find_data(services: Services, host: str, vms: Sequence[Vm]) -> LeftData:
    """Ask all other hosts for the volumes of a dead host's VMs."""
    with services.store.reading() as session:
        found = {vm.uuid: session.volumes(vm_uuid=vm.uuid, host=vm.host) for vm in vms}
    # The answers of an installation end with the host, and no other may have them.
    volumes = {uuid: [one for one in own if one.kind is not VolumeKind.ANSWERS] for uuid, own in found.items()}
    pools = {one.pool for recorded in volumes.values() for one in recorded}
    others = [name for name in services.inventory.select(None) if name != host]
    results = services.on_hosts(others, lambda name: _volumes_in(services, name, pools))
    return LeftData(
        volumes,
        {one.name: one.value for one in results if one.value is not None},
        {one.name: one.error for one in results if one.error is not None},
    )


def _volumes_in(services: Services, host: str, pools: Collection[str]) -> _Found:
    storage = Storage(services.host(host).hypervisor)
    known = {one.name for one in storage.pools()}
    return {(pool, one.name): one for pool in pools if pool in known for one in storage.volumes(pool)}
