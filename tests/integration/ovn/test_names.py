# SPDX-License-Identifier: Apache-2.0
"""Internal names as guests ask for them: real queries on interfaces of a real ovn-controller, and its answers."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.integration.ovn.chassis import Chassis, missing_for_controller, wait_for
from tests.integration.ovn.frames import AAAA, ANY, PTR, A, Answer, arp_answers, arp_request, dns_answers, dns_query
from tests.integration.ovn.test_isolation import BACK, GLOBEX, network, port
from tests.ovn_fixture import LocalOvn
from vgpuctl.model.network import Network, mac_address
from vgpuctl.model.vpc import Vpc, VpcPort
from vgpuctl.ovn.northbound import Northbound
from vgpuctl.ovn.topology import tenant_owner, vpc_rows

pytestmark = pytest.mark.skipif(missing_for_controller() is not None, reason="ovn-host is not installed")

RESOLVER = "192.0.2.53"
FRONT = network("acme")
INNER = replace(network("acme", "inner", "10.0.2.0/24", isolated=True))
INNER = replace(INNER, request=replace(INNER.request, dns=()))
DUAL = network("acme", "dual", "10.0.3.0/24")
DUAL = replace(DUAL, request=replace(DUAL.request, cidr6="fd00:3::/64"))
SIX = port(DUAL, "six", 2)
SIX = replace(SIX, port=replace(SIX.port, address6="fd00:3::2"))
ACME = Vpc(
    "acme",
    (FRONT, BACK, INNER, DUAL),
    (port(FRONT, "web-1", 2), port(BACK, "db", 2), port(FRONT, "Both", 3), port(BACK, "Both", 3),
     port(FRONT, "no_label", 4), port(INNER, "safe", 2), port(INNER, "key", 3), SIX),
    domain="internal",
)  # fmt: skip
OTHER = Vpc("globex", (GLOBEX,), (port(GLOBEX, "web-1", 2), port(GLOBEX, "mail", 3)), domain="internal")


@dataclass
class Guest:
    """A VM's interface that asks."""

    chassis: Chassis
    tap: str
    port: VpcPort
    home: Network
    told: Path
    numbers: Iterator[int]

    def sends(self, name: str, kind: int = A, *, to: str = RESOLVER) -> int:
        """Ask for a name. Returns the number of the query."""
        number = next(self.numbers)
        macs = (self.port.port.mac_address, mac_address(f"{self.home.id}/gateway"))
        query = dns_query(name, kind, number, macs=macs, addresses=(self.port.port.address, to))
        self.chassis.send(query, self.tap)
        return number

    def asks(self, name: str, kind: int = A, *, to: str = RESOLVER) -> Answer:
        """Ask for a name, and wait for OVN's answer."""
        number = self.sends(name, kind, to=to)
        wait_for(lambda: any(one.number == number for one in dns_answers(self.told)), f"an answer for {name}")
        (answer,) = [one for one in dns_answers(self.told) if one.number == number]
        return answer

    def is_passed_on(self, name: str, kind: int = A, *, known: str) -> bool:
        """True if OVN answers nothing to a query, and answers a later one for a name that it knows."""
        number = self.sends(name, kind)
        assert self.asks(known).records
        return all(one.number != number for one in dns_answers(self.told))


@pytest.fixture(scope="module")
def guests(central: LocalOvn) -> Iterator[dict[str, Guest]]:
    """Interfaces of three VMs on one host: of two tenants, and of one in an isolated network."""
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    places = {"acme": (ACME, "web-1", FRONT), "globex": (OTHER, "web-1", GLOBEX), "inner": (ACME, "safe", INNER)}
    try:
        with Chassis(folder / "gpu1", "gpu1", central.southbound) as chassis:
            found = {}
            for number, (name, (vpc, vm, home)) in enumerate(places.items()):
                own, tap = vpc.ports_by_vm[vm], f"tap{number}"
                found[name] = Guest(chassis, tap, own, home, chassis.plug(own.port.id, tap), itertools.count(1))
            yield found
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def answered(guests: dict[str, Guest], central: LocalOvn, northbound: Northbound) -> dict[str, Guest]:
    """The guests, once their host has flows of both tenants."""
    northbound.apply({tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in (ACME, OTHER)})
    for guest in guests.values():
        identity = guest.port.port.id
        wait_for(lambda identity=identity: central.nbctl("lsp-get-up", identity).strip() == "up", f"{identity} is up")  # type: ignore[misc]  # mypy infers no type of a default
    central.nbctl("--timeout=55", "--wait=hv", "sync")
    return guests


def test_names_of_a_tenant_s_networks_are_answered_whichever_resolver_is_asked(answered: dict[str, Guest]) -> None:
    web = answered["acme"]
    for name, records in (
        ("web-1.front.acme.internal", ("10.0.0.2",)),
        ("WEB-1.Front.ACME.Internal", ("10.0.0.2",)),
        ("db.back.acme.internal", ("10.0.1.2",)),
        ("both.front.acme.internal", ("10.0.0.3",)),
        ("both.back.acme.internal", ("10.0.1.3",)),
        ("web-1", ("10.0.0.2",)),
        ("db", ("10.0.1.2",)),
    ):
        for resolver in (RESOLVER, FRONT.gateway):
            assert (web.asks(name, to=resolver).code, web.asks(name, to=resolver).records) == (0, records), name
    assert web.asks("db", ANY).records == ("10.0.1.2",)
    assert web.asks("six.dual.acme.internal", AAAA).records == web.asks("six", AAAA).records == ("fd00:3::2",)
    assert web.asks("six").records == ("10.0.3.2",)
    for address, name in (
        ("2.0.0.10.in-addr.arpa", "web-1.front.acme.internal"),
        ("2.1.0.10.in-addr.arpa", "db.back.acme.internal"),
        (ip_address("fd00:3::2").reverse_pointer, "six.dual.acme.internal"),
    ):
        assert web.asks(address, PTR).records == (name,)


