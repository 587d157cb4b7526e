# SPDX-License-Identifier: Apache-2.0
"""The tables of networks: a tenant's network, in a file or by flags, and an external network of the operator."""

from collections.abc import Mapping
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.model.bgp import (
    Announced,
    describe_neighbour,
    describe_speaker,
    parse_as,
    parse_neighbour,
    parse_password,
    parse_speaker,
)
from vgpuctl.model.network import Backend, NetworkRequest, is_ipv6, parse_cidr, parse_cidr6, parse_resolver
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.specs import comparison
from vgpuctl.specs.field import Choice, Compared, Document, Field, Section, Table, Text, Truth, Whole
from vgpuctl.specs.flags import read_flags, refuse_lone_flags
from vgpuctl.specs.secret_file import read_secret


def _parse_cidr(text: str, /, *, what: str) -> str:
    return str(parse_cidr(text, what=what))


def _parse_cidr6(text: str, /, *, what: str) -> str:
    return str(parse_cidr6(text, what=what))


def _parse_pool(text: str, /, *, what: str) -> tuple[str, str]:
    first, dash, last = text.partition("-")
    if not dash:
        raise UsageError(f"{what} {text!a} is not FIRST-LAST", hint="for example 203.0.113.10-203.0.113.99")
    return first, last


NETWORK = Table(
    "a network",
    NetworkRequest,
    (
        Field(
            "cidr",
            Text(_parse_cidr),
            "IPv4 addresses of the network, /8 to /29: 10.0.0.0/24",
            flag="--cidr",
            metavar="CIDR",
        ),
        Field(
            "cidr6",
            Text(_parse_cidr6),
            "IPv6 addresses of an OVN network, /64, beside IPv4 or alone: fd00:1::/64",
            flag="--cidr6",
            metavar="CIDR",
        ),
        Field(
            "dns",
            Text(parse_resolver),
            "DNS resolver for the VMs",
            flag="--dns",
            metavar="ADDRESS",
            is_list=True,
            default="the host's",
        ),
        Field("isolated", Truth(), "Allow traffic only between VMs of the network", flag="--isolated"),
        Field(
            "backend",
            Choice(Backend),
            "libvirt on one host, or OVN on all hosts",
            flag="--backend",
            default="ovn if VGPUCTL_OVN_NORTHBOUND is set and no host is given",
        ),
        Field(
            "host",
            Text(),
            "Host of a libvirt network",
            flag="--host",
            metavar="NAME",
            default="the only host of the inventory",
        ),
    ),
)
EXTERNAL_NETWORK = Table(
    "an external network",
    ExternalNetwork,
    (
        Field("cidr", Text(), "Provider's network: 203.0.113.0/24", flag="--cidr", metavar="CIDR", is_required=True),
        Field(
            "gateway",
            Text(),
            "Address of the provider's router",
            flag="--gateway",
            metavar="ADDRESS",
            is_required=True,
        ),
        Field(
            "pool",
            Text(_parse_pool),
            "First and last address for tenants",
            "first",
            "--pool",
            "FIRST-LAST",
            is_required=True,
            parts=("last",),
            compared=Compared.NEVER,
        ),
        Field("cidr6", Text(), "IPv6 network of the provider: 2001:db8::/64", flag="--cidr6", metavar="CIDR"),
        Field(
            "gateway6",
            Text(),
            "IPv6 address of the provider's router, may be link-local",
            flag="--gateway6",
            metavar="ADDRESS",
        ),
        Field(
            "pool6",
            Text(_parse_pool),
            "First and last IPv6 address for tenants",
            "first6",
            "--pool6",
            "FIRST-LAST",
            parts=("last6",),
            compared=Compared.NEVER,
        ),
        Field(
            "routed6",
            Text(),
            "IPv6 prefix whose /64 networks are routed to tenants, without NAT",
            flag="--routed6",
            metavar="CIDR",
            is_list=True,
        ),
        Field(
            "physical_network",
            Text(check_name),
            "Its name in the hosts' ovn-bridge-mappings",
            flag="--physical-network",
            metavar="NAME",
            is_required=True,
        ),
        Field("vlan", Whole(1, 4094), "VLAN of the physical network", flag="--vlan", default="untagged"),
        Field(
            "chassis",
            Text(check_name),
            "system-id of a host for gateways; tenants are spread over several",
            flag="--chassis",
            metavar="ID",
            is_list=True,
        ),
        Field(
            "management", Text(), "Network that no tenant may reach", flag="--management", metavar="CIDR", is_list=True
        ),
        Field("bgp.as", Text(parse_as), "Number of our AS", "bgp.as_number", "--bgp-as", "NUMBER"),
        Field(
            "bgp.neighbours",
            Text(parse_neighbour, describe_neighbour),
            "Router of the provider, and its AS",
            flag="--bgp-neighbour",
            metavar="ADDRESS=AS",
            is_list=True,
        ),
        Field(
            "bgp.speakers",
            Text(parse_speaker, describe_speaker),
            "Chassis that speaks BGP, and its address for that",
            flag="--bgp-speaker",
            metavar="CHASSIS=ADDRESS",
            is_list=True,
        ),
        Field(
            "bgp.announces",
            Choice(Announced),
            "Kind of routes to announce",
            flag="--bgp-announce",
            is_list=True,
            default="all kinds",
        ),
        Field(
            "bgp.password",
            Document(parse_password),
            "File with the password of the sessions",
            flag="--bgp-password",
            metavar="FILE",
        ),
    ),
    (Section("bgp", "BGP of our chassis with the provider's routers", opened_by=("as",)),),
)


