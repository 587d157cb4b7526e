# SPDX-License-Identifier: Apache-2.0
"""VPN connections in the store: what none may be, keys that are nowhere in plain, and the function of one on a host."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.errors import NetworkInUse, StateError, UsageError
from vgpuctl.model.network import AddressKind, Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc import ExternalNetwork, Gateway, PeeringSpec, PortForward, PortProtocol, Route, Vpc, VpcSpec
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.topology import vpc_rows
from vgpuctl.ovn.wireguard_keys import is_pair, new_keys
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.network.function_kinds import places_of
from vgpuctl.usecases.network.networks import refuse_overlap
from vgpuctl.usecases.network.vpc import read_vpc
from vgpuctl.usecases.network.vpc_addresses import all_objects, set_object
from vgpuctl.usecases.network.vpn_functions import vpn_function
from vgpuctl.usecases.network.vpn_keys import PRESHARED_KEY, PRIVATE_KEY, read_secrets
from vgpuctl.usecases.network.vpn_refusals import refuse_provider_of_vpn

INTERNET = ExternalNetwork(
    *("internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider"),
    chassis=("gpu1", "gpu2", "gpu3"),
    management=("172.16.0.0/16",),
)
OTHER = replace(
    INTERNET, name="other", cidr="198.18.0.0/24", gateway="198.18.0.1", first="198.18.0.2", last="198.18.0.9"
)
OTHER = replace(OTHER, routed6=("2001:db8:100::/56",), management=("172.17.0.0/16",), physical_network="other")
PEER = new_keys()
VPN = VpnConnection("office", "front", ("192.168.10.0/24",), peer_key=PEER.public)


def _network(name: str, cidr: str | None = None, tenant: str = "acme", **more: Any) -> Network:
    request = NetworkRequest(name, tenant, cidr, backend=Backend.OVN, **more)
    return Network(f"{tenant}-{name}", request, NetworkState.CREATED)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A tenant with a gateway, three networks, a peer and a VPN connection."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db") as store:
        with store.transaction() as session:
            for external in (INTERNET, OTHER):
                session.set_external_network(external)
            for tenant in ("acme", "globex", "umbrella"):
                session.add_tenant(tenant)
            session.add_network(_network("front", "10.0.0.0/24"))
            session.add_network(_network("back", "10.0.1.0/24", cidr6="fd00:1::/64"))
            session.add_network(_network("alone", "10.0.2.0/24", isolated=True))
            session.add_network(_network("front", "10.7.0.0/24", "globex"))
            session.add_network(_network("front", "192.168.10.0/25", "umbrella"))
            for spec in (
                Gateway("internet"),
                PortForward(PortProtocol.UDP, "", 5353, "dns", 53),
                PortForward(PortProtocol.TCP, "", 51820, "web", 80),
                PeeringSpec("globex", -1),
                Route("10.66.0.0/16", ("discard",)),
                VPN,
            ):
                set_object(session, "acme", spec)
        yield store


LAB = replace(VPN, name="lab", port=51821, prefixes=("192.168.20.0/24",))
TWO = replace(LAB, prefixes=("192.168.20.0/24", "192.168.20.128/25"))
REFUSED: tuple[tuple[VpcSpec, type[Exception], str], ...] = (
    (replace(LAB, prefixes=("10.0.0.0/8",)), NetworkInUse, "overlaps with 10.0.2.0/24, network acme/alone"),
    (replace(LAB, prefixes=("10.0.0.128/32",)), NetworkInUse, "overlaps with 10.0.0.0/24, network acme/front"),
    (replace(LAB, prefixes=("10.7.0.0/16",)), NetworkInUse, "overlaps with 10.7.0.0/24, network globex/front"),
    (replace(LAB, prefixes=("192.168.0.0/16",)), NetworkInUse, "overlaps with 192.168.10.0/24, VPN connection office"),
    (replace(LAB, prefixes=("203.0.113.7/32",)), NetworkInUse, "overlaps with 203.0.113.0/24, external network"),
    (replace(LAB, prefixes=("198.18.0.0/15",)), NetworkInUse, "overlaps with 198.18.0.0/24, external network other"),
    (replace(LAB, prefixes=("172.17.5.0/24",)), NetworkInUse, "overlaps with 172.17.0.0/16, a management network"),
    (
        replace(LAB, network="back", prefixes=("2001:db8:100:7::/64",)),
        NetworkInUse,
        "overlaps with 2001:db8:100::/56, a prefix that external network other routes",
    ),
    (replace(LAB, prefixes=("10.66.7.0/24",)), NetworkInUse, "overlaps with 10.66.0.0/16, route 10.66.0.0/16"),
    (TWO, UsageError, "overlaps with another of its prefixes"),
    (replace(LAB, prefixes=("fd00:20::/64",)), UsageError, "network acme/front has no IPv6 addresses"),
    (replace(LAB, network="alone"), UsageError, "is isolated"),
    (replace(LAB, port=51820), NetworkInUse, "UDP port 51820 of the gateway of tenant acme is VPN connection office's"),
    (replace(LAB, port=5353), NetworkInUse, "UDP port 5353 of the gateway of tenant acme is port forward udp/5353's"),
    (replace(LAB, endpoint="192.168.20.1:51820"), UsageError, "would go into the tunnel"),
    (replace(LAB, endpoint="172.16.0.9:51820"), UsageError, "which no tenant reaches"),
    (replace(LAB, endpoint="[2001:db8::7]:51820"), UsageError, "front has no IPv6 addresses"),
    (
        replace(LAB, network="back", endpoint="[2001:db8::7]:51820"),
        UsageError,
        "external network internet has no IPv6 addresses",
    ),
    (PortForward(PortProtocol.UDP, "", 51820, "web", 80), NetworkInUse, "is VPN connection office's"),
    (Route("192.168.10.128/25", ("discard",)), NetworkInUse, "192.168.10.0/24 of VPN connection office"),
    (PeeringSpec("umbrella", -1), NetworkInUse, "overlaps with 192.168.10.0/25, network umbrella/front"),
)


@pytest.mark.parametrize(("wanted", "error", "said"), REFUSED)
def test_a_vpn_connection_takes_nothing_from_others(
    filled: Store, wanted: VpcSpec, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught, filled.transaction() as session:
        set_object(session, "acme", wanted)
    assert said in str(caught.value)


def test_what_comes_later_is_held_against_vpn_connections_too(filled: Store) -> None:
    with filled.reading() as session:
        with pytest.raises(NetworkInUse, match=r"overlaps with 192\.168\.10\.64/26, network acme/late"):
            refuse_overlap(_network("late", "192.168.10.64/26"), session)
        with pytest.raises(NetworkInUse, match=r"192\.168\.10\.0/24 of VPN connection office of tenant acme"):
            refuse_overlap(_network("late", "192.168.10.64/26", "globex"), session)  # a peer
        with pytest.raises(NetworkInUse, match="a management network of internet"):
            refuse_provider_of_vpn(session, replace(INTERNET, management=("192.168.0.0/16",)))
        refuse_provider_of_vpn(session, INTERNET)


def test_our_own_key_is_no_peer_s(filled: Store) -> None:
    (there,) = _vpns(filled)
    with pytest.raises(UsageError, match="has our own public key"), filled.transaction() as session:
        set_object(session, "acme", replace(VPN, peer_key=there.public_key))


def test_keys_are_made_once_and_only_sealed_in_the_store(filled: Store, tmp_path: Path) -> None:
    (there,) = _vpns(filled)
    with filled.transaction() as session:
        assert set_object(session, "acme", VPN) == "unchanged"
        private = read_secrets(session, "acme", VPN)[PRIVATE_KEY]
        assert is_pair(private, there.public_key)
        assert session.addresses("acme-front")[there.address] is AddressKind.FUNCTION
        preshared = SecretText.of(new_keys().private)
        with_psk = replace(VPN, preshared_key=preshared)
        assert set_object(session, "acme", with_psk) == "changed"
        # From the store it comes back without its content, and another change keeps it.
        (known,) = session.vpc_objects("acme", VpnConnection)
        assert set_object(session, "acme", replace(known, keepalive_s=25)) == "changed"
        assert read_secrets(session, "acme", VPN)[PRESHARED_KEY] == preshared.reveal()
        assert set_object(session, "acme", VPN) == "changed"
        assert PRESHARED_KEY not in read_secrets(session, "acme", VPN)
    text = "".join(path.read_bytes().decode("latin1") for path in Path(filled.name).parent.glob("store.db*"))
    assert there.public_key in text
    assert private not in text
    assert preshared.reveal() not in text


def test_a_deleted_connection_leaves_no_key_and_a_new_one_has_another(filled: Store) -> None:
    with filled.transaction() as session:
        set_object(session, "acme", LAB)
        (first,) = (one for one in session.vpc_objects("acme", VpnConnection) if one.key == "lab")
        assert session.delete_vpc_object("acme", LAB.kind, LAB.key)
        assert read_secrets(session, "acme", LAB) == {}
        assert first.address not in session.addresses("acme-front")
        set_object(session, "acme", LAB)
        (second,) = (one for one in session.vpc_objects("acme", VpnConnection) if one.key == "lab")
        assert second.public_key != first.public_key
        session.delete_vpc_object("acme", LAB.kind, LAB.key)
        assert [one.key for one in all_objects(session, "acme") if isinstance(one, VpnConnection)] == ["office"]


def test_the_function_of_a_tunnel_is_where_the_gateway_is_and_moves_with_it(filled: Store) -> None:
    with filled.reading() as session:
        vpc = read_vpc(session, "acme")
        (place,) = vpc.functions
        made = vpn_function(session, vpc, place)
        private = read_secrets(session, "acme", VPN)[PRIVATE_KEY]
        aside = replace(vpc, aside=frozenset({place.chassis}))
        assert _chassis(aside) != place.chassis
        assert _chassis(replace(vpc, aside=frozenset(INTERNET.chassis))) == place.chassis, "all are aside"
        assert list(places_of(replace(vpc, external_network=replace(INTERNET, chassis=())))) == []
        lost = replace(vpc, vpns=(replace(vpc.vpns[0], public_key=PEER.public),))
        with pytest.raises(StateError, match="has no private key") as caught:
            vpn_function(session, lost, place)
        assert "rotate-vpn-keys office" in str(caught.value.hint)
    secret = {file.name for file in made.files if file.is_secret}
    assert {file.name for file in made.files if private in file.content} == secret == {"wireguard.conf"}
    assert private not in repr(made)
    routes = next(file.content for file in made.files if file.name == "routes4")
    tunnel, port = made.links[0], made.ports[0].interface
    assert f"route add 10.0.1.0/24 via 10.0.0.1 dev {port} table 10" in routes
    assert "10.0.2.0/24" not in routes, "an isolated network has no way to the tunnel"
    assert f"link set dev {tunnel} mtu 1362 up" in routes
    rows = {(row.table, row.key): row for row in vpc_rows(vpc)}
    port_row = rows["Logical_Switch_Port", f"function/{place.name}"]
    assert port_row.columns["port_security"] == [f"{place.mac} {vpc.vpns[0].address} 192.168.10.0/24"]
    assert rows["Load_Balancer", "vpn/office"].columns["vips"] == {
        f"{vpc.router_address}:51820": f"{vpc.vpns[0].address}:51820"
    }
    assert rows["Logical_Router_Static_Route", "vpn/office/192.168.10.0/24"].columns["nexthop"] == place.addresses[0]


def _chassis(vpc: Vpc) -> str:
    (place,) = places_of(vpc)
    return place.chassis


def _vpns(store: Store) -> list[VpnConnection]:
    with store.reading() as session:
        return session.vpc_objects("acme", VpnConnection)
