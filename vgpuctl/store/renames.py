# SPDX-License-Identifier: Apache-2.0
"""A VM's new name in every row that has it. Rows of what is over keep the name that the VM had then."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vgpuctl.errors import StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm, printed_name
from vgpuctl.store import codec
from vgpuctl.store.leases import LeaseRows
from vgpuctl.store.node_pools import NodePoolRows
from vgpuctl.store.vms import VmRows
from vgpuctl.store.vpcs import OF_IPV6, VpcRows

if TYPE_CHECKING:
    from vgpuctl.model.vpc import VpcSpec


class RenameRows(NodePoolRows, VmRows, VpcRows, LeaseRows):
    """Rename VMs."""

    def rename_vm(self, vm: Vm, name: str, *, domain: str) -> None:
        """Give a VM another name. domain: the name of its libvirt domain then.

        Raises StateError when another VM has the name or waits for its turn with it, ConcurrentChange while a
        controller serves the VM's entry of the queue.
        """
        tenant, old = vm.request.tenant, vm.request.name
        now = self.vm(tenant, old)
        request = vm.request if now is None else replace(vm.request, labels=now.request.labels)
        self.refuse_taken_name(tenant, name)
        self._rename_in_queue(tenant, old, name)
        self._rename_objects(tenant, old, name)
        self._update(
            "vms",
            {"uuid": vm.uuid},
            name=name,
            request=codec.encode(replace(request, name=name)),
            request_version=codec.REQUEST_VERSION,
            domain=domain,
            conflict=f"another run has just created VM {name} of tenant {tenant}",
        )
        for table, rule in (
            ("leases", "state <> 'gone'"),
            ("volumes", "true"),
            ("usage", "ended_at IS NULL"),
            ("licence_seats", "released_at IS NULL"),
        ):
            change = f"UPDATE {table} SET vm_name = :name WHERE vm_uuid = :uuid AND {rule}"
            self._write(change, name=name, uuid=vm.uuid)
        for label in (printed_name(tenant, old), printed_name(tenant, name)):
            self.add_event(
                EventKind.VM_RENAMED, label, tenant=tenant, host=vm.host, before={"name": old}, after={"name": name}
            )

    def refuse_taken_name(self, tenant: str, name: str) -> None:
        """Raise StateError when the tenant has a VM of the name, or one that waits for its turn."""
        waits = self.queued(tenant, name) is not None
        if waits or self.vm(tenant, name) is not None or self.node(tenant, name) is not None:
            state = "waits in the queue" if waits else "is there"
            raise StateError(
                f"the name {name} is taken: a VM of tenant {tenant} with that name {state}", hint="choose another name"
            )

    def _rename_in_queue(self, tenant: str, old: str, name: str) -> None:
        entry = self.queued(tenant, old)
        if entry is None:
            return
        self.set_queued_requests(entry, [replace(one, name=name) if one.name == old else one for one in entry.requests])

    def _rename_objects(self, tenant: str, old: str, name: str) -> None:
        """Point the floating IP, port forwards, load balancers and routes of the VM to its new name."""
        from vgpuctl.model.load_balancer import LoadBalancer
        from vgpuctl.model.vpc import FloatingIp, PortForward, Route
        from vgpuctl.model.vpc_kind import VpcKind

        specs: list[VpcSpec] = [*self.vpc_objects(tenant, FloatingIp), *self.vpc_objects(tenant, PortForward)]
        for spec in [*specs, *self.vpc_objects(tenant, LoadBalancer), *self.vpc_objects(tenant, Route)]:
            renamed = _renamed(spec, old, name)
            if renamed is not None:
                place = {"tenant": tenant, "kind": spec.kind.value, "name": spec.key}
                self._update("vpc_objects", place, name=renamed.key, spec=codec.encode(renamed))
        for version in ("", OF_IPV6):
            held = {"tenant": tenant, "holder": f"{VpcKind.FLOATING_IP.value}/{old}{version}"}
            self._update("external_addresses", held, holder=f"{VpcKind.FLOATING_IP.value}/{name}{version}")


def _renamed(spec: "VpcSpec", old: str, name: str) -> "VpcSpec | None":
    """The object with the VM's new name, None for one that does not name it."""
    from vgpuctl.model.load_balancer import LoadBalancer
    from vgpuctl.model.vpc import FloatingIp, PortForward, Route

    if isinstance(spec, FloatingIp | PortForward):
        return replace(spec, vm=name) if spec.vm == old else None
    if isinstance(spec, LoadBalancer) and old in spec.all_vms:
        pools = tuple(replace(pool, vms=_with_name(pool.vms, old, name)) for pool in spec.pools)
        vms, draining = (_with_name(names, old, name) for names in (spec.vms, spec.draining))
        weights = tuple(f"{name}={spec.weight_of(old)}" if one.startswith(f"{old}=") else one for one in spec.weights)
        return replace(spec, vms=vms, pools=pools, draining=draining, weights=weights)
    if isinstance(spec, Route) and old in spec.vms:
        split = [one.partition("@") for one in spec.next_hops]
        hops = [f"{name}{at}{network}" if vm == old else f"{vm}{at}{network}" for vm, at, network in split]
        return replace(spec, next_hops=tuple(hops))
    return None


def _with_name(vms: tuple[str, ...], old: str, name: str) -> tuple[str, ...]:
    return tuple(name if vm == old else vm for vm in vms)
