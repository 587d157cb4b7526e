# SPDX-License-Identifier: Apache-2.0
"""External networks, and the parts of tenants' networks, such as security groups and load balancers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import AddressesExhausted, NotFound, StateError, StoreUnusable
from vgpuctl.model.network import AddressKind, Network, last_free_address
from vgpuctl.store import codec
from vgpuctl.store.networks import NetworkRows

if TYPE_CHECKING:  # imported with the first row of it
    from vgpuctl.model.vpc import ExternalNetwork, VpcKind, VpcSpec

_Spec = TypeVar("_Spec")


class VpcRows(NetworkRows):
    """Set, find and delete objects of tenants' networks."""

    def set_vpc_object(self, tenant: str, spec: "VpcSpec") -> str:
        """Keep one object, by its kind and name. Returns `created`, `changed` or `unchanged`. Raises QuotaExceeded."""
        encoded = codec.encode(spec)
        place: dict[str, Any] = {"tenant": tenant, "kind": spec.kind.value, "name": spec.key}
        for row in self._find("vpc_objects", **place):
            if row.spec == encoded:
                return "unchanged"
            self._update("vpc_objects", place, spec=encoded)
            return "changed"
        conflict = f"another run has just made {spec.kind} {spec.key} of tenant {tenant}"
        with self.within_quota(tenant, f"{spec.kind} {spec.key}"):
            self._insert("vpc_objects", conflict=conflict, **place, spec=encoded)
        return "created"

    def delete_vpc_object(self, tenant: str, kind: "VpcKind", key: str) -> bool:
        """Delete one object with the addresses it holds. Returns False when it was gone already."""
        holder = f"{kind.value}/{key}"
        self._delete("external_addresses", tenant=tenant, holder=holder)
        self._delete("addresses", holder=f"{tenant}/{holder}")
        return self._delete("vpc_objects", tenant=tenant, kind=kind.value, name=key) == 1

    def vpc_objects(self, tenant: str, kind: type[_Spec]) -> list[_Spec]:
        """Objects of one kind of a tenant, by name."""
        wanted = kind.kind.value  # type: ignore[attr-defined]  # every spec's class says its kind
        rows = sorted(self._find("vpc_objects", tenant=tenant, kind=wanted), key=lambda row: str(row.name))
        return [_decode(row.spec, kind, what=f"{wanted} {row.name} of tenant {tenant}") for row in rows]

    def hold_network_address(self, network: Network, holder: str) -> str:
        """The address of a network that an object of its tenant holds; the highest free one when it holds none yet.

        An object holds one address: that of its former network is free again.
        """
        holder = f"{network.request.tenant}/{holder}"
        for row in self._find("addresses", network_id=network.id, holder=holder):
            return str(row.address)
        self._delete("addresses", holder=holder)
        address = last_free_address(network.subnet, self.addresses(network.id))
        if address is None:
            raise AddressesExhausted(f"network {network.printed_name} ({network.request.cidr}) has no free address")
        self._hold_address(network.id, address, AddressKind.BALANCER, holder)
        return address

    def set_external_network(self, network: "ExternalNetwork") -> str:
        """Keep an external network. Returns `created`, `changed` or `unchanged`.

        Raises StateError when tenants hold addresses that the new pool lacks.
        """
        pool = set(network.pool())
        strays = [address for address in self.external_addresses(network.name) if address not in pool]
        if strays:
            raise StateError(
                f"tenants hold {len(strays)} addresses of {network.name} that are not in its new pool",
                context=strays[:20],
                hint="keep these addresses in the pool, or delete the gateways and floating IPs that hold them first",
            )
        encoded = codec.encode(network)
        for row in self._find("external_networks", name=network.name):
            if row.spec == encoded:
                return "unchanged"
            self._update("external_networks", {"name": network.name}, spec=encoded)
            return "changed"
        self._insert("external_networks", name=network.name, spec=encoded)
        return "created"

    def external_networks(self) -> "list[ExternalNetwork]":
        """Every external network, by name."""
        from vgpuctl.model.vpc import ExternalNetwork

        rows = self._find("external_networks", order="name")
        return [_decode(row.spec, ExternalNetwork, what=f"external network {row.name}") for row in rows]

    def external_network(self, name: str) -> "ExternalNetwork":
        """One external network. Raises NotFound."""
        for network in self.external_networks():
            if network.name == name:
                return network
        raise NotFound(
            f"there is no external network {name!r} in the store {self._store_name}",
            hint="the operator declares it with `vgpuctl create-external-network`",
        )

    def delete_external_network(self, name: str) -> bool:
        """Delete an external network. Raises StateError while tenants hold addresses of it."""
        held = self.external_addresses(name)
        if held:
            raise StateError(
                f"tenants hold {len(held)} addresses of the external network {name}",
                context=[f"{address} is {holder}'s" for address, holder in list(held.items())[:20]],
                hint="delete the gateways of these tenants first",
            )
        return self._delete("external_networks", name=name) == 1

    def external_addresses(self, name: str) -> dict[str, str]:
        """Every held address of an external network: address → tenant/holder."""
        rows = self._find("external_addresses", external_network=name)
        return {row.address: f"{row.tenant}/{row.holder}" for row in rows}

    def hold_external_address(self, network: "ExternalNetwork", tenant: str, holder: str) -> str:
        """The external address that an object of a tenant holds; the lowest free one when it holds none yet.

        Raises AddressesExhausted, QuotaExceeded.
        """
        held = self.external_addresses(network.name)
        for address, whose in held.items():
            if whose == f"{tenant}/{holder}":
                return address
        free = next((address for address in network.pool() if address not in held), None)
        if free is None:
            raise AddressesExhausted(f"external network {network.name} has no free address", hint="enlarge its pool")
        row = {"external_network": network.name, "address": free, "tenant": tenant, "holder": holder}
        with self.within_quota(tenant, f"an address of external network {network.name} for {holder}"):
            self._insert("external_addresses", conflict=f"another run has just taken {free}", **row)
        return free

    def tenants_with_peer(self, tenant: str) -> Sequence[str]:
        """Tenants that named `tenant` as a neighbour."""
        from vgpuctl.model.vpc import VpcKind

        return sorted(row.tenant for row in self._find("vpc_objects", kind=VpcKind.PEERING.value, name=tenant))

    def peering_blocks(self) -> dict[frozenset[str], int]:
        """The link networks of all peerings, by the two tenants."""
        from vgpuctl.model.vpc import PeeringSpec, VpcKind

        return {
            frozenset((row.tenant, row.name)): _decode(row.spec, PeeringSpec, what="a peering").block
            for row in self._find("vpc_objects", kind=VpcKind.PEERING.value)
        }


def _decode(text: str, kind: type[_Spec], *, what: str) -> _Spec:
    try:
        spec: _Spec = typed_json.decode(text, kind)
        return spec
    except msgspec.MsgspecError as exc:
        raise StoreUnusable(
            f"{what} cannot be read from the store: {exc}",
            hint="the row is damaged, or a newer vgpuctl wrote it",
        ) from exc
