# SPDX-License-Identifier: Apache-2.0
"""What belongs to a tenant's networks (groups, ways in and out, balancers, neighbours), and the networks outside."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from sqlalchemy import delete, insert, select, update

from vgpuctl.errors import AddressesExhausted, NotFound, StateError, StoreUnusable
from vgpuctl.model.network import AddressKind, Network, last_free_address
from vgpuctl.model.vpc import Outside, VpcKind, VpcSpec
from vgpuctl.store import codec, tables
from vgpuctl.store.networks import NetworkRows

_OBJECTS, _OUTSIDES, _OUTSIDE_ADDRESSES = tables.vpc_objects, tables.outsides, tables.outside_addresses
_Spec = TypeVar("_Spec")


class VpcRows(NetworkRows):
    """Set, find and delete objects of tenants' networks."""

    def set_vpc_object(self, tenant: str, spec: VpcSpec) -> str:
        """Keep one object, by its kind and name. Returns `created`, `changed` or `unchanged`."""
        encoded = codec.encode(spec)
        place = (_OBJECTS.c.tenant == tenant, _OBJECTS.c.kind == spec.kind.value, _OBJECTS.c.name == spec.key)
        for row in self._read(select(_OBJECTS).where(*place)):
            if row.spec == encoded:
                return "unchanged"
            self._write(update(_OBJECTS).where(*place).values(spec=encoded))
            return "changed"
        self._write(
            insert(_OBJECTS).values(tenant=tenant, kind=spec.kind.value, name=spec.key, spec=encoded),
            conflict=f"another run has just made {spec.kind} {spec.key} of tenant {tenant}",
        )
        return "created"

    def delete_vpc_object(self, tenant: str, kind: VpcKind, key: str) -> bool:
        """Delete one object with the addresses it holds. Returns False when it was gone already."""
        holder = f"{kind.value}/{key}"
        self._write(
            delete(_OUTSIDE_ADDRESSES).where(
                _OUTSIDE_ADDRESSES.c.tenant == tenant, _OUTSIDE_ADDRESSES.c.holder == holder
            )
        )
        addresses = tables.addresses
        self._write(delete(addresses).where(addresses.c.holder == f"{tenant}/{holder}"))
        place = (_OBJECTS.c.tenant == tenant, _OBJECTS.c.kind == kind.value, _OBJECTS.c.name == key)
        return self._write(delete(_OBJECTS).where(*place)).rowcount == 1

    def vpc_objects(self, tenant: str, kind: type[_Spec]) -> list[_Spec]:
        """Objects of one kind of a tenant, by name."""
        wanted = kind.kind.value  # type: ignore[attr-defined]  # every spec's class says its kind
        query = select(_OBJECTS).where(_OBJECTS.c.tenant == tenant, _OBJECTS.c.kind == wanted)
        rows = sorted(self._read(query), key=lambda row: str(row.name))
        return [_decode(row.spec, kind, what=f"{wanted} {row.name} of tenant {tenant}") for row in rows]

    def hold_network_address(self, network: Network, holder: str) -> str:
        """The address of a network that an object of its tenant holds; the highest free one when it holds none yet.

        An object holds one address: that of its former network is free again.
        """
        addresses = tables.addresses
        holder = f"{network.request.tenant}/{holder}"
        mine = (addresses.c.network_id == network.id, addresses.c.holder == holder)
        for row in self._read(select(addresses.c.address).where(*mine)):
            return str(row.address)
        self._write(delete(addresses).where(addresses.c.holder == holder))
        address = last_free_address(network.subnet, self.addresses(network.id))
        if address is None:
            raise AddressesExhausted(f"network {network.label} ({network.request.cidr}) has no free address")
        self._hold_address(network.id, address, AddressKind.BALANCER, holder)
        return address

    def set_outside(self, outside: Outside) -> str:
        """Keep a network outside. Returns `created`, `changed` or `unchanged`.

        Raises StateError when tenants hold addresses that the new pool lacks.
        """
        pool = set(outside.pool())
        strays = [address for address in self.outside_addresses(outside.name) if address not in pool]
        if strays:
            raise StateError(
                f"tenants hold {len(strays)} addresses of {outside.name} that are not in its new pool",
                context=strays[:20],
                hint="keep these addresses in the pool, or take them back first",
            )
        encoded = codec.encode(outside)
        for row in self._read(select(_OUTSIDES).where(_OUTSIDES.c.name == outside.name)):
            if row.spec == encoded:
                return "unchanged"
            self._write(update(_OUTSIDES).where(_OUTSIDES.c.name == outside.name).values(spec=encoded))
            return "changed"
        self._write(insert(_OUTSIDES).values(name=outside.name, spec=encoded))
        return "created"

    def outsides(self) -> list[Outside]:
        """Every network outside, by name."""
        rows = self._read(select(_OUTSIDES).order_by(_OUTSIDES.c.name))
        return [_decode(row.spec, Outside, what=f"outside network {row.name}") for row in rows]

    def outside(self, name: str) -> Outside:
        """One network outside. Raises NotFound."""
        for outside in self.outsides():
            if outside.name == name:
                return outside
        raise NotFound(
            f"there is no outside network {name!r} in the store {self._store_name}",
            hint="the operator makes it with `vgpuctl create-outside`",
        )

    def delete_outside(self, name: str) -> bool:
        """Delete a network outside. Raises StateError while tenants hold addresses of it."""
        held = self.outside_addresses(name)
        if held:
            raise StateError(
                f"tenants hold {len(held)} addresses of the outside network {name}",
                context=[f"{address} is {holder}'s" for address, holder in list(held.items())[:20]],
                hint="take the gateways of these tenants away first",
            )
        return self._write(delete(_OUTSIDES).where(_OUTSIDES.c.name == name)).rowcount == 1

    def outside_addresses(self, name: str) -> dict[str, str]:
        """Every held address of a network outside: address → tenant/holder."""
        rows = self._read(select(_OUTSIDE_ADDRESSES).where(_OUTSIDE_ADDRESSES.c.outside == name))
        return {row.address: f"{row.tenant}/{row.holder}" for row in rows}

    def hold_outside_address(self, outside: Outside, tenant: str, holder: str) -> str:
        """The outside address that an object of a tenant holds; the lowest free one when it holds none yet."""
        held = self.outside_addresses(outside.name)
        for address, whose in held.items():
            if whose == f"{tenant}/{holder}":
                return address
        free = next((address for address in outside.pool() if address not in held), None)
        if free is None:
            raise AddressesExhausted(f"the outside network {outside.name} has no free address", hint="enlarge its pool")
        self._write(
            insert(_OUTSIDE_ADDRESSES).values(outside=outside.name, address=free, tenant=tenant, holder=holder),
            conflict=f"another run has just taken {free}",
        )
        return free

    def tenants_with_peer(self, tenant: str) -> Sequence[str]:
        """Tenants that named `tenant` as a neighbour."""
        query = select(_OBJECTS.c.tenant).where(_OBJECTS.c.kind == VpcKind.PEERING.value, _OBJECTS.c.name == tenant)
        return sorted(row.tenant for row in self._read(query))

    def peering_blocks(self) -> dict[frozenset[str], int]:
        """The link networks of all peerings, by the two tenants."""
        from vgpuctl.model.vpc import PeeringSpec

        query = select(_OBJECTS).where(_OBJECTS.c.kind == VpcKind.PEERING.value)
        return {
            frozenset((row.tenant, row.name)): _decode(row.spec, PeeringSpec, what="a peering").block
            for row in self._read(query)
        }


def _decode(text: str, kind: type[_Spec], *, what: str) -> _Spec:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as exc:
        raise StoreUnusable(
            f"{what} cannot be read from the store: {exc}",
            hint="the row is damaged, or a newer vgpuctl wrote it",
        ) from exc
