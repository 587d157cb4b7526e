# SPDX-License-Identifier: Apache-2.0
"""adopt-host: what runs on a host becomes VMs, leases and a declared layout. Nothing of the host is written."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.catalog import read_gpu_request
from vgpuctl.errors import GuestError, StateError, UsageError
from vgpuctl.guests.domain.metadata import DomainMetadata
from vgpuctl.guests.facts.domain_facts import DomainFact, DomainState, network_interfaces
from vgpuctl.guests.facts.domain_limits import domain_limits
from vgpuctl.guests.facts.domain_shape import domain_shape
from vgpuctl.guests.libvirtd.networks import LibvirtNetworks
from vgpuctl.inventory.layout_text import layout_variable, layout_yaml
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.network import NetworkState, Port
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm, VmRequest, VmState, check_name
from vgpuctl.model.volume import Volume
from vgpuctl.planner.adoption import idle_vgpus, layout_as_found, shares_of_devices
from vgpuctl.quota.ceilings import ceilings_of, parts_above
from vgpuctl.quota.resources import format_amount
from vgpuctl.scheduler.found_cells import numa_as_found
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gate import refuse_closed_host, refuse_share
from vgpuctl.sharing.kinds import vgpu_kind_of
from vgpuctl.sharing.occupancy import ExistingVgpu, gpu_at
from vgpuctl.sharing.partition_rules import used_partition
from vgpuctl.usecases.declared.layout_records import note_share, shares_made
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.host.own_volumes import own_volumes
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.seats.licences import take_seat

if TYPE_CHECKING:
    from vgpuctl.store.store import Session


@dataclass(frozen=True)
class Owner:
    """The tenant of a domain. name: of the VM, None for the domain's own."""

    tenant: str
    name: str | None = None


