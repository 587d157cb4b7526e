# SPDX-License-Identifier: Apache-2.0
"""The kinds of objects in a tenant's VPC: commands, tenant files, comparisons and listings follow from this table.

A new kind is a class in model/vpc.py, an entry here, its addresses in usecases/network/vpc_addresses.py and its rows in
ovn/. The commands `create-KIND` and `delete-KIND` are listed in cli/contents.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.routes import parse_next_hop, parse_prefix
from vgpuctl.model.rule_text import describe_rule, parse_network, parse_rule
from vgpuctl.model.security_rule import EgressDefault
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import (
    AddressGroup,
    Contact,
    DirectConnect,
    EgressPolicy,
    FloatingIp,
    Gateway,
    PeeringSpec,
    PortForward,
    PortProtocol,
    Route,
    SecurityGroup,
    VpcSpec,
)
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpc_text import parse_forwarded
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.specs import comparison
from vgpuctl.specs.field import Choice, Field, Table, Text, Whole, show
from vgpuctl.specs.flags import read_flags, read_text
from vgpuctl.specs.http_balancing import HTTP_FILES, OF_CONNECTIONS, OF_HTTP, NamedFile, ReadFile, read_named
from vgpuctl.specs.security_rule import RULE
from vgpuctl.specs.vpn_connection import VPN_FIELDS, PresharedKeyFile

_NAME = Text(check_name)
_PORT = Whole(1, 65535)
_CHECK = Whole(1, 3600)


class Written(StrEnum):
    """How a tenant's file holds the objects of a kind.

    An object is a mapping of its fields. If only one field is left, the object is that field's value itself.
    """

    ONCE = "once"
    """`gateway: internet`"""
    AS_LIST = "as-list"
    """`floating_ips: [web-1]`"""
    BY_NAME = "by-name"
    """`load_balancers: {shop: {…}}`: the key is the first field"""
    IN_NETWORKS = "in-networks"
    """`networks: {front: {direct_connect: {…}}}`: the network's name is the first field"""


@dataclass(frozen=True)
class ObjectKind:
    """One kind of object.

    section, written: where a tenant's file has it. fields: the one that names an object first. summary: one line about
    an object, with its attributes in braces. create_help, delete_help: the second paragraph of --help.
    argument: the argument of create-KIND and delete-KIND, if it is not the first field. given: attributes that the
    store fills in, with their value before. defaults: of attributes that may be left out. same_as: attributes that take
    another one's value. vms: the attribute that names VMs. changed: fields that can change later; changed_list: and the
    list that changes by its items. of_items: lists among `changed` that name such items: the command adds to them,
    and replaces what they have of the same name; ended: the key, flag and help that takes items out again.
    item_name, item_help: of the commands for single items. files: attributes whose text names a file, and what the
    model keeps of its path and content. runs_on_hosts: objects may be programs there. to_change: a hint.
    """

    model: type[Any]
    section: str
    written: Written
    fields: tuple[Field, ...]
    summary: str
    create_help: str = ""
    delete_help: str = ""
    argument: Field | None = None
    given: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)
    vms: str | None = None
    changed: tuple[str, ...] = ()
    changed_list: str | None = None
    of_items: tuple[str, ...] = ()
    ended: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    item_name: str | None = None
    item_help: str = ""
    files: Mapping[str, NamedFile | PresharedKeyFile] = field(default_factory=dict)
    runs_on_hosts: bool = False
    to_change: str = "delete it first, or change it in the tenant's file"

    @property
    def kind(self) -> VpcKind:
        """Its name in commands and in the store."""
        return VpcKind(self.model.kind)

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return self.kind.replace("-", " ").replace(" ip", " IP").replace("vpn", "VPN")

    @cached_property
    def table(self) -> Table[Any]:
        """Its fields as a table."""
        return Table(self.name, self.model, self.fields)

    @property
    def named_by(self) -> Field:
        """The argument of create-KIND."""
        return self.argument or self.fields[0]

    @property
    def is_single(self) -> bool:
        """True if a tenant has one object at most."""
        return self.written is Written.ONCE

    def name_in(self, text: str) -> str:
        """The name of the object that a user calls so: `8080` is `tcp/8080`. Raises UsageError."""
        return show(self.named_by.type, read_text(self.named_by, text))

    def read(self, given: Mapping[str, Any]) -> VpcSpec:
        """Make an object from a command's argument and flags. Raises UsageError."""
        return self.build(self.with_files(read_flags((self.named_by, *self.fields), given), read_named))

    def with_files(self, values: Mapping[str, Any], read_file: ReadFile) -> dict[str, Any]:
        """The values with what the files have that they name. Raises UsageError."""
        read = {name: file.read(values[name], read_file) for name, file in self.files.items() if name in values}
        return {**values, **read}

    def build(self, values: Mapping[str, Any]) -> VpcSpec:
        """Make an object from the values of its attributes."""
        copied = {name: values[source] for name, source in self.same_as.items() if name not in values}
        made: VpcSpec = self.table.build({**self.given, **self.defaults, **copied, **values})
        return made

    def vms_of(self, spec: VpcSpec) -> tuple[str, ...]:
        """The VMs that an object names."""
        names = () if self.vms is None else getattr(spec, self.vms)
        return (names,) if isinstance(names, str) else names

    def words(self, spec: VpcSpec) -> dict[str, str]:
        """Every field of an object as a user would write it, by attribute."""
        return {one.path: _words(one, getattr(spec, one.path)) for one in self.fields}


