# SPDX-License-Identifier: Apache-2.0
"""What a command says of an object that has no effect: an external address of the other IP version."""

from pathlib import Path

from tests.unit.guests.cases import vm
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.vpc import FloatingIp, PortForward, PortProtocol
from vgpuctl.store.store import open_store
from vgpuctl.usecases.network.vpc_objects import remarks_on

SIX = Network("n", NetworkRequest("six", "acme", backend=Backend.OVN, cidr6="fd00:1::/64"), NetworkState.CREATED)


def test_an_ipv4_address_for_a_vm_with_ipv6_alone_is_remarked(tmp_path: Path) -> None:
    web = vm()
    name = web.request.name
    forward = PortForward(PortProtocol.TCP, "203.0.113.10", 80, name, 80)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        with store.transaction() as session:
            session.add_tenant("acme")
            session.add_vm(web)
            session.add_network(SIX)
            assert list(remarks_on(session, "acme", forward)) == [], "it has no address of the tenant's networks"
            session.add_port(SIX, web.uuid)
        with store.reading() as session:
            for spec in (forward, FloatingIp(name, "203.0.113.11")):
                (remark,) = remarks_on(session, "acme", spec)
                assert f"no address of the IP version of {spec.address}" in remark
            for both in (FloatingIp(name, "203.0.113.11", "2001:db8::11"), FloatingIp("later", "203.0.113.11")):
                said = list(remarks_on(session, "acme", both))
                assert said == ([] if both.address6 else ["tenant acme has no VM later yet"])