@dataclass(frozen=True)
class AdoptedVm:
    """One VM with its leases.

    is_new: False when an earlier run, or create-vm, has it in the store already. ports: its places in networks of the
    store, and volumes: what vgpuctl made for it on the host, where vgpuctl made its domain.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    is_new: bool
    ports: tuple[Port, ...] = ()
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True)
class LeftAlone:
    """A domain or GPU that stays as it is and unknown, and why."""

    subject: str
    reason: str


@dataclass(frozen=True)
class Adoption:
    """The result for a host. shares: idle vGPUs (an mdev's UUID, or a VF) that are the layout's now.

    variable: what stands under `vgpu:`; text: a file of host_vars with it. changed: whether the store was or would be.
    """

    host: str
    vms: tuple[AdoptedVm, ...]
    shares: tuple[str, ...]
    left: tuple[LeftAlone, ...]
    variable: dict[str, Any]
    text: str
    changed: bool


def parse_owner(text: str) -> Owner:
    """Read `TENANT` or `TENANT/NAME`. Raises UsageError."""
    tenant, slash, name = text.partition("/")
    check_name(tenant, what="the tenant")
    if slash:
        check_name(name, what="the VM's name")
    return Owner(tenant, name if slash else None)


def adopt_host(services: Services, name: str, *, owners: Mapping[str, Owner], tenant: str | None) -> Adoption:
    """Take over one host.

    owners: by name of the domain. tenant: whose the other domains with GPUs are, None to leave those alone.
    Raises UsageError for an owner of a domain that the host does not have, StateError when a domain that was named
    cannot be adopted, and for a host that was declared dead, NotFound for a tenant; nothing is adopted then.
    """
    rules = rules_of(services, name)
    _refuse_fenced(rules)
    host = services.host(name)
    with services.store.operation("adopt-host", f"host/{name}", name, exclusive=True):
        facts, domains = host.agent.facts(), host.hypervisor.domains()
        unknown = sorted(set(owners) - {domain.name for domain in domains})
        if unknown:
            listed = ", ".join(domain.name for domain in domains) or "none"
            raise UsageError(f"{name} has no domain {unknown[0]!r}", hint=f"its domains: {listed}")
        with services.store.reading() as session:
            found = _Domains(session, host, facts, owners, tenant)
            vms = found.take(domains)
        made = shares_made(services, name, facts)
        idle = [one for one in idle_vgpus(facts, found.claimed(domains)) if one.vfio_device not in made]
        shares = tuple(sorted({*made, *(one.vfio_device for one in idle)}))
        leases = [*found.other_leases, *(lease for one in vms for lease in one.leases)]
        adopted = {one.vm.uuid for one in vms}
        foreign = {device.device for one in domains if one.uuid not in adopted for device in one.hostdevs}
        described = layout_as_found(facts, leases, shares, foreign)
        new = [one for one in vms if one.is_new]
        for one in new:
            _tell_closed(services, one, facts, rules)
        _save(services, name, facts, new, idle, found.generation)
        _note_shares(services, name, facts, idle)
    layout = HostLayout(gpus=described.entries)
    left = [*found.left, *(LeftAlone(gpu, reason) for gpu, reason in described.left)]
    return Adoption(
        name, tuple(vms), shares, tuple(left), layout_variable(layout), layout_yaml(layout), bool(new or idle)
    )


def _refuse_fenced(rules: HostRules) -> None:
    """Raise StateError for a host whose VMs may run elsewhere by now."""
    refusal = refuse_closed_host(rules)
    if refusal is not None and refusal.code is Code.HOST_FENCED:
        raise StateError(f"nothing of {rules.host} is adopted: {refusal.reason}", hint=refusal.remedy)


def _tell_closed(services: Services, adopted: AdoptedVm, facts: HostFacts, rules: HostRules) -> None:
    """Say which of its GPUs the VM may keep while it runs, but not start on again."""
    for lease in adopted.leases:
        gpu = gpu_at(facts, lease.share.gpu)
        refusal = None if gpu is None else refuse_share(lease.share, gpu, rules, is_kept=True)
        if refusal is not None:
            share = f"{lease.share.profile} on {lease.share.function}"
            services.say(f"{adopted.vm.printed_name}: it does not start again with {share}: {refusal}")


class _Domains:
    """Finds which domains become VMs. left: the others, with the reason. other_leases: of VMs without a domain here."""

    def __init__(
        self, session: "Session", host: HostSession, facts: HostFacts, owners: Mapping[str, Owner], tenant: str | None
    ) -> None:
        self._session = session
        self._host = host
        self._facts = facts
        self._owners = owners
        self._tenant = tenant
        self.generation = session.generation(host.name)
        self._known = {vm.uuid: vm for vm in session.vms()}
        self._leases = session.leases(host=host.name)
        self.other_leases: list[Lease] = list(self._leases)
        self.left: list[LeftAlone] = []

    def take(self, domains: Sequence[DomainFact]) -> list[AdoptedVm]:
        """The VMs, those of the store first. A device goes to the domain that runs."""
        named = {owner.tenant for owner in self._owners.values()} | ({self._tenant} if self._tenant else set())
        for tenant in sorted(named):
            self._session.tenant(tenant)
        vms: list[AdoptedVm] = []
        refused: list[str] = []
        taken = {lease.share.device: f"{lease.tenant}/{lease.vm_name}" for lease in self._leases}
        for domain in sorted(
            domains, key=lambda one: (one.uuid not in self._known, not one.state.is_active(), one.name)
        ):
            vm = self._known.get(domain.uuid)
            if vm is not None:
                own = tuple(lease for lease in self._leases if lease.vm_uuid == vm.uuid)
                self.other_leases = [lease for lease in self.other_leases if lease not in own]
                vms.append(AdoptedVm(vm, own, is_new=False))
                continue
            adopted = self._adopt(domain, taken, {(one.vm.request.tenant, one.vm.request.name) for one in vms})
            if isinstance(adopted, AdoptedVm):
                vms.append(adopted)
                taken |= {lease.share.device: domain.name for lease in adopted.leases}
            elif domain.name in self._owners:
                refused.append(f"{domain.name}: {adopted}")
            else:
                self.left.append(LeftAlone(domain.name, adopted))
        if refused:
            raise StateError(
                f"{counted(len(refused), 'domain')} of {self._host.name} cannot be adopted", context=refused
            )
        return vms

    def claimed(self, domains: Sequence[DomainFact]) -> set[str]:
        """Every device that a domain names, whether it runs or is adopted or not, and every leased one."""
        named = {hostdev.device for domain in domains for hostdev in domain.hostdevs}
        return named.union(*(lease.share.names for lease in self._leases))

    def _adopt(self, domain: DomainFact, taken: Mapping[str, str], new: set[tuple[str, str]]) -> AdoptedVm | str:
        """The VM, or why the domain is left alone."""
        owner = self._owners.get(domain.name)
        if owner is None and domain.metadata is not None:
            return f"another store's vgpuctl made it for tenant {domain.metadata.tenant}; name its owner to adopt it"
        shares = shares_of_devices([hostdev.device for hostdev in domain.hostdevs], self._facts)
        if isinstance(shares, str):
            return shares
        if not shares and domain.metadata is None:
            return "it has no GPU"
        if owner is None and self._tenant is None:
            return "nobody said whose it is"
        if domain.state not in (DomainState.RUNNING, DomainState.SHUT_OFF):
            return f"it is {domain.state}, neither running nor shut off"
        busy = [f"{one.device} is {taken[one.device]}'s" for one in shares if one.device in taken]
        if busy:
            return busy[0]
        tenant = owner.tenant if owner is not None else self._tenant
        assert tenant is not None
        vm_name = (owner.name if owner is not None else None) or domain.name
        try:
            check_name(vm_name, what="the name")
        except UsageError:
            return f"{vm_name!r} cannot be a VM's name; give it another as TENANT/NAME"
        if (tenant, vm_name) in new or self._session.vm(tenant, vm_name) is not None:
            return f"tenant {tenant} has another VM {vm_name}; give it another name as TENANT/NAME"
        node = self._session.node(tenant, vm_name)
        if node is not None and node.vm_uuid != domain.uuid:
            return f"a node of pool {node.pool} of tenant {tenant} is named {vm_name}; give another name as TENANT/NAME"
        try:
            limits = domain_limits(self._host.hypervisor.xml(domain.name) or "<domain/>")
            over = parts_above(limits, ceilings_of(self._session.quotas(tenant)))
            if over:
                return f"it is above a ceiling of tenant {tenant} (`virsh edit` limits it): {'; '.join(map(str, over))}"
            return self._vm(domain, tenant, vm_name, shares)
        except GuestError as error:
            return error.message

    def _vm(self, domain: DomainFact, tenant: str, name: str, shares: Sequence[Share]) -> AdoptedVm:
        xml = self._host.hypervisor.xml(domain.name) or "<domain/>"
        shape = domain_shape(xml)
        used = used_partition(shares, self._facts, domain.uuid)
        if shape.hides_kvm and used is not None and len(used.gpus) > 1:
            raise GuestError(
                "it hides KVM, and where a guest does not see KVM its driver gives the GPUs of a partition no access to"
                " each other: remove `<hidden state='on'/>` or the disabled CPU feature `hypervisor` by `virsh edit`,"
                " and start it again"
            )
        runs = domain.state is DomainState.RUNNING
        request = VmRequest(
            name,
            tenant,
            gpus=_asked(domain.metadata, shares),
            vcpus=shape.vcpus,
            memory_mib=shape.memory_mib,
            network=None,
            firmware=shape.firmware,
            autostart=self._host.hypervisor.is_autostarted(domain.name),
            domain=domain.name,
            hugepages_kib=shape.hugepages_kib,
            labels=() if domain.metadata is None else domain.metadata.labels(),
        )
        numa = numa_as_found(self._facts, shape.vcpus, shape.memory_mib, shape.tuning)
        vm = Vm(domain.uuid, request, self._host.name, VmState.RUNNING if runs else VmState.STOPPED, numa=numa)
        state = LeaseState.RUNNING if runs else LeaseState.BUILT
        leases = (
            Lease(str(uuid.uuid4()), vm.uuid, tenant, name, self._host.name, index, one, state)
            for index, one in enumerate(shares)
        )
        if domain.metadata is None:
            return AdoptedVm(vm, tuple(leases), is_new=True)
        volumes = own_volumes(self._host.hypervisor, domain, vm, self._session.volumes())
        return AdoptedVm(vm, tuple(leases), is_new=True, ports=self._ports(vm, xml), volumes=volumes)

    def _ports(self, vm: Vm, xml: str) -> tuple[Port, ...]:
        """The VM's places in the host's networks, with the addresses that the networks promise to its interfaces."""
        networks = {
            one.host_name: one
            for one in self._session.networks(host=self._host.name)
            if one.state is NetworkState.CREATED
        }
        found = []
        for position, (mac, label) in enumerate(network_interfaces(xml)):
            network = networks.get(label)
            address = None if network is None else LibvirtNetworks(self._host.hypervisor).addresses(network).get(mac)
            if network is not None and address is not None:
                found.append(Port(str(uuid.uuid4()), network.id, vm.uuid, position, mac, address))
        return tuple(found)


def _save(
    services: Services,
    name: str,
    facts: HostFacts,
    new: Sequence[AdoptedVm],
    idle: Sequence[ExistingVgpu],
    generation: int,
) -> None:
    """Add everything at once: a killed run has adopted all VMs or none. Quotas count them and refuse nothing."""
    with services.store.transaction() as session:
        note_facts(session, name, facts)
        if new or idle:
            after = {"vms": [one.vm.printed_name for one in new], "shares": [one.vfio_device for one in idle]}
            session.add_event(EventKind.HOST_ADOPTED, name, host=name, after=after)
        if not new:
            return
        session.reserve(name, generation, [lease for one in new for lease in one.leases])
        for one in new:
            session.add_vm(one.vm)
            if one.vm.state is VmState.RUNNING:
                take_seat(session, one.vm, one.leases, may_exceed=True)
            for port in one.ports:
                session.restore_port(port)
            for volume in one.volumes:
                session.restore_volume(volume)
            detail = f"domain {one.vm.domain_name}"
            session.add_vm_event(EventKind.VM_ADOPTED, one.vm, detail, after=values_of(one.vm, one.leases))
        for tenant in sorted({one.vm.request.tenant for one in new}):
            used = session.used(tenant)
            for quota in session.quotas(tenant):
                have = used.get(quota.resource, 0)
                if quota.limit is not None and have > quota.limit:
                    most = format_amount(quota.resource, quota.limit)
                    amount = format_amount(quota.resource, have)
                    services.say(f"tenant {tenant} is over its quota now: {quota.resource}: {amount} of {most}")


def _note_shares(services: Services, name: str, facts: HostFacts, idle: Sequence[ExistingVgpu]) -> None:
    for vgpu in idle:
        note_share(services, name, facts.boot_id, vgpu_kind_of(vgpu).make(vgpu))


def save_layout(adoption: Adoption, path: Path) -> bool:
    """Write the layout to a file of host_vars. Returns whether it changed the file.

    Raises UsageError when the file is there and says otherwise, FileNotWritten.
    """
    try:
        if path.exists():
            if path.read_text() == adoption.text:
                return False
            raise UsageError(f"{path} is there and says otherwise", hint="compare it with the layout on stdout")
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    make_folder(path.parent, "the folder of the host's layout")
    write_file(path, adoption.text, "the host's layout")
    return True


def _asked(metadata: DomainMetadata | None, shares: Sequence[Share]) -> tuple[GpuRequest, ...]:
    """A request for each share; of a VM of vgpuctl with the compute time that it asked for. Raises GuestError."""
    found = [read_gpu_request(one.profile) for one in shares]
    asked = () if metadata is None else metadata.asked_gpus()
    if len(asked) != len(found):
        return tuple(found)
    return tuple(
        replace(one, minimum_compute_percent=own.minimum_compute_percent, compute=own.compute)
        for one, own in zip(found, asked, strict=True)
    )
