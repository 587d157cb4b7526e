# SPDX-License-Identifier: Apache-2.0
"""A load balancer that reads HTTP as a network function: HAProxy with its configuration, certificate and checks.

Pure: equal balancers give equal functions. Needs HAProxy 2.6 or newer, as Debian 12 has it.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.network_function import (
    RUN_FOLDER,
    FunctionFile,
    FunctionProgram,
    FunctionQuery,
    NetworkFunction,
)
from vgpuctl.guests.templating import render_template
from vgpuctl.model.http_balancing import Affinity, BalancerProtocol, HttpRoute
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import is_ipv6
from vgpuctl.model.network_function import FunctionPlace

PROGRAM = "haproxy"
CONFIG, CERTIFICATE = "haproxy.cfg", "tls.pem"
STATISTICS = "stat"
DEFAULT_CONNECTIONS = 10_000
_MOST_ROWS = 2000


@dataclass(frozen=True)
class Member:
    """One VM of a pool, where it answers."""

    vm: str
    address: str
    port: int


@dataclass(frozen=True)
class MemberStatistics:
    """What one instance of a balancer says of a member. status: HAProxy's, such as `UP` or `DOWN`.

    requests: since its last reload. sessions: at this moment. check: what its last health check found.
    """

    pool: str
    vm: str
    status: str
    sessions: int
    requests: int
    errors: int
    check: str


def render_balancer(
    balancer: LoadBalancer,
    members: Mapping[str, Sequence[Member]],
    place: FunctionPlace,
    *,
    mtu: int,
    private_key: str | None = None,
) -> NetworkFunction:
    """The function of one instance. members: by pool. private_key: PEM, of a balancer that ends TLS."""
    files = [FunctionFile(CONFIG, render_config(balancer, members, place))]
    if balancer.protocol is BalancerProtocol.HTTPS:
        assert private_key is not None
        files.append(FunctionFile(CERTIFICATE, balancer.certificate + private_key, is_secret=True))
    return NetworkFunction(
        str(balancer.kind),
        ports=(place.port(mtu),),
        files=tuple(files),
        programs=(
            FunctionProgram(
                PROGRAM,
                (PROGRAM, "-W", "-C", "{files}", "-f", CONFIG),
                check=(PROGRAM, "-c", "-C", "{files}", "-f", CONFIG),
                reload_signal="SIGUSR2",
            ),
        ),
        queries=(FunctionQuery(STATISTICS, socket="{run}/stats.sock", text="show stat"),),
        needs=(PROGRAM,),
    )


def render_config(balancer: LoadBalancer, members: Mapping[str, Sequence[Member]], place: FunctionPlace) -> str:
    """HAProxy's configuration of one instance."""
    backends = [
        {
            "name": _backend(pool.name),
            "members": [
                {
                    "name": one.vm,
                    "endpoint": _endpoint(one.address, one.port),
                    "cookie": _cookie(place.tenant, one.vm),
                    "weight": balancer.share_of(one.vm),
                }
                for one in members.get(pool.name, ())
            ],
        }
        for pool in balancer.all_pools
    ]
    return render_template(
        "haproxy.cfg.j2",
        run=f"{RUN_FOLDER}/{place.name}",
        connections=balancer.max_connections or DEFAULT_CONNECTIONS,
        rate=balancer.rate,
        idle_timeout_s=balancer.idle_timeout_s,
        health_interval_s=balancer.health_interval_s,
        health_timeout_s=balancer.health_timeout_s,
        health_failures=balancer.health_failures,
        binds=[_endpoint(address, balancer.port) for address in place.addresses],
        is_tls=balancer.protocol is BalancerProtocol.HTTPS,
        cookie=balancer.affinity is Affinity.COOKIE,
        check=balancer.check,
        check_host=balancer.name,
        routes=[_route(one) for one in sorted(balancer.routes, key=lambda one: one.rank)],
        backends=backends,
    )


def read_statistics(text: str) -> list[MemberStatistics]:
    """Read what `show stat` answers: the members alone, by pool and VM. What is no such answer gives none."""
    found = []
    for row, _number in zip(csv.DictReader(io.StringIO(text.lstrip("# "))), range(_MOST_ROWS), strict=False):
        name, server = row.get("# pxname") or row.get("pxname") or "", row.get("svname") or ""
        if not name.startswith(_PREFIX) or server in ("FRONTEND", "BACKEND"):
            continue
        found.append(
            MemberStatistics(
                name.removeprefix(_PREFIX),
                server,
                (row.get("status") or "")[:40],
                _number_of(row, "scur"),
                _number_of(row, "stot"),
                _number_of(row, "econ") + _number_of(row, "eresp"),
                (row.get("check_status") or "")[:40],
            )
        )
    return sorted(found, key=lambda one: (one.pool, one.vm))


_PREFIX = "pool-"


def _backend(pool: str) -> str:
    return f"{_PREFIX}{pool}"


def _route(route: HttpRoute) -> dict[str, object]:
    """A path fits itself and all below it: `/api` and `/api/`, not `/apis`."""
    tests: Iterator[dict[str, str] | None] = iter(
        [{"how": "str", "text": route.path}, {"how": "beg", "text": f"{route.path}/"}] if route.path else [None]
    )
    return {
        "backend": _backend(route.pool),
        "host": route.host.removeprefix("*"),
        "is_below": route.host.startswith("*"),
        # A route for everything has no condition that could be left out.
        "tests": list(tests) if route.host or route.path else [{"how": "beg", "text": "/"}],
    }


def _endpoint(address: str, port: int) -> str:
    return f"ipv6@[{address}]:{port}" if is_ipv6(address) else f"ipv4@{address}:{port}"


def _cookie(tenant: str, vm: str) -> str:
    """A member's name in cookies, which tells nothing of it."""
    return hashlib.sha256(f"{tenant}/{vm}".encode()).hexdigest()[:16]


def _number_of(row: Mapping[str, str | None], key: str) -> int:
    text = row.get(key) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
