# SPDX-License-Identifier: Apache-2.0
"""Load balancers that read HTTP as network functions: two instances on chassis of the tenant's external network."""

from collections.abc import Iterator

from vgpuctl.agent.wire.network_function import NetworkFunction
from vgpuctl.errors import StoreUnusable
from vgpuctl.guests.haproxy import PROGRAM, Member, render_balancer
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network_function import FunctionPlace, choose_chassis
from vgpuctl.model.vpc import Vpc
from vgpuctl.ovn.gateways import chassis_order
from vgpuctl.store.store import Session

NEEDS = (PROGRAM,)


def places(vpc: Vpc) -> Iterator[FunctionPlace]:
    """The instances of a tenant's balancers; one alone where the external network has one chassis."""
    if vpc.external_network is None:
        return
    networks = {network.request.name: network for network in vpc.networks}
    order = chassis_order(vpc.tenant, vpc.external_network.chassis)
    for balancer in vpc.balancers:
        if not balancer.protocol.is_http() or balancer.network not in networks:
            continue
        chosen = choose_chassis(order, vpc.aside, len(balancer.instances))
        for number, (addresses, chassis) in enumerate(zip(balancer.instances, chosen, strict=False), start=1):
            network = networks[balancer.network]
            yield FunctionPlace(str(balancer.kind), vpc.tenant, balancer.name, number, network, addresses, chassis)


def make(session: Session, vpc: Vpc, place: FunctionPlace) -> NetworkFunction:
    """The function of one instance. Raises StoreUnusable where the balancer's private key cannot be read."""
    balancer = next(one for one in vpc.balancers if one.name == place.owner)
    members = {
        pool.name: [
            Member(vm, port.port.address, pool.vm_port or balancer.vm_port)
            for vm in pool.vms
            if (port := vpc.port_in(vm, balancer.network)) is not None
        ]
        for pool in balancer.all_pools
    }
    key = None
    if balancer.protocol is BalancerProtocol.HTTPS:
        key = _private_key(session, vpc.tenant, balancer)
    return render_balancer(balancer, members, place, mtu=vpc.mtu, private_key=key)


def _private_key(session: Session, tenant: str, balancer: LoadBalancer) -> str:
    key = session.object_secret(tenant, balancer.kind, balancer.name)
    if key is None or key != balancer.private_key:
        raise StoreUnusable(
            f"the store has not the private key of load balancer {balancer.name} of tenant {tenant}",
            hint=f"give it again with `vgpuctl set-load-balancer {balancer.name} --certificate FILE --key FILE`",
        )
    return key.reveal()