def _name(key: str, text: str, flag: str | None = None, *, is_list: bool = False) -> Field:
    return Field(key, _NAME, text, flag=flag, metavar="NAME" if flag else None, is_list=is_list, is_required=True)


KINDS = (
    ObjectKind(
        Contact,
        "contact",
        Written.ONCE,
        (Field("address", Text(), "Contact person of the tenant", is_required=True),),
        "{address}",
    ),
    ObjectKind(
        Gateway,
        "gateway",
        Written.ONCE,
        (_name("external_network", "External network to reach"),),
        "to {external_network}",
        "The tenant's networks reach EXTERNAL_NETWORK by NAT, with an address of the gateway's own. The operator"
        " declares EXTERNAL_NETWORK with `create-external-network`. A tenant has one gateway.",
        "Refused while the tenant has floating IPs or port forwards.",
        to_change="delete it first; floating IPs and port forwards go before it",
    ),
    ObjectKind(
        AddressGroup,
        "address_groups",
        Written.BY_NAME,
        (
            _name("name", "Name of the address group"),
            Field(
                "addresses",
                Text(parse_network),
                "CIDR or address of the group",
                flag="--address",
                metavar="CIDR",
                is_list=True,
            ),
        ),
        "{addresses}",
        "Security rules name it as addresses:NAME. An empty group matches nothing.",
        "Refused while security rules name them.",
        changed_list="addresses",
        to_change="change it with `vgpuctl set-address-group`, or in the tenant's file",
    ),
    ObjectKind(
        EgressPolicy,
        "egress_policy",
        Written.ONCE,
        (Field("default", Choice(EgressDefault), "allow or deny", is_required=True),),
        "{default} traffic from VMs that no rule is about",
        "Without a policy, VMs may send what no egress rule denies. With DEFAULT deny they may send only what an egress"
        " rule allows; DHCP and answers to connections that were let in still pass.",
        to_change="delete it first, or change it in the tenant's file",
    ),
    ObjectKind(
        SecurityGroup,
        "security_groups",
        Written.BY_NAME,
        (
            _name("name", "Name of the group"),
            Field(
                "rules",
                Text(parse_rule, describe_rule, table=RULE),
                "Rule, as [egress:][deny:|reject:]PROTOCOL[:PORTS][@PEER]",
                flag="--rule",
                metavar="RULE",
                is_list=True,
            ),
        ),
        "rules: {rules}",
        "VMs of the group (`create-vm --security-group`) accept only traffic that an ingress rule allows.",
        "Refused while VMs are in them, or rules of other groups name them.",
        changed_list="rules",
        item_name="security-rule",
        item_help="A rule is icmp, tcp:80, udp:8000-8010@10.9.0.0/24, any@group:web for traffic from members of group"
        " web, egress:tcp:443@addresses:partners, or deny:tcp:22,priority=200,log. docs/networks.md has every part.",
        to_change="change it with `vgpuctl create-security-rule` and `vgpuctl delete-security-rule`, or in the"
        " tenant's file",
    ),
    ObjectKind(
        DirectConnect,
        "direct_connect",
        Written.IN_NETWORKS,
        (
            _name("network", "Network to connect"),
            _name("physical_network", "Physical network, as in the hosts' ovn-bridge-mappings", "--physical-network"),
            Field("vlan", Whole(1, 4094), "VLAN of the physical network", flag="--vlan", default="untagged"),
        ),
        "{physical_network}, VLAN: {vlan}",
        "The tenant brings the physical network or VLAN to the hosts.",
    ),
    ObjectKind(
        Route,
        "routes",
        Written.BY_NAME,
        (
            Field("prefix", Text(parse_prefix), "Destination of the route", is_required=True),
            Field(
                "via",
                Text(parse_next_hop),
                "Next hop: a VM, VM@NETWORK, an address behind a direct connect, or discard",
                "next_hops",
                "--via",
                is_list=True,
                is_required=True,
                at_least_one=True,
                metavar="HOP",
            ),
        ),
        "via {next_hops}",
        "The tenant's router sends packets for PREFIX to the next hop. Several next hops share the connections (ECMP)."
        " A VM that is a next hop may also send from addresses in PREFIX. With `discard` the packets are dropped.",
        "Packets for these prefixes then take the next shorter prefix, such as the gateway's default route.",
        changed_list="via",
        to_change="change its next hops with `vgpuctl set-route`, or in the tenant's file",
    ),
    ObjectKind(
        LoadBalancer,
        "load_balancers",
        Written.BY_NAME,
        (
            _name("name", "Name of the load balancer"),
            _name("network", "Network of its address", "--network"),
            Field("port", _PORT, "Port of its address", flag="--port", is_required=True),
            Field(
                "protocol",
                Choice(BalancerProtocol),
                "Protocol of the port; http and https read requests",
                flag="--protocol",
                default="tcp",
            ),
            _name("vms", "VM behind the load balancer", "--vm", is_list=True),
            Field("vm_port", _PORT, "Port of the VMs", flag="--vm-port", default="the same port"),
            Field("interval_s", _CHECK, "Seconds between health checks", "health_interval_s", "--interval"),
            Field("timeout_s", _CHECK, "Seconds to wait for a health check's answer", "health_timeout_s", "--timeout"),
            Field(
                "failures",
                _CHECK,
                "Failed health checks before a VM gets no connections",
                "health_failures",
                "--failures",
            ),
            *OF_HTTP,
            *OF_CONNECTIONS,
        ),
        "{address}:{port} of {network} to {vms}, port {vm_port}",
        "It shares connections to its address among the VMs that answer its health checks. The address is the highest"
        " free one of the network. With protocol http or https it reads requests: routes lead them to pools of VMs by"
        " host and path. It then runs on two hosts of the tenant's external network, which need haproxy.",
        "Their addresses become free.",
        given={"address": "", "address6": "", "instances": ()},
        defaults={"protocol": BalancerProtocol.TCP},
        same_as={"vm_port": "port"},
        vms="all_vms",
        files=HTTP_FILES,
        runs_on_hosts=True,
        changed=(
            *("vm_port", "interval_s", "timeout_s", "failures"),
            *(one.key for one in (*OF_CONNECTIONS, *OF_HTTP)),
        ),
        changed_list="vms",
        of_items=("draining", "weights"),
        ended={"draining": ("undrain", "--undrain", "VM that gets new connections again")},
        to_change="change its VMs, routes, certificate and checks with `vgpuctl set-load-balancer`; delete it first, or"
        " change it in the tenant's file, for the rest",
    ),
    ObjectKind(
        FloatingIp,
        "floating_ips",
        Written.AS_LIST,
        (_name("vm", "VM that gets the address"),),
        "{address} is {vm}'s",
        "The address is the lowest free one of the tenant's external network. The VM's security groups apply to it.",
        "Other VMs may get these addresses.",
        given={"address": "", "address6": ""},
        vms="vm",
    ),
    ObjectKind(
        PortForward,
        "port_forwards",
        Written.AS_LIST,
        (
            Field("protocol", Choice(PortProtocol), "Protocol", default="tcp"),
            Field("port", _PORT, "Port of the gateway's address", is_required=True),
            _name("vm", "VM that gets the connections", "--vm"),
            Field("vm_port", _PORT, "Port of the VM", flag="--vm-port", default="the same port"),
        ),
        "{address}:{port} to {vm}:{vm_port}",
        "The port is 8080, tcp/8080 or udp/53. The VM sees the client's address, and its security groups must allow the"
        " connection.",
        argument=Field(
            "forwarded",
            Text(parse_forwarded, lambda forwarded: "/".join(map(str, forwarded))),
            "Port of the gateway's address",
            "protocol",
            parts=("port",),
            metavar="[PROTOCOL/]PORT",
        ),
        given={"address": "", "address6": ""},
        defaults={"protocol": PortProtocol.TCP},
        same_as={"vm_port": "port"},
        vms="vm",
    ),
    ObjectKind(
        PeeringSpec,
        "peerings",
        Written.AS_LIST,
        (_name("tenant", "The other tenant"),),
        "with {tenant}",
        "It takes effect when both tenants have it. Refused if networks of the two overlap. Security groups still"
        " apply.",
        "The networks of the two tenants are separated at once.",
        argument=Field("neighbour", _NAME, "The other tenant", "tenant", metavar="TENANT"),
        given={"block": -1},
    ),
    ObjectKind(
        VpnConnection,
        "vpn_connections",
        Written.BY_NAME,
        (
            _name("name", "Name of the VPN connection"),
            _name("network", "Network in which the tunnel has an address", "--network"),
            *VPN_FIELDS,
        ),
        "{prefixes} by UDP port {port}, peer at {endpoint}, our key {public_key}",
        "It joins the tenant's networks with another site by a WireGuard tunnel, which ends at UDP port --port of the"
        " address of the tenant's gateway. Our private key is made here, and never shown; the public key is in the"
        " output. Refused if networks of the other site overlap the tenant's networks, its peerings, other VPN"
        " connections, or networks of the provider. The security groups of VMs still apply.",
        "The tunnel ends at once, and its keys are deleted.",
        given={
            **dict.fromkeys(("address", "address6", "external_address", "external_address6"), ""),
            **dict.fromkeys(("public_key", "made_peer_key"), ""),
            "private_key": None,
        },
        runs_on_hosts=True,
        files={"preshared_key": PresharedKeyFile()},
        changed=("peer_key", "endpoint", "keepalive_s", "preshared_key"),
        changed_list="prefixes",
        to_change="change it with `vgpuctl set-vpn-connection`; delete it first, or change it in the tenant's file, for"
        " the rest",
    ),
)
"""In an order in which objects can be created."""
KIND_OF = {one.kind: one for one in KINDS}
LISTED = tuple(one.kind for one in KINDS if one.kind is not VpcKind.CONTACT)