def build_network(name: str, tenant: str, values: Mapping[str, Any], *, default_backend: Backend) -> NetworkRequest:
    """Make a request from the values of its attributes; a network with a host is libvirt's. Raises UsageError."""
    check_name(name, what="network name")
    backend = Backend.LIBVIRT if values.get("host") else default_backend
    return _checked(NETWORK.build({"name": name, "tenant": tenant, "backend": backend, **values}))


def _checked(request: NetworkRequest) -> NetworkRequest:
    """Accept a network whose fields fit together. Raises UsageError."""
    if not request.cidrs:
        raise UsageError(
            f"network {request.name} has no addresses",
            hint="give IPv4 addresses (--cidr 10.0.0.0/24), IPv6 addresses (--cidr6 fd00:1::/64), or both",
        )
    if request.cidr6 is not None and request.backend is Backend.LIBVIRT:
        raise UsageError(
            f"network {request.name} is to have IPv6 addresses, and libvirt carries IPv4 alone",
            hint="let OVN carry it (--backend ovn, without --host), or leave --cidr6 out",
        )
    for resolver in request.dns:
        if (request.cidr6 if is_ipv6(resolver) else request.cidr) is None:
            version = "IPv6" if is_ipv6(resolver) else "IPv4"
            raise UsageError(
                f"no VM of network {request.name} reaches the resolver {resolver}: it has no {version} addresses",
                hint=f"give the network {version} addresses too, or another resolver",
            )
    return request


def read_network_flags(name: str, tenant: str, given: Mapping[str, Any], *, default_backend: Backend) -> NetworkRequest:
    """Make a request from the flags of create-network. Raises UsageError."""
    return build_network(name, tenant, read_flags(NETWORK.fields, given), default_backend=default_backend)


def read_external_network_flags(name: str, given: Mapping[str, Any]) -> ExternalNetwork:
    """Make an external network from the flags of create-external-network. Raises UsageError."""
    check_name(name, what="external network")
    refuse_lone_flags(EXTERNAL_NETWORK, given)
    return EXTERNAL_NETWORK.build({"name": name, **read_flags(EXTERNAL_NETWORK.fields, given, read_secret)})


def list_differences(there: NetworkRequest, wanted: NetworkRequest) -> list[str]:
    """One line per field that differs: `cidr: 10.0.0.0/24 there, 10.0.1.0/24 wanted`."""
    return comparison.list_differences(NETWORK, there, wanted)
