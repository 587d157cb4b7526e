# SPDX-License-Identifier: Apache-2.0
"""A tenant with a load balancer of HTTPS, two members and a client, over real OVN, Open vSwitch and HAProxy."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.integration.ovn.functions import FunctionHost, begin_server, begin_web
from tests.integration.ovn.packets import HOST, PacketHost
from tests.ovn_fixture import LocalOvn
from tests.tenant_certificates import self_signed
from vgpuctl.agent.wire.steps import Change
from vgpuctl.guests.haproxy import Member, render_balancer
from vgpuctl.model.http_balancing import BalancerProtocol, HttpCheck, HttpRoute, Pool
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState, Port, mac_address
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.vpc import SecurityGroup, Vpc, VpcPort
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.topology import tenant_owner, vpc_rows

_MTU = 1442
_PORT, _MEMBER_PORT = 443, 8080
_WORKERS = 8
_LIMIT_S = 60.0
NETWORK = Network(
    "5f8c1d52-0000-4000-8000-000000000001",
    NetworkRequest("front", "acme", "10.0.1.0/24", backend=Backend.OVN, cidr6="fd00:1::/64"),
    NetworkState.CREATED,
)


class HttpWorld:
    """The world as a context manager. places: of the two instances, which are on one host here."""

    def __init__(self, central: LocalOvn) -> None:
        self._central = central
        self._stack = ExitStack()
        self._next_port = 10_000
        self._certificate, self._key = self_signed("shop.example.com")
        self.client_address = "10.0.1.4"
        group = SecurityGroup("web", (Rule(Protocol.TCP, (_MEMBER_PORT, _MEMBER_PORT), "10.0.1.0/24"),))
        self.balancer = LoadBalancer(
            "shop",
            "10.0.1.200",
            _PORT,
            BalancerProtocol.HTTPS,
            ("a",),
            _MEMBER_PORT,
            health_interval_s=1,
            health_timeout_s=2,
            health_failures=2,
            network="front",
            address6="fd00:1::200",
            pools=(Pool("api", ("b",)),),
            routes=(HttpRoute("shop.example.com", "/api", "api"), HttpRoute("*.example.net", "", "api")),
            certificate=self._certificate,
            private_key=SecretText.of(self._key),
            check=HttpCheck("GET", "/", "200"),
            max_connections=500,
            instances=(("10.0.1.201", "fd00:1::201"), ("10.0.1.202", "fd00:1::202")),
        )
        self.places = [
            FunctionPlace("load-balancer", f"acme-{os.getpid()}", "shop", number, NETWORK, addresses, HOST)
            for number, addresses in enumerate(self.balancer.instances, start=1)
        ]
        ports = tuple(_port(vm, number, "web") for number, vm in enumerate(("a", "b", "c"), start=2))
        self._vpc = Vpc("acme", (NETWORK,), ports, (group,), balancers=(self.balancer,), functions=tuple(self.places))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        packets = self._stack.enter_context(PacketHost(self._central, "provider", ()))
        with Northbound(NorthboundAddress(self._central.northbound)) as northbound:
            northbound.apply({tenant_owner("acme"): vpc_rows(self._vpc)})
        packets.plug(self._vpc)
        self._packets = packets
        for name in ("a", "b"):
            server = begin_server(packets.prefix(f"acme/{name}"), name, _MEMBER_PORT)
            self._stack.callback(_end, server)
        self.host = self._stack.enter_context(FunctionHost(*packets.switch))
        told = [self.host.bring(place.name, self._function(place), dry_run=True) for place in self.places]
        assert all(one.changed for one in told) and self.host.read() == {}, "a dry run makes nothing"
        assert all(one.changed for one in self.bring()) and not any(one.changed for one in self.bring())
        packets.settle()
        self.wait_until_steady()

    def bring(self, *, balancer: LoadBalancer | None = None, members: str = "ab") -> list[Change]:
        """Have both instances as a balancer says."""
        self.balancer = balancer or self.balancer
        self._members = members
        return [self.host.bring(place.name, self._function(place)) for place in self.places]

    _members = "ab"

    def _function(self, place: FunctionPlace) -> Any:
        addresses = {"a": "10.0.1.2", "b": "10.0.1.3"}
        members = {
            pool.name: [Member(vm, addresses[vm], _MEMBER_PORT) for vm in pool.vms if vm in self._members]
            for pool in self.balancer.all_pools
        }
        return render_balancer(self.balancer, members, place, mtu=_MTU, private_key=self._key)

    def get(
        self, path: str, host: str, *, address: str | None = None, headers: Sequence[Sequence[str]] = ()
    ) -> list[Any]:
        """One request of the client: status, what the member tells, headers."""
        url = json.dumps([self.balancer.address, _PORT, True, host, path])
        answered: list[Any] = json.loads(self._ask("get", url, json.dumps(headers)))
        return answered

    def raw(self, text: str) -> str:
        """The first line that the client gets for a text, over TLS as openssl sends it."""
        target = f"{self.balancer.address}:{_PORT}"
        command = ["openssl", "s_client", "-quiet", "-connect", target]
        done = subprocess.run(
            [*self._packets.prefix("acme/c"), "timeout", "10", *command],
            input=text.encode("latin-1"),
            capture_output=True,
            check=False,
            timeout=30,
        )
        return done.stdout.decode("latin-1").partition("\r\n")[0]

    def load(self, count: int) -> dict[str, Any]:
        """Many requests of the client."""
        told: dict[str, Any] = json.loads(self._ask("load", *self._load(count)))
        return told

    def rotate_under_load(self, count: int) -> dict[str, Any]:
        """While the client makes requests: another certificate, one member more, then the first one drained."""
        both = replace(self.balancer, vms=("a", "b"), routes=(), pools=())
        self.bring(balancer=both)
        running = begin_web(self._packets.prefix("acme/c"), "load", *self._load(count))
        time.sleep(0.5)
        self._certificate, self._key = self_signed("shop.example.com")
        renewed = replace(both, certificate=self._certificate, private_key=SecretText.of(self._key))
        assert all(one.changed for one in self.bring(balancer=renewed))
        time.sleep(0.5)
        assert all(one.changed for one in self.bring(balancer=replace(renewed, vms=("b",))))
        assert running.stdout is not None
        told: dict[str, Any] = json.loads(running.stdout.readline())
        running.wait(_LIMIT_S)
        return told

    def kill_instance(self, number: int) -> None:
        """End every process of an instance, as a host that loses its power does."""
        for folder in Path("/proc").iterdir():
            try:
                if (folder / "comm").read_text().strip() != "haproxy":
                    continue
                if self.places[number].name in (folder / "cmdline").read_text():
                    os.kill(int(folder.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue

    def wait_until_steady(self) -> None:
        """Wait until many requests in turn are answered: OVN has seen which instances answer."""
        deadline = time.monotonic() + _LIMIT_S
        while self.load(20)["failures"]:
            assert time.monotonic() < deadline, "requests go on failing"
            time.sleep(0.5)

    def remove(self) -> None:
        """Remove both instances."""
        for place in self.places:
            assert self.host.bring(place.name, None).changed
            assert not self.host.bring(place.name, None).changed

    def left(self) -> list[str]:
        """Processes of instances that still run."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if any(place.name in (folder / "cmdline").read_text() for place in self.places):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    def _load(self, count: int) -> tuple[str, ...]:
        """The arguments of a load, with source ports that no other one has."""
        first, self._next_port = self._next_port, self._next_port + count
        return self._url(), str(count), str(_WORKERS), str(first)

    def _url(self) -> str:
        return json.dumps([self.balancer.address, _PORT, True, "shop.example.com", "/"])

    def _ask(self, *words: str) -> str:
        asking = begin_web(self._packets.prefix("acme/c"), *words)
        said, _errors = asking.communicate(timeout=_LIMIT_S)
        return said


def _port(vm: str, number: int, *groups: str) -> VpcPort:
    port_id = f"5f8c1d52-0000-4000-8000-0000000001{number:02}"
    addresses = (f"10.0.1.{number}", f"fd00:1::{number}")
    return VpcPort(Port(port_id, NETWORK.id, vm, 0, mac_address(port_id), *addresses), vm, groups)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