def is_same(there: VpcSpec, wanted: VpcSpec) -> bool:
    """True if an object of the store is the one that is wanted, whatever addresses it was given."""
    return without_given(there) == without_given(wanted)


def without_given(spec: VpcSpec) -> VpcSpec:
    """The object as a user asks for it: without what the store gives it."""
    given: Mapping[str, Any] = KIND_OF[spec.kind].given
    return replace(spec, **given)


def list_differences(there: VpcSpec, wanted: VpcSpec) -> list[str]:
    """One line per field that differs: `vm_port: 80 there, 8080 wanted`."""
    return comparison.list_differences(KIND_OF[there.kind].table, there, wanted)


def describe(spec: VpcSpec) -> str:
    """An object in a few words, without its name: `203.0.113.10:8080 to web-2:80`."""
    kind = KIND_OF[spec.kind]
    given = {name: str(getattr(spec, name)) for name in kind.given}
    if given.get("address6"):
        own4 = [] if given["address"] == given["address6"] else [given["address"]]
        given["address"] = " and ".join((*own4, f"[{given['address6']}]"))
    return kind.summary.format(**given, **kind.words(spec))


def _words(one: Field, value: object) -> str:
    if isinstance(value, tuple) and one.is_list:
        return ", ".join(show(one.type, each) for each in value) or "none"
    return one.default or "none" if value is None or value == "" else show(one.type, value)
