# SPDX-License-Identifier: Apache-2.0
"""The names of VMs in networks that OVN carries: `VM.NETWORK.TENANT.internal`, and `VM` where that is one VM."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vgpuctl.errors import UsageError
from vgpuctl.model.printable import printable

if TYPE_CHECKING:
    from vgpuctl.model.network import Network, Port

LONGEST_DOMAIN = 61
"""A name has 253 characters at most, and three labels of 63 with their dots stand before the domain (RFC 1035)."""

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_OTHERS = {
    "local": "guests ask for it by multicast DNS (RFC 6762)",
    "localhost": "guests answer it themselves (RFC 6761)",
    "arpa": "it holds the reverse names of all addresses (RFC 3172)",
}
"""Last labels that have another meaning for a guest."""


def parse_domain(text: str, *, what: str = "VGPUCTL_INTERNAL_DOMAIN") -> str:
    """Read the domain of internal names: lower case, without the last dot. Raises UsageError."""
    name = text.removesuffix(".").lower()
    labels = name.split(".")
    shown = f"{what}: '{printable(text[:80])}'"
    wrong = next((label for label in labels if not _LABEL.fullmatch(label)), None)
    hint = "write a domain such as internal or cloud.example.com"
    if wrong is not None:
        found = "an empty label" if not wrong else f"the label '{printable(wrong[:70])}'"
        raise UsageError(
            f"{shown} is not a domain name: {found}",
            hint=f"{hint}: labels of 1 to 63 letters, digits and '-', with dots between them",
        )
    if len(name) > LONGEST_DOMAIN:
        raise UsageError(
            f"{shown} has {len(name)} characters, and {LONGEST_DOMAIN} fit behind the names of VM, network and tenant",
            hint=hint,
        )
    if labels[-1].isdigit():
        raise UsageError(f"{shown} is not a domain name: it ends like an address", hint=hint)
    if labels[-1] in _OTHERS:
        raise UsageError(f"{shown} cannot be used: {_OTHERS[labels[-1]]}", hint=hint)
    return name


def label_of(name: str) -> str | None:
    """The DNS label of a VM, network or tenant: its name in lower case. None for a name with '.' or '_' in it."""
    label = name.lower()
    return label if _LABEL.fullmatch(label) else None


def domains_of(networks: "Sequence[Network]", domain: str | None) -> dict[str, str]:
    """The domain of each of a tenant's networks, `front.acme.internal`, by its id.

    A network has none if its name or its tenant's is no label, or if another network of the tenant has that label. None
    has one without a domain.
    """
    if domain is None:
        return {}
    counts = Counter(label_of(one.request.name) for one in networks)
    found = {}
    for network in networks:
        label, tenant = label_of(network.request.name), label_of(network.request.tenant)
        if label is not None and tenant is not None and counts[label] == 1:
            found[network.id] = ".".join((label, tenant, domain))
    return found


def search_list(network_domain: str | None) -> tuple[str, ...]:
    """The domains in which a guest looks for a name: that of its network, then that of its tenant."""
    return () if network_domain is None else (network_domain, network_domain.partition(".")[2])


def names_in(network_domain: str | None, vms: Iterable[str]) -> dict[str, str]:
    """The full name of each VM of a network that has one. A label that two VMs would have is neither's."""
    if network_domain is None:
        return {}
    labels = {vm: label_of(vm) for vm in vms}
    counts = Counter(labels.values())
    return {vm: f"{label}.{network_domain}" for vm, label in labels.items() if label is not None and counts[label] == 1}


def records_of(
    networks: "Sequence[Network]", ports: "Sequence[tuple[str, Port]]", domain: str
) -> dict[str, dict[str, str]]:
    """The names and reverse names of each network's ports, as OVN's table `DNS` has them, by the network's id.

    networks: of one tenant. ports: each with its VM's name. A short name is in the records of a network if it means
    one VM, in one network, to everybody who reaches that network: the routed ones reach one another.
    """
    domains = domains_of(networks, domain)
    by_network: dict[str, dict[str, list[Port]]] = {network.id: {} for network in networks}
    for vm, port in ports:
        if port.network_id in by_network:
            by_network[port.network_id].setdefault(vm, []).append(port)
    routed = [network.id for network in networks if not network.request.isolated]
    uses = Counter(label_of(vm) for network_id in routed for vm in by_network[network_id])
    found = {}
    for network in networks:
        own = by_network[network.id]
        counts = Counter(label_of(vm) for vm in own) if network.request.isolated else uses
        names = names_in(domains.get(network.id), own)
        records: dict[str, str] = {}
        for vm, its_ports in own.items():
            addresses = [address for port in its_ports for address in port.addresses]
            label = label_of(vm)
            if label is not None and counts[label] == 1:
                records[label] = " ".join(addresses)
            if vm in names:
                records[names[vm]] = " ".join(addresses)
                records |= {reverse_name(address): names[vm] for address in addresses}
        found[network.id] = records
    return found


def reverse_name(address: str) -> str:
    """The name under which resolvers ask for an address: `2.0.0.10.in-addr.arpa`."""
    import ipaddress

    return ipaddress.ip_address(address).reverse_pointer