def test_what_is_no_name_of_the_tenant_goes_on_to_its_resolver(answered: dict[str, Guest]) -> None:
    web = answered["acme"]
    for name in (
        "www.example.com",
        "mail.front.globex.internal",
        "mail",
        "safe.inner.acme.internal",
        "both",
        "no_label.front.acme.internal",
        "gone.front.acme.internal",
        "front.acme.internal",
    ):
        assert web.is_passed_on(name, known="db"), name
    assert web.is_passed_on("3.0.0.10.in-addr.arpa", A, known="db")


def test_a_tenant_with_the_same_addresses_and_names_gets_its_own_and_none_of_another_s(
    answered: dict[str, Guest],
) -> None:
    other = answered["globex"]
    assert other.asks("web-1.front.globex.internal").records == ("10.0.0.2",)
    assert other.asks("2.0.0.10.in-addr.arpa", PTR).records == ("web-1.front.globex.internal",)
    assert other.asks("3.0.0.10.in-addr.arpa", PTR).records == ("mail.front.globex.internal",)
    for name in ("web-1.front.acme.internal", "db.back.acme.internal", "db", "key"):
        assert other.is_passed_on(name, known="mail"), name
    assert other.is_passed_on("2.1.0.10.in-addr.arpa", PTR, known="mail")


def test_an_isolated_network_has_its_own_names_and_an_address_to_ask_for_them(answered: dict[str, Guest]) -> None:
    safe = answered["inner"]
    safe.chassis.send(arp_request(mac=safe.port.port.mac_address, address="10.0.2.2", wanted=INNER.gateway), safe.tap)
    mac = mac_address(f"{INNER.id}/gateway")
    wait_for(lambda: (INNER.gateway, mac) in arp_answers(safe.told), "ARP of the resolver's address")
    assert safe.asks("key.inner.acme.internal", to=INNER.gateway).records == ("10.0.2.3",)
    assert safe.asks("key", to=INNER.gateway).records == ("10.0.2.3",)
    for name in ("web-1.front.acme.internal", "db"):
        assert safe.is_passed_on(name, known="key"), name


def test_a_name_that_is_gone_is_answered_no_more_and_a_new_one_at_once(
    answered: dict[str, Guest], central: LocalOvn, northbound: Northbound
) -> None:
    """A VM that was renamed, one that was deleted, and one that went to another network."""
    web = answered["acme"]
    own = {one.vm: one for one in ACME.ports if one.vm != "Both"}
    moved = VpcPort(replace(own["key"].port, network_id=BACK.id, address="10.0.1.9"), "key")
    renamed = replace(own["web-1"], vm="shop")
    changed = replace(ACME, ports=(renamed, own["no_label"], own["safe"], moved))
    northbound.apply({tenant_owner("acme"): vpc_rows(changed)})
    central.nbctl("--timeout=55", "--wait=hv", "sync")
    assert web.asks("shop.front.acme.internal").records == ("10.0.0.2",)
    assert web.asks("2.0.0.10.in-addr.arpa", PTR).records == ("shop.front.acme.internal",)
    assert web.asks("key.back.acme.internal").records == ("10.0.1.9",)
    for name in ("web-1.front.acme.internal", "web-1", "db.back.acme.internal", "db", "both.front.acme.internal"):
        assert web.is_passed_on(name, known="shop"), name
    northbound.apply({tenant_owner("acme"): [], tenant_owner("globex"): []})
    left = central.nbctl("--bare", "--columns=_uuid", "list", "DNS").split()
    assert left == [], "nothing is left of tenants that are gone"


def test_a_domain_of_the_operator_and_the_options_of_dhcp(central: LocalOvn, northbound: Northbound) -> None:
    vpc = replace(ACME, domain="cloud.example.com")
    northbound.apply({tenant_owner("acme"): vpc_rows(vpc)})
    central.sync()
    flows = central.sbctl("lflow-list")
    assert 'domain_name = "front.acme.cloud.example.com"' in flows
    assert 'domain_search_list = "front.acme.cloud.example.com,acme.cloud.example.com"' in flows
    assert f"dns_server = {{{RESOLVER}}}" in flows and f"dns_server = {{{INNER.gateway}}}" in flows
    assert "db.back.acme.cloud.example.com" in central.nbctl("--bare", "--columns=records", "list", "DNS")


def test_a_query_for_an_address_of_the_other_family_is_for_the_newer_ovn_to_answer(answered: dict[str, Guest]) -> None:
    """Before OVN 24.03 it goes on to the resolver; with `ovn-owned` OVN answers it, and no resolver denies the name."""
    web = answered["acme"]
    number = web.sends("db", AAAA)
    assert web.asks("db").records == ("10.0.1.2",)
    assert [one.records for one in dns_answers(web.told) if one.number == number] in ([], [()])
