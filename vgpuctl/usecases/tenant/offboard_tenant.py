# SPDX-License-Identifier: Apache-2.0
"""offboard-tenant: delete everything of a tenant but its name and its ledger, and prove that nothing is left."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.errors import PartialFailure, StateError
from vgpuctl.guests.libvirtd.host_networks import networks_of
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.kept_vm import KeptVm
from vgpuctl.model.network import Network
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.plural import counted
from vgpuctl.model.preemption import USUAL_POLICY
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume
from vgpuctl.model.vpc import VpcSpec
from vgpuctl.ovn.topology import tenant_owner
from vgpuctl.usecases.disk.kept_disks import kept_disks, vms_with_disks
from vgpuctl.usecases.disk.kept_vms import delete_kept
from vgpuctl.usecases.image.gc_volumes import OLD_ENDINGS
from vgpuctl.usecases.image.volumes import remove_volumes
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.network.networks import delete_network
from vgpuctl.usecases.network.vpc import apply_vpc
from vgpuctl.usecases.network.vpc_addresses import all_objects
from vgpuctl.usecases.network.vpc_changes import Decision, change_objects
from vgpuctl.usecases.node.node_pools import delete_node_pool
from vgpuctl.usecases.observed.function_records import recorded_functions
from vgpuctl.usecases.observed.observations import told_states
from vgpuctl.usecases.placement.queue_entries import record_leaving
from vgpuctl.usecases.placement.reservations import describe, record_cancellation
from vgpuctl.usecases.running.each_vm import on_each_vm
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.host_pools import record_grant
from vgpuctl.usecases.tenant.set_quota import note_policy, set_quota
from vgpuctl.usecases.vm.delete_vm import delete_vm


@dataclass(frozen=True)
class Belongings:
    """The objects of a tenant. disks: data disks that are to outlive their VMs, with a VM or without.

    roles: of the database, which read the tenant's rows. volumes: names of all recorded volumes.
    with_disks: UUIDs of the VMs whose disks are deleted with them. states: of the VMs by UUID, as last observed.
    """

    tenant: str
    vms: tuple[Vm, ...]
    networks: tuple[Network, ...]
    objects: tuple[VpcSpec, ...]
    pools: tuple[str, ...]
    quotas: tuple[str, ...]
    queued: tuple[QueueEntry, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    disks: tuple[Volume, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    deleted_vms: tuple[KeptVm, ...] = ()
    roles: tuple[str, ...] = ()
    volumes: frozenset[str] = frozenset()
    with_disks: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)

    def _disk_of(self, vm: Vm) -> str:
        return ", with its disk" if vm.uuid in self.with_disks else ""

    def lines(self) -> list[str]:
        """One line per thing that goes."""
        return [
            *(f"node pool {pool.name} of cluster {pool.cluster}, with its nodes" for pool in self.node_pools),
            *(f"VM {vm.request.name} on {vm.host}, {self.states[vm.uuid]}{self._disk_of(vm)}" for vm in self.vms),
            *(f"disk {disk.label} on {disk.host}, which is kept" for disk in self.disks),
            *(f"disks of the deleted VM {kept.request.name} on {kept.host}" for kept in self.deleted_vms),
            *(f"queue entry of {entry.vm_names}" for entry in self.queued),
            *(f"reservation {one.name} on {one.host}: {describe(one)}" for one in self.reservations),
            *(" ".join(dict.fromkeys((str(spec.kind), spec.key))) for spec in self.objects),
            *(f"network {network.request.name} ({network.request.cidrs})" for network in self.networks),
            *(f"grant of host pool {pool}" for pool in self.pools),
            *(f"quota of {quota}" for quota in self.quotas),
            *(f"rights of the database role {role}" for role in self.roles),
        ]


def belongings(services: Services, tenant: str) -> Belongings:
    """The objects of a tenant in the store. Raises NotFound."""
    with services.store.reading() as session:
        session.tenant(tenant)
        vms = tuple(session.vms(tenant=tenant))
        return Belongings(
            tenant,
            vms,
            tuple(session.networks(tenant=tenant)),
            tuple(all_objects(session, tenant)),
            tuple(pool.name for pool in session.host_pools() if tenant in pool.tenants),
            tuple(quota.resource for quota in session.quotas(tenant)),
            tuple(entry for entry in session.queue() if entry.request.tenant == tenant),
            tuple(one for one in session.reservations() if one.tenant == tenant),
            tuple(one for one in session.volumes(tenant=tenant) if one.keep),
            tuple(session.node_pools(tenant)),
            tuple(session.kept_vms(tenant=tenant)),
            tuple(session.roles_of(tenant)),
            frozenset(one.name for one in session.volumes(tenant=tenant)),
            vms_with_disks(session),
            told_states(session, vms),
        )


def _delete_vms(services: Services, tenant: str, vms: Sequence[Vm], timeout_s: float) -> None:
    """Delete the VMs, those of several hosts side by side.

    Raises PartialFailure when some could not be deleted and the others are; a single VM's own error.
    """

    def delete(vm: Vm) -> None:
        delete_vm(services, vm, timeout_s=timeout_s, keeps_disks=False)

    if services.rehearsal is not None:
        for vm in vms:
            delete(vm)
        return
    failed = [(one.vm, one.error) for one in on_each_vm(services, vms, delete) if one.error is not None]
    if not failed:
        return
    if len(vms) == 1:
        raise failed[0][1]
    left: dict[str, list[str]] = {}
    for vm, error in failed:
        left.setdefault(f"{vm.host}: {error.said_of(vm.host)}", []).append(vm.request.name)
    raise PartialFailure(
        f"{len(vms) - len(failed)} of {counted(len(vms), 'VM')} of {tenant} are deleted and {len(failed)} are left; "
        "its networks, grants and quotas stay until these are gone",
        context=[f"{why}; left: {', '.join(names)}" for why, names in left.items()],
        hint="run the same command again when the hosts answer; of a host that stays away, "
        "`vgpuctl evacuate-host` or `vgpuctl forget-host` takes the VMs",
    )


def offboard_tenant(
    services: Services, tenant: str, *, timeout_s: float, deletes_disks: bool = False
) -> tuple[str, ...]:
    """Delete everything, then ask every host and OVN. Returns the hosts that were asked.

    Node pools go first, so that no node is made again; the work on the nodes is not waited for.
    The tenant's name stays in the store with its usage. deletes_disks: also the disks that are to outlive their VMs;
    without it a tenant with such disks is refused by StateError, with nothing done; so is a command without an
    inventory, by UsageError.
    Raises PartialFailure when VMs are left or hosts did not answer, the first error of what else could not be deleted,
    StateError when something is left; the same command goes on from there.
    """
    with services.store.operation("offboard-tenant", f"tenant:{tenant}", tenant, exclusive=True):
        services.hosts()
        found = belongings(services, tenant)
        kept_disks_of = [f"disk {disk.label} on {disk.host}" for disk in found.disks]
        kept_disks_of += [f"disks of the deleted VM {kept.request.name} on {kept.host}" for kept in found.deleted_vms]
        if kept_disks_of and not deletes_disks:
            raise StateError(
                f"tenant {tenant} keeps {counted(len(kept_disks_of), 'disk')} beyond the VMs",
                context=kept_disks_of,
                hint="copy what is needed; --delete-disks deletes them with the tenant",
            )
        for node_pool in found.node_pools:
            delete_node_pool(services, tenant, node_pool.name, shutdown_timeout_s=timeout_s, is_drained=True)
        rest = belongings(services, tenant)
        with services.store.transaction() as session:
            for entry in rest.queued:
                record_leaving(session, entry, "tenant offboarded")
            for reservation in found.reservations:
                record_cancellation(session, reservation, "tenant offboarded")
        _delete_vms(services, tenant, rest.vms, timeout_s)
        with services.store.reading() as session:
            kept = kept_disks(session, tenant)
        for host in sorted({disk.host for disk in kept}):
            remove_volumes(services, services.host(host), [disk for disk in kept if disk.host == host])
        for deleted in found.deleted_vms:
            delete_kept(services, deleted, "its tenant is offboarded")
        if found.objects:
            change_objects(services, tenant, lambda session: Decision(gone=all_objects(session, tenant)))
        if services.has_northbound:
            with locked(services, OVN_SUBJECT):
                apply_vpc(services, tenant)
        for network in found.networks:
            delete_network(services, network)
        with services.store.transaction() as session:
            for pool in found.pools:
                record_grant(session, pool, tenant, revoke=True)
            session.end_roles_of(tenant)
            policy = session.tenant(tenant).policy
            if policy != USUAL_POLICY:
                session.set_policy(tenant, USUAL_POLICY)
                note_policy(session, tenant, policy, USUAL_POLICY)
        set_quota(services, tenant, limits=dict.fromkeys(found.quotas), guaranteed=dict.fromkeys(found.quotas))
        asked = prove_nothing_left(services, tenant, found)
        with services.store.transaction() as session:
            before = {"objects": found.lines()}
            session.add_event(
                EventKind.TENANT_OFFBOARDED, tenant, tenant=tenant, before=before, evidence={"asked": list(asked)}
            )
    return asked


def prove_nothing_left(services: Services, tenant: str, had: Belongings) -> tuple[str, ...]:
    """Ask the store, every host and OVN for anything of the tenant. Returns the hosts that were asked.

    A dry run that goes on has left there what the run deletes: it passes over `had`, and OVN.
    """
    left = belongings(services, tenant).lines()
    with services.store.reading() as session:
        left += [
            f"lease of {lease.share.device} on {lease.host}" for lease in session.leases() if lease.tenant == tenant
        ]
        for host, rows in recorded_functions(session).items():
            left += [f"{one.printed} on {host}" for one in rows.values() if one.tenant == tenant]
    if services.has_northbound and not services.goes_on and tenant_owner(tenant) in services.northbound.owners():
        left.append("rows in OVN's northbound database")
    asked: list[str] = []
    silent: list[str] = []
    names = sorted({*services.hosts(), *(vm.host for vm in had.vms)})
    for result in services.on_hosts(names, lambda name: _left_on(services, name, tenant, had)):
        if result.error is not None:
            services.forget_host(result.name)
            silent.append(result.error.line_of(result.name))
        else:
            left += [f"{what} on {result.name}" for what in result.value or ()]
            asked.append(result.name)
    if left:
        raise StateError(
            f"{counted(len(left), 'object')} of tenant {tenant} could not be deleted",
            context=left,
            hint="run the same command again; `vgpuctl gc` deletes what is ours, `virsh vol-delete` other volumes",
        )
    if silent:
        raise PartialFailure(
            f"{len(silent)} of {len(silent) + len(asked)} hosts could not be asked what of {tenant} is left",
            context=silent,
            hint="run the same command again when they answer",
        )
    return tuple(asked)


def _left_on(services: Services, name: str, tenant: str, had: Belongings) -> Sequence[str]:
    hypervisor = services.host(name).hypervisor
    deleted = had if services.goes_on else Belongings(tenant, (), (), (), (), ())
    uuids = {vm.uuid for vm in deleted.vms}
    domains = [
        f"domain {domain.name}"
        for domain in hypervisor.domains()
        if domain.metadata is not None and domain.metadata.tenant == tenant and domain.uuid not in uuids
    ]
    labels = {network.host_name for network in had.networks} - {network.host_name for network in deleted.networks}
    networks = [f"network {label}" for label in networks_of(hypervisor) if label in labels]
    return [*domains, *networks, *_volumes_on(services, name, tenant, deleted.volumes)]


def _volumes_on(services: Services, name: str, tenant: str, deleted: Collection[str]) -> list[str]:
    """Volumes recorded for the tenant, and those of every pool named after its VMs as older stores named them.

    deleted: names of volumes that a dry run has left there.
    """
    with services.store.reading() as session:
        recorded = [
            f"{volume.kind} {volume.name} of pool {volume.pool}" for volume in session.volumes(tenant=tenant, host=name)
        ]
        others = [f"{one.name}." for one in session.tenants() if one.name.startswith(f"{tenant}.")]
    storage = Storage(services.host(name).hypervisor)
    return recorded + [
        f"volume {volume.name} of pool {pool.name}"
        for pool in storage.pools()
        if pool.is_active
        for volume in storage.volumes(pool.name)
        if volume.name.startswith(f"{tenant}.")
        and volume.name.endswith(OLD_ENDINGS)
        and not volume.name.startswith(tuple(others))
        and volume.name not in deleted
    ]
