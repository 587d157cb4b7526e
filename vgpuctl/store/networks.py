# SPDX-License-Identifier: Apache-2.0
"""Networks, ports and addresses in the store; its constraints give no address and no MAC address twice."""

import ipaddress
import uuid
from dataclasses import replace

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import AddressesExhausted, ConcurrentChange, NotFound, StateError, StoreUnusable
from vgpuctl.model.network import (
    AddressKind,
    Attachment,
    Backend,
    Network,
    NetworkRequest,
    NetworkState,
    Port,
    first_free_address,
    is_ipv6,
    mac_address,
    monitor_of,
)
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given
from vgpuctl.store.object_quotas import ObjectQuotaRows
from vgpuctl.store.tenants import TenantRows

ROUTED_HOLDER = "network"
"""With a network's name: what holds a prefix of an external network."""


class NetworkRows(ObjectQuotaRows, TenantRows):
    """Add, find, change and delete networks and ports."""

    def add_network(self, network: Network) -> None:
        """Add a network; its gateway's addresses are held at once.

        Raises NotFound for an unknown tenant, QuotaExceeded, and ConcurrentChange when the tenant has a network of this
        name.
        """
        request = network.request
        self.tenant(request.tenant)
        with self.within_quota(request.tenant, f"network {request.name}"):
            self._add_network(network)

    def _add_network(self, network: Network) -> None:
        request = network.request
        self._insert(
            "networks",
            id=network.id,
            tenant=request.tenant,
            name=request.name,
            backend=request.backend.value,
            host=request.host,
            state=network.state.value,
            request=codec.encode(request),
            created_at=self._clock(),
            label=network.host_name,
            conflict=f"another run has just created network {request.name} of tenant {request.tenant}",
        )
        for subnet, gateway in zip(network.subnets, network.gateways, strict=True):
            self._hold_address(network.id, gateway, AddressKind.GATEWAY, network.id)
            if request.backend is Backend.OVN:
                self._hold_address(network.id, monitor_of(subnet), AddressKind.MONITOR, network.id)

    def find_network(self, tenant: str, name: str) -> Network | None:
        """One network by its tenant and name, None when there is none."""
        for row in self._find("networks", tenant=tenant, name=name):
            return _network(row)
        return None

    def network_labelled(self, label: str) -> Network | None:
        """The network of any tenant that hosts know by this name, None when there is none."""
        rows = self._read("SELECT * FROM networks WHERE label = :label OR label IS NULL", label=label)
        return next((network for network in map(_network, rows) if network.host_name == label), None)

    def network(self, tenant: str, name: str) -> Network:
        """One network by its tenant and name. Raises NotFound, with names that are near."""
        self.tenant(tenant)
        found = self.find_network(tenant, name)
        if found is not None:
            return found
        import difflib

        near = difflib.get_close_matches(name, [other.request.name for other in self.networks(tenant=tenant)], n=3)
        raise NotFound(
            f"tenant {tenant} has no network {name!r}",
            hint=f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-networks --tenant {tenant}`",
        )

    def networks(self, tenant: str | None = None, host: str | None = None) -> list[Network]:
        """Networks of a tenant, a host, both, or all; by tenant and name."""
        found = map(_network, self._find("networks", **given(tenant=tenant, host=host)))
        return sorted(found, key=lambda network: (network.request.tenant, network.request.name))

    def set_network_state(self, network_id: str, state: NetworkState) -> None:
        """Set a network's state. Raises NotFound."""
        if self._update("networks", {"id": network_id}, state=state.value) != 1:
            raise NotFound(
                f"there is no network with id {network_id} in the store {self._store_name}",
                hint="another run may have deleted it; see `vgpuctl list-networks`",
            )

    def delete_network(self, network_id: str) -> bool:
        """Delete a network's row with its addresses. Returns False when it was gone already.

        Raises StateError while VMs have ports in it.
        """
        held = self.ports(network_id=network_id)
        if held:
            raise StateError(
                f"network {network_id} still has {len(held)} ports, its row in the store stays",
                context=[f"{port.address} is VM {port.vm_uuid}'s" for port in held[:20]],
                hint="delete its VMs first",
            )
        self._delete("addresses", network_id=network_id)
        for row in self._find("networks", id=network_id):
            self._delete("external_addresses", tenant=row.tenant, holder=f"{ROUTED_HOLDER}/{row.name}")
        return self._delete("networks", id=network_id) == 1

    def free_port(self, network: Network, vm_uuid: str, position: int = 0) -> Port:
        """Choose a place in a network, without taking it: the lowest free addresses and a MAC address nobody has.

        Raises AddressesExhausted, and ConcurrentChange when the network is
        not ready, or no longer.
        """
        current = self.find_network(network.request.tenant, network.request.name)
        if current is None or current.id != network.id or current.state is not NetworkState.CREATED:
            raise ConcurrentChange(
                f"network {network.printed_name} is {current.state if current else 'gone'}",
                hint="choose another network, or create it first; see `vgpuctl list-networks`",
            )
        taken = self.addresses(network.id)
        addresses = [first_free_address(subnet, taken) for subnet in network.subnets]
        for subnet, address in zip(network.subnets, addresses, strict=True):
            if address is None:
                raise AddressesExhausted(
                    f"network {network.printed_name} ({subnet}) has no free address",
                    hint="delete VMs of it, or create a larger network",
                )
        given = [address for address in addresses if address is not None]
        address6 = next(filter(is_ipv6, given), None)
        port_id = str(uuid.uuid4())
        mac = self._free_mac_address(port_id)
        return Port(port_id, network.id, vm_uuid, position, mac, given[0], address6)

    def add_port(self, network: Network, vm_uuid: str, position: int = 0) -> Port:
        """Give a VM a place in a network, until its row is deleted. Raises as free_port does."""
        port = self.free_port(network, vm_uuid, position)
        self.restore_port(port)
        return port

    def restore_port(self, port: Port) -> None:
        """Note the place in a network that a VM has. Raises ConcurrentChange when another has it in the store."""
        for address in port.addresses:
            self._hold_address(port.network_id, address, AddressKind.PORT, port.id)
        conflict = f"interface {port.position} of VM {port.vm_uuid}, or {port.address}, was given by another run"
        self._insert("ports", conflict=conflict, **msgspec.to_builtins(port))

    def delete_port(self, port: Port) -> bool:
        """Delete a port, so that its address is free. Returns False when it was gone already."""
        self._delete("addresses", holder=port.id)
        return self._delete("ports", id=port.id) == 1

    def ports(self, network_id: str | None = None, vm_uuid: str | None = None) -> list[Port]:
        """Ports of a network, a VM, or all; by network and address."""
        found = [Port(**vars(row)) for row in self._find("ports", **given(network_id=network_id, vm_uuid=vm_uuid))]
        return sorted(found, key=lambda port: (port.network_id, ipaddress.ip_address(port.address).packed))

    def vms_in(self, backend: Backend) -> frozenset[str]:
        """UUIDs of the VMs that have a port in a network of this backend."""
        joined = "ports JOIN networks ON networks.id = ports.network_id"
        rows = self._read(f"SELECT DISTINCT vm_uuid FROM {joined} WHERE backend = :backend", backend=backend.value)
        return frozenset(row.vm_uuid for row in rows)

    def attachments(self, vm_uuid: str) -> list[Attachment]:
        """The ports of one VM with their networks, in the order of the VM's interfaces."""
        found = []
        for port in sorted(self.ports(vm_uuid=vm_uuid), key=lambda port: port.position):
            for row in self._find("networks", id=port.network_id):
                found.append(Attachment(_network(row), port))
        return found

    def addresses(self, network_id: str) -> dict[str, AddressKind]:
        """Every held address of a network and who holds it."""
        return {row.address: AddressKind(row.kind) for row in self._find("addresses", network_id=network_id)}

    def held_addresses(self, network_id: str | None = None) -> dict[str, dict[int, int]]:
        """How many addresses of each network, or of one, somebody holds: network's id → IP version → number."""
        only = "" if network_id is None else " WHERE network_id = :network_id"
        six = "sum(CASE WHEN address LIKE :six THEN 1 ELSE 0 END)"
        rows = self._read(
            f"SELECT network_id, count(*) AS held, {six} AS six FROM addresses{only} GROUP BY network_id",
            six="%:%",
            **given(network_id=network_id),
        )
        return {row.network_id: {4: row.held - row.six, 6: row.six} for row in rows}

    def _hold_address(self, network_id: str, address: str, kind: AddressKind, holder: str) -> None:
        row = {"network_id": network_id, "address": address, "kind": kind.value, "holder": holder}
        self._insert("addresses", conflict=f"another run has just taken the address {address}", **row)

    def _free_mac_address(self, port_id: str) -> str:
        """40 bits meet by chance once there are a million ports; the next try has another digest."""
        attempt = 0
        while True:
            mac = mac_address(f"{port_id}/{attempt}" if attempt else port_id)
            if not self._find("ports", mac_address=mac):
                return mac
            attempt += 1


def _network(row: Row) -> Network:
    try:
        request = typed_json.decode(row.request, NetworkRequest)
    except msgspec.MsgspecError as exc:
        raise StoreUnusable(
            f"network {row.name} of tenant {row.tenant} cannot be read from the store: {exc}",
            hint="the row is damaged, or a newer vgpuctl wrote it",
        ) from exc
    network = Network(row.id, request, NetworkState(row.state))
    return network if row.label in (None, network.host_name) else replace(network, known_as=row.label)
