# SPDX-License-Identifier: Apache-2.0
"""External networks, and the parts of tenants' networks, such as security groups and load balancers."""

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import AddressesExhausted, NotFound, StateError, StoreUnusable
from vgpuctl.model.network import AddressKind, Network, is_ipv6, last_free_address
from vgpuctl.model.secret_text import SecretText
from vgpuctl.store import codec
from vgpuctl.store.networks import ROUTED_HOLDER, NetworkRows

if TYPE_CHECKING:  # imported with the first row of it
    from vgpuctl.model.secret_text import SecretText
    from vgpuctl.model.vpc import ExternalNetwork, VpcSpec
    from vgpuctl.model.vpc_kind import VpcKind

_NEXT_HOPS = "next-hops"
_Spec = TypeVar("_Spec")
MOST_INSTANCES = 2
"""Of the programs of one object on hosts, each with addresses of its own in the object's network."""
OF_IPV6 = "/ipv6"
"""After the name of what holds an external address: it holds one IPv6 address beside its IPv4 address."""
_SECRETS = "/secrets"
"""After the kind of an object: the row with its sealed secrets."""


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
            self._hold_next_hops(tenant, spec.kind)
            return "changed"
        conflict = f"another run has just made {spec.kind} {spec.key} of tenant {tenant}"
        with self.within_quota(tenant, f"{spec.kind} {spec.key}"):
            self._insert("vpc_objects", conflict=conflict, **place, spec=encoded)
        self._hold_next_hops(tenant, spec.kind)
        return "created"

    def delete_vpc_object(self, tenant: str, kind: "VpcKind", key: str) -> bool:
        """Delete one object with the addresses it holds. Returns False when it was gone already."""
        holder = f"{kind.value}/{key}"
        self._delete("external_addresses", tenant=tenant, holder=[holder, f"{holder}{OF_IPV6}"])
        self.drop_network_addresses(tenant, holder)
        self._delete("vpc_objects", tenant=tenant, kind=_sealed_kind(kind), name=key)
        is_gone = self._delete("vpc_objects", tenant=tenant, kind=kind.value, name=key) == 1
        self._hold_next_hops(tenant, kind)
        return is_gone

    def _hold_next_hops(self, tenant: str, changed: "VpcKind") -> None:
        """After a change of a route, hold the addresses that routes lead to behind direct connects: no VM gets them."""
        from vgpuctl.model.vpc import Route

        if changed is not Route.kind:
            return
        holder = f"{tenant}/{_NEXT_HOPS}"
        wanted = {address for route in self.vpc_objects(tenant, Route) for address in route.addresses}
        there = {row.address for row in self._find("addresses", holder=holder)}
        if there - wanted:
            self._delete("addresses", holder=holder, address=sorted(there - wanted))
        for network in self.networks(tenant=tenant) if wanted - there else ():
            for address in sorted(wanted - there):
                if network.is_carried and any(ipaddress.ip_address(address) in one for one in network.subnets):
                    self._hold_address(network.id, address, AddressKind.NEXT_HOP, holder)

    def vpc_objects(self, tenant: str, kind: type[_Spec]) -> list[_Spec]:
        """Objects of one kind of a tenant, by name."""
        wanted = kind.kind.value  # type: ignore[attr-defined]  # every spec's class says its kind
        rows = sorted(self._find("vpc_objects", tenant=tenant, kind=wanted), key=lambda row: str(row.name))
        return [_decode(row.spec, kind, what=f"{wanted} {row.name} of tenant {tenant}") for row in rows]

    def hold_network_addresses(
        self, network: Network, holder: str, *, kind: AddressKind = AddressKind.BALANCER
    ) -> list[str]:
        """The addresses of a network that an object of its tenant holds, one of each IP version, IPv4 first.

        They are the highest free ones when it holds none yet. Those of its former network are free again.
        """
        holder = f"{network.request.tenant}/{holder}"
        rows = self._find("addresses", network_id=network.id, holder=holder)
        if rows:
            return sorted((str(row.address) for row in rows), key=is_ipv6)
        self._delete("addresses", holder=holder)
        taken = self.addresses(network.id)
        found = []
        for subnet in network.subnets:
            address = last_free_address(subnet, taken)
            if address is None:
                raise AddressesExhausted(f"network {network.printed_name} ({subnet}) has no free address")
            self._hold_address(network.id, address, kind, holder)
            found.append(address)
        return found

    def drop_network_addresses(self, tenant: str, holder: str, *, only_instances: bool = False) -> None:
        """Free the addresses of networks that an object holds, with those of its instances."""
        holders = [] if only_instances else [holder]
        holders += [instance_holder(holder, number) for number in range(1, MOST_INSTANCES + 1)]
        self._delete("addresses", holder=[f"{tenant}/{one}" for one in holders])

    def set_object_secret(self, tenant: str, kind: "VpcKind", key: str, secret: SecretText) -> None:
        """Seal a secret of an object, such as the private key of a certificate. Raises StoreUnusable without a key."""
        what = _secret_name(tenant, kind, key)
        if self.object_secret(tenant, kind, key, or_none=True) == secret:
            return
        sealed = self._key_file.seal({f"{tenant}/{key}": {kind.value: secret.reveal()}}, what=what)
        place: dict[str, Any] = {"tenant": tenant, "kind": _sealed_kind(kind), "name": key}
        self._put("vpc_objects", place, spec=sealed)

    def object_secret(self, tenant: str, kind: "VpcKind", key: str, *, or_none: bool = False) -> SecretText | None:
        """The secret of an object, None where it has none. or_none: also where it cannot be read.

        Raises StoreUnusable without the key that it was sealed with.
        """
        for row in self._find("vpc_objects", tenant=tenant, kind=_sealed_kind(kind), name=key):
            try:
                texts = self._key_file.open(row.spec, what=_secret_name(tenant, kind, key))
            except StoreUnusable:
                if or_none:
                    return None
                raise
            text = texts.get(f"{tenant}/{key}", {}).get(kind.value)
            return None if text is None else SecretText.of(text)
        return None

    def set_external_network(self, network: "ExternalNetwork") -> str:
        """Keep an external network. Returns `created`, `changed` or `unchanged`.

        Raises StateError when tenants hold addresses that the new pool lacks.
        """
        pool = {*network.pool(), *network.pool6()}
        strays = [
            address
            for address in self.external_addresses(network.name)
            if not (network.routes(address) if "/" in address else address in pool)
        ]
        if strays:
            raise StateError(
                f"tenants hold {len(strays)} addresses of {network.name} that are not in its new pools and prefixes",
                context=strays[:20],
                hint="keep these addresses, or delete the gateways, floating IPs and networks that hold them first",
            )
        encoded = codec.encode(network)
        for row in self._find("external_networks", name=network.name):
            if row.spec == encoded:
                return "unchanged"
            self._seal_password(network)
            self._update("external_networks", {"name": network.name}, spec=encoded)
            return "changed"
        self._insert("external_networks", name=network.name, spec=encoded)
        self._seal_password(network)
        return "created"

    def external_networks(self) -> "list[ExternalNetwork]":
        """Every external network, by name."""
        from vgpuctl.model.vpc import ExternalNetwork

        rows = [row for row in self._find("external_networks", order="name") if not row.name.endswith(_SECRETS)]
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
                hint="delete the gateways of these tenants first, and their networks with a prefix of it",
            )
        self._delete("external_networks", name=f"{name}{_SECRETS}")
        return self._delete("external_networks", name=name) == 1

    def _seal_password(self, network: "ExternalNetwork") -> None:
        password = None if network.bgp is None else network.bgp.password
        place = {"name": f"{network.name}{_SECRETS}"}
        if password is None:
            self._delete("external_networks", **place)
        elif password.has_content():
            what = f"the password of BGP of external network {network.name}"
            self._put(
                "external_networks",
                place,
                spec=self._key_file.seal({network.name: {"bgp": password.reveal()}}, what=what),
            )

    def bgp_password(self, name: str) -> "SecretText | None":
        """The password of an external network's BGP sessions, None without. Raises StoreUnusable without its key."""
        from vgpuctl.model.secret_text import SecretText

        for row in self._find("external_networks", name=f"{name}{_SECRETS}"):
            what = f"the password of BGP of external network {name}"
            text = self._key_file.open(row.spec, what=what).get(name, {}).get("bgp")
            return None if text is None else SecretText.of(text)
        return None

    def external_addresses(self, name: str) -> dict[str, str]:
        """Every held address of an external network: address → tenant/holder."""
        rows = self._find("external_addresses", external_network=name)
        return {row.address: f"{row.tenant}/{row.holder}" for row in rows}

    def hold_external_address(self, network: "ExternalNetwork", tenant: str, holder: str) -> str:
        """The external address that an object of a tenant holds; the lowest free one when it holds none yet.

        Raises AddressesExhausted, QuotaExceeded.
        """
        return self._hold_external(network, tenant, holder, network.pool())

    def hold_external_address6(self, network: "ExternalNetwork", tenant: str, holder: str) -> str | None:
        """The same of IPv6; None where the external network has no IPv6."""
        return self._hold_external(network, tenant, f"{holder}{OF_IPV6}", network.pool6()) if network.cidr6 else None

    def external_address6(self, network: "ExternalNetwork", tenant: str, holder: str) -> str | None:
        """The external IPv6 address that an object of a tenant holds, None while it holds none."""
        wanted = f"{tenant}/{holder}{OF_IPV6}"
        return next((one for one, whose in self.external_addresses(network.name).items() if whose == wanted), None)

    def _hold_external(self, network: "ExternalNetwork", tenant: str, holder: str, pool: list[str]) -> str:
        held = self.external_addresses(network.name)
        for address, whose in held.items():
            if whose == f"{tenant}/{holder}":
                return address
        free = next((address for address in pool if address not in held), None)
        if free is None:
            six, flag = ("IPv6 ", "--pool6") if holder.endswith(OF_IPV6) else ("", "--pool")
            raise AddressesExhausted(
                f"external network {network.name} has no free {six}address", hint=f"enlarge {flag}"
            )
        with self.within_quota(tenant, f"an address of external network {network.name} for {holder}"):
            self._take_external(network, tenant, holder, free)
        return free

    def hold_routed_prefix(self, external: "ExternalNetwork", network: Network) -> None:
        """Give a tenant's network its prefix of those that an external network routes, until the network is deleted.

        Raises ConcurrentChange when another network has it.
        """
        request = network.request
        assert request.cidr6 is not None
        self._take_external(external, request.tenant, f"{ROUTED_HOLDER}/{request.name}", request.cidr6)

    def routed_prefixes(self, external: "ExternalNetwork", tenant: str) -> frozenset[str]:
        """The prefixes of an external network that a tenant's networks have."""
        rows = self._find("external_addresses", external_network=external.name, tenant=tenant)
        return frozenset(row.address for row in rows if "/" in row.address)

    def _take_external(self, network: "ExternalNetwork", tenant: str, holder: str, address: str) -> None:
        row = {"external_network": network.name, "address": address, "tenant": tenant, "holder": holder}
        self._insert("external_addresses", conflict=f"another run has just taken {address}", **row)

    def tenants_with_peer(self, tenant: str) -> Sequence[str]:
        """Tenants that named `tenant` as a neighbour."""
        from vgpuctl.model.vpc_kind import VpcKind

        return sorted(row.tenant for row in self._find("vpc_objects", kind=VpcKind.PEERING.value, name=tenant))

    def peering_blocks(self) -> dict[frozenset[str], int]:
        """The link networks of all peerings, by the two tenants."""
        from vgpuctl.model.vpc import PeeringSpec
        from vgpuctl.model.vpc_kind import VpcKind

        return {
            frozenset((row.tenant, row.name)): _decode(row.spec, PeeringSpec, what="a peering").block
            for row in self._find("vpc_objects", kind=VpcKind.PEERING.value)
        }


def instance_holder(holder: str, number: int) -> str:
    """Who holds the addresses of one instance of an object. number: from 1."""
    return f"{holder}/instance-{number}"


def _sealed_kind(kind: "VpcKind") -> str:
    """The kind of the row that has an object's secret, beside the object's own."""
    return f"{kind.value}-secret"


def _secret_name(tenant: str, kind: "VpcKind", key: str) -> str:
    return f"the secret of {kind.value} {key} of tenant {tenant}"


def _decode(text: str, kind: type[_Spec], *, what: str) -> _Spec:
    try:
        spec: _Spec = typed_json.decode(text, kind)
        return spec
    except msgspec.MsgspecError as exc:
        raise StoreUnusable(
            f"{what} cannot be read from the store: {exc}",
            hint="the row is damaged, or a newer vgpuctl wrote it",
        ) from exc
