# SPDX-License-Identifier: Apache-2.0
"""What several commands do with a VM's domain and volumes on its host. Every function may be repeated."""

import time
from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import ConcurrentChange, DomainRejected, GuestError
from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.guests.render import render_domain
from vgpuctl.guests.seed import seed_image
from vgpuctl.guests.storage import Storage
from vgpuctl.guests.view import BackingView, DiskView, domain_view
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.image import HostImages
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import Vm
from vgpuctl.scheduler.host_memory import free_pages_mib
from vgpuctl.usecases.services import HostSession
from vgpuctl.usecases.undo import Undo

SEED_POOL = "default"
HOLD_TIMEOUT_S = 20.0
_DISK, _SEED = VOLUME_ENDINGS = (".qcow2", "-seed.iso")


def check(host: HostSession, vm: Vm, attachment: Attachment | None, images: HostImages) -> None:
    """Find out before anything is built whether the network and the pool can take the VM. Writes nothing."""
    request = vm.request
    if request.network is not None and attachment is None:
        host.hypervisor.check_network(request.network)
    if request.disk is not None:
        Storage(host.hypervisor).check_disk(request.disk.pool, request.disk.size_mib, images.base)


def check_pages(vm: Vm, facts: HostFacts) -> None:
    """Find out whether the huge pages it was placed on are still free. Raises ConcurrentChange."""
    memory = vm.request.memory
    if memory.page_kib is not None and free_pages_mib(facts, memory.page_kib) < memory.mib:
        size = format_page_size(memory.page_kib)
        raise ConcurrentChange(f"{vm.host} has too few free huge pages of {size} by now for {vm.domain_name}")


def build_volumes(host: HostSession, vm: Vm, attachment: Attachment | None, images: HostImages, undoing: Undo) -> None:
    """Make the VM's disk and cloud-init seed; each is taken back by `undoing`."""
    disk, storage, name = vm.request.disk, Storage(host.hypervisor), disk_volume(vm)
    if disk is not None:
        undoing.push("disk", lambda: storage.delete_volume(disk.pool, name))
        if images.base is None:
            storage.ensure_disk(disk.pool, name, disk.size_mib)
        else:
            storage.ensure_overlay(disk.pool, name, disk.size_mib, images.base)
    if vm.request.cloud_init.is_wanted():
        undoing.push("cloud-init seed", lambda: storage.delete_volume(SEED_POOL, seed_volume(vm)))
        storage.upload(SEED_POOL, seed_volume(vm), seed_image(vm.request.cloud_init, vm, attachment))


def remove_volumes(host: HostSession, vm: Vm) -> None:
    """Delete disk and seed; what is gone already is fine."""
    storage = Storage(host.hypervisor)
    if vm.request.disk is not None:
        storage.delete_volume(vm.request.disk.pool, disk_volume(vm))
    if vm.request.cloud_init.is_wanted():
        storage.delete_volume(SEED_POOL, seed_volume(vm))


def remove_domain(host: HostSession, vm: Vm) -> None:
    """End and undefine the VM's domain if it is this VM's (same UUID); gone already is fine."""
    for domain in host.hypervisor.domains():
        if domain.uuid == vm.uuid:
            host.hypervisor.destroy(domain.name)
            host.hypervisor.undefine(domain.name)


def render(
    host: HostSession,
    vm: Vm,
    leases: Sequence[Lease],
    facts: HostFacts,
    attachment: Attachment | None,
    images: HostImages,
) -> str:
    """The domain XML of `vm` with the devices of `leases` on this host, and its port in a tenant's network."""
    disk, seed, storage = None, None, Storage(host.hypervisor)
    if vm.request.disk is not None:
        path, backing = storage.disk_paths(vm.request.disk.pool, disk_volume(vm))
        backing = backing if images.base is None else images.base.path
        known = images.base_format if backing is not None else None
        disk = DiskView(path, None if backing is None or known is None else BackingView(backing, known))
    if vm.request.cloud_init.is_wanted():
        seed = storage.volume_path(SEED_POOL, seed_volume(vm))
    view = domain_view(vm, leases, facts, disk=disk, seed_path=seed, attachment=attachment, direct_kernel=images.kernel)
    return render_domain(view)


def define(
    host: HostSession,
    vm: Vm,
    leases: Sequence[Lease],
    facts: HostFacts,
    attachment: Attachment | None,
    images: HostImages,
) -> str:
    """Define the VM's domain (again) with its devices as they are now. Returns the XML given to libvirt."""
    xml = render(host, vm, leases, facts, attachment, images)
    host.hypervisor.define(xml)
    host.hypervisor.set_autostart(vm.domain_name, wanted=vm.request.autostart)
    return xml


def volume_paths(storage: Storage, vm: Vm) -> list[str]:
    """The paths of the VM's disk and seed on its host, as far as it has them."""
    paths = []
    if vm.request.disk is not None:
        paths.append(storage.volume_path(vm.request.disk.pool, disk_volume(vm)))
    if vm.request.cloud_init.is_wanted():
        paths.append(storage.volume_path(SEED_POOL, seed_volume(vm)))
    return paths


def disk_volume(vm: Vm) -> str:
    """Name of the VM's disk in its pool."""
    return f"{vm.domain_name}{_DISK}"


def seed_volume(vm: Vm) -> str:
    """Name of the VM's seed image in the pool `default`."""
    return f"{vm.domain_name}{_SEED}"


def prove_running(host: HostSession, vm: Vm, leases: Sequence[Lease]) -> None:
    """Read back: libvirt says running, and every slice is held by this VM's QEMU.

    Raises DomainRejected with what was read instead.
    """
    state = host.hypervisor.state(vm.domain_name)
    if state is not DomainState.RUNNING:
        raise DomainRejected(f"{vm.domain_name} on {vm.host} was started, but libvirt says {state or 'no such domain'}")
    deadline = time.monotonic() + HOLD_TIMEOUT_S
    waiting = list(leases)
    while waiting:
        waiting = [lease for lease in waiting if not is_held(host, vm, lease)]
        if waiting and time.monotonic() > deadline:
            raise GuestError(
                f"{vm.domain_name} runs on {vm.host}, but its QEMU does not hold "
                + ", ".join(lease.slice.device for lease in waiting),
                hint=f"look at /var/log/libvirt/qemu/{vm.domain_name}.log on {vm.host}",
            )
        if waiting:
            time.sleep(0.2)


def is_held(host: HostSession, vm: Vm, lease: Lease) -> bool:
    """Whether this VM's QEMU has the slice's VFIO device open."""
    device = lease.slice.mdev_uuid or lease.slice.function
    return any(holder.vm_uuid == vm.uuid for holder in host.agent.holders(device))
