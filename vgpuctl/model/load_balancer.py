# SPDX-License-Identifier: Apache-2.0
"""A load balancer of a tenant's VPC, of connections or of HTTP requests."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vgpuctl.errors import UsageError
from vgpuctl.model.http_balancing import DEFAULT_POOL, Affinity, BalancerProtocol, HttpCheck, HttpRoute, Pool
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc_kind import VpcKind


class BalancerHash(StrEnum):
    """What chooses the VM of a new connection of a load balancer."""

    CONNECTION = "connection"
    """Open vSwitch's own hash of the connection, the fastest one."""
    FIVE_TUPLE = "five-tuple"
    SOURCE = "source"


@dataclass(frozen=True)
class LoadBalancer:
    """A virtual address that shares connections among VMs; a backend that does not answer gets none.

    address, address6: as of a port; "" for no IPv6 address. affinity_s: how long a client keeps its VM, 0 for no time.
    draining: VMs that get no new connections. weights: `web-1=3`, of VMs whose weight is not 1. The rest is for HTTP
    alone. pools, routes: requests that other VMs get. check: None to check by connecting. certificate: PEM, with those
    between it and the authority. private_key: of it. rate: requests a second of one source, at each instance.
    instances: addresses of its programs, first those of instance 1.
    Raises UsageError for parts that contradict each other.
    """

    kind: ClassVar[VpcKind] = VpcKind.LOAD_BALANCER
    name: str
    address: str
    port: int
    protocol: BalancerProtocol
    vms: tuple[str, ...]
    vm_port: int
    health_interval_s: int = 5
    health_timeout_s: int = 20
    health_failures: int = 3
    network: str = ""
    address6: str = ""
    pools: tuple[Pool, ...] = ()
    routes: tuple[HttpRoute, ...] = ()
    certificate: str = ""
    private_key: SecretText | None = None
    affinity: Affinity = Affinity.NONE
    check: HttpCheck | None = None
    max_connections: int | None = None
    rate: int | None = None
    idle_timeout_s: int = 60
    instances: tuple[tuple[str, ...], ...] = ()
    selection: BalancerHash = BalancerHash.CONNECTION
    affinity_s: int = 0
    draining: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        name = f"load balancer {self.name}"
        for vm in (*self.draining, *(one.partition("=")[0] for one in self.weights)):
            if vm not in self.all_vms:
                raise UsageError(
                    f"{name}: VM {vm} is drained or has a weight, and is not behind it",
                    hint=f"the VMs behind it are {', '.join(self.all_vms)}",
                )
        if self.protocol.is_http() and (self.selection is not BalancerHash.CONNECTION or self.affinity_s):
            raise UsageError(
                f"{name}: a hash and a time of affinity are for tcp and udp, and it has {self.protocol}",
                hint="a cookie keeps a client at its VM: --affinity cookie",
            )
        if not self.protocol.is_http():
            for_http = (self.pools, self.routes, self.certificate, self.private_key, self.check)
            limits = (self.max_connections, self.rate)
            if any(for_http) or any(limits) or self.affinity is not Affinity.NONE or self.idle_timeout_s != 60:
                raise UsageError(
                    f"{name}: pools, routes, certificates, affinity, HTTP checks, limits and time-outs need protocol"
                    f" http or https, and it has {self.protocol}",
                    hint="set the protocol to http, or leave these out",
                )
            return
        if self.protocol is BalancerProtocol.HTTPS and not (self.certificate and self.private_key):
            raise UsageError(
                f"{name}: protocol https needs a certificate and its private key",
                hint="give --certificate FILE and --key FILE",
            )
        if self.protocol is BalancerProtocol.HTTP and (self.certificate or self.private_key):
            raise UsageError(f"{name}: protocol http takes no certificate", hint="set the protocol to https")
        pools = [pool.name for pool in self.pools]
        if twice := next((one for one in pools if pools.count(one) > 1), None):
            raise UsageError(f"{name} has two pools named {twice}", hint="name each pool once")
        there: dict[tuple[str, str], HttpRoute] = {}
        for route in self.routes:
            if route.pool not in (*pools, DEFAULT_POOL):
                raise UsageError(
                    f"{name}: a route leads to pool {route.pool}, which the balancer does not have",
                    hint=f"its pools are {', '.join((*pools, DEFAULT_POOL))}",
                )
            other = there.setdefault((route.host, route.path), route)
            if other is not route:
                raise UsageError(
                    f"{name} has two routes for {route.host}{route.path or '/'}: to {other.pool} and to {route.pool}",
                    hint="remove one of them",
                )

    @property
    def key(self) -> str:
        """Its name among the tenant's balancers."""
        return self.name

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        """Its pools, the one of its own VMs first."""
        return (Pool(DEFAULT_POOL, self.vms, self.vm_port), *self.pools)

    @property
    def all_vms(self) -> tuple[str, ...]:
        """Every VM that it sends something to, each once."""
        return tuple(dict.fromkeys(vm for pool in self.all_pools for vm in pool.vms))

    def share_of(self, vm: str) -> int:
        """The VM's weight, 0 where it drains."""
        return 0 if vm in self.draining else self.weight_of(vm)

    def weight_of(self, vm: str) -> int:
        """The share of new connections that a VM gets, as a number against the other VMs' numbers."""
        return next((int(one.partition("=")[2]) for one in self.weights if one.partition("=")[0] == vm), 1)
