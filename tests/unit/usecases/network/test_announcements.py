# SPDX-License-Identifier: Apache-2.0
"""What an external network announces by BGP: what its tenants have of it, and nothing else."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.errors import StateError, UsageError
from vgpuctl.model.bgp import Announced, Announcement, Bgp, BgpNeighbour, BgpSpeaker
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc import ExternalNetwork, FloatingIp, Gateway
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.ovn.topology import external_rows
from vgpuctl.store.store import Session, Store, open_store
from vgpuctl.usecases.network.announcements import announcements, provider_vpcs
from vgpuctl.usecases.network.bgp_speakers import speaker_function
from vgpuctl.usecases.network.external_networks import checked, refuse_shared_addresses
from vgpuctl.usecases.network.vpc_addresses import set_object

SPEAKERS = (BgpSpeaker("gpu1", "203.0.113.2"), BgpSpeaker("gpu2", "203.0.113.3"))
INTERNET = ExternalNetwork(
    *("internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", None),
    *(("gpu1", "gpu2"), (), "2001:db8:ff::/64", "2001:db8:ff::1", "2001:db8:ff::10", "2001:db8:ff::99"),
    routed6=("2001:db8:100::/56",),
    bgp=Bgp(65010, (BgpNeighbour("203.0.113.1", 65000),), SPEAKERS, password=SecretText.of("Sesame-1")),
)
OTHER = ExternalNetwork("other", "198.18.0.0/24", "198.18.0.1", "198.18.0.2", "198.18.0.9", "other")
ACME = [
    Announcement("203.0.113.11/32", "203.0.113.10"),
    Announcement("2001:db8:ff::11/128", "2001:db8:ff::10"),
    Announcement("2001:db8:100:1::/64", "2001:db8:ff::10"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A tenant with a floating IP and a routed network, and one on an external network without BGP."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db") as store:
        with store.transaction() as session:
            for external in (INTERNET, OTHER):
                session.set_external_network(external)
            for tenant in ("acme", "globex"):
                session.add_tenant(tenant)
            request = NetworkRequest("routed", "acme", cidr6="2001:db8:100:1::/64", backend=Backend.OVN)
            network = Network("n1", request, NetworkState.CREATED)
            session.add_network(network)
            session.hold_routed_prefix(INTERNET, network)
            for tenant, gateway in (("acme", "internet"), ("globex", "other")):
                set_object(session, tenant, Gateway(gateway))
                set_object(session, tenant, FloatingIp("web", ""))
        yield store


def _said(session: Session, **changed: object) -> list[Announcement]:
    assert INTERNET.bgp is not None
    bgp = replace(INTERNET.bgp, **changed)  # type: ignore[arg-type]  # fields of Bgp
    return list(announcements(session, replace(INTERNET, bgp=bgp)))


def test_announced_is_what_tenants_of_the_network_have(filled: Store) -> None:
    with filled.reading() as session:
        assert _said(session) == ACME
        assert _said(session, announces=(Announced.ROUTED6,)) == ACME[2:]
        assert _said(session, announces=(Announced.FLOATING_IPS,)) == ACME[:2]
        leaving = {("acme", VpcKind.FLOATING_IP, "web")}
        assert list(announcements(session, INTERNET, without=leaving)) == ACME[2:], "it goes before the address is free"
        leaving = {("acme", VpcKind.GATEWAY, "gateway")}
        assert list(announcements(session, INTERNET, without=leaving)) == []


def test_a_speaker_is_on_each_chassis_in_service_with_a_port_in_the_external_network(filled: Store) -> None:
    with filled.reading() as session:
        (vpc,) = provider_vpcs(session)
        assert [(place.chassis, place.addresses) for place in vpc.functions] == [
            ("gpu1", ("203.0.113.2",)),
            ("gpu2", ("203.0.113.3",)),
        ]
        made = speaker_function(session, vpc, vpc.functions[0])
        assert "Sesame-1" not in repr(made)
        (file,) = made.files
        assert file.is_secret
        assert " neighbor 203.0.113.1 password Sesame-1\n" in file.content
        assert made.ports[0].routes == ()
    with filled.transaction() as session:
        session.save_host_record("host2", "gateways-aside", "gpu2")
        (vpc,) = provider_vpcs(session)
        assert [place.chassis for place in vpc.functions] == ["gpu1"]
        session.drop_host_record("host2", "gateways-aside")
    rows = [row for row in external_rows(INTERNET) if row.key.startswith("function/")]
    assert [row.columns["options"] for row in rows] == [{"requested-chassis": one.chassis} for one in SPEAKERS]
    assert len({str(row.columns["port_security"]) for row in rows}) == len(SPEAKERS)


def test_a_network_that_has_no_bgp_any_more_loses_its_speakers(filled: Store) -> None:
    row = {"kind": "bgp", "tenant": "external/gone", "owner": "gpu1", "number": 1, "digest": "", "problem": ""}
    with filled.transaction() as session:
        session.save_host_record("host1", "network-functions", json.dumps({"vgn_1": row}))
        first = provider_vpcs(session)[0]
        assert (first.tenant, first.functions) == ("external/gone", ())
        session.drop_host_record("host1", "network-functions")


def test_a_password_is_sealed_and_goes_with_the_network(filled: Store) -> None:
    with filled.transaction() as session:
        (there,) = (one for one in session.external_networks() if one.name == "internet")
        assert there == INTERNET
        assert session.set_external_network(there) == "unchanged"
        assert there.bgp is not None
        another = replace(there, name="third", bgp=replace(there.bgp, password=SecretText.of("Open-2")))
        session.set_external_network(another)
        assert session.bgp_password("third") == SecretText.of("Open-2")
        assert session.delete_external_network("third")
        assert session.bgp_password("third") is None
    text = "".join(path.read_bytes().decode("latin1") for path in Path(filled.name).parent.glob("store.db*"))
    assert "Sesame-1" not in text


def test_a_speaker_s_address_is_nobody_else_s(filled: Store) -> None:
    second = replace(INTERNET, name="second", first="203.0.113.2", last="203.0.113.5", bgp=None, routed6=())
    second = replace(second, cidr6=None, gateway6=None, first6=None, last6=None)
    with pytest.raises(StateError, match=r"203\.0\.113\.2, the BGP speaker of internet"):
        refuse_shared_addresses(second, [INTERNET])
    assert INTERNET.bgp is not None
    with pytest.raises(UsageError, match="has an address of the pool"):
        checked(replace(INTERNET, bgp=replace(INTERNET.bgp, speakers=(BgpSpeaker("gpu1", "203.0.113.50"),))))
    assert checked(INTERNET) == INTERNET
