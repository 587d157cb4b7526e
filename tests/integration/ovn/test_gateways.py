# SPDX-License-Identifier: Apache-2.0
"""Gateways that fail over: three real hosts, packets of a VM to the outside, and the gap when its gateway is gone."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.ovn.chassis import Chassis, missing_for_controller, wait_for
from tests.integration.ovn.frames import echo_numbers, echo_request
from tests.integration.ovn.test_isolation import EXTERNAL, network, port
from tests.integration.ovn.wire import Wire
from tests.ovn_fixture import LocalOvn
from vgpuctl.errors import OvnUnreachable, UsageError
from vgpuctl.model.network import mac_address
from vgpuctl.model.vpc import Vpc
from vgpuctl.ovn.gateways import chassis_order, gateway_port
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.southbound import Southbound
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows

pytestmark = pytest.mark.skipif(missing_for_controller() is not None, reason="ovn-host is not installed")

OUTSIDE = replace(EXTERNAL, chassis=("gpu1", "gpu2"), vlan=None, management=())
FRONT = network("acme")
VPC = Vpc("acme", (FRONT,), (port(FRONT, "web", 2),), (), OUTSIDE, "203.0.113.10")
WEB = VPC.ports_by_vm["web"].port
FIRST, SECOND = chassis_order("acme", OUTSIDE.chassis)
PAUSE_S = 0.05
# BFD notices in 0.6 s as it is set here; the rest is what a busy machine needs.
MOST_GAP_S = 6.0


@dataclass
class Traffic:
    """Pings of the VM to the provider's router. sent: when each left, by its number."""

    host: Chassis
    outside: Path
    sent: list[float] = field(default_factory=list)

    def go_on(self, seconds: float) -> None:
        """Send for some time."""
        end = time.monotonic() + seconds
        macs, addresses = (WEB.mac_address, mac_address(f"{FRONT.id}/gateway")), (WEB.address, OUTSIDE.gateway)
        while time.monotonic() < end:
            self.sent.append(time.monotonic())
            self.host.send(echo_request(len(self.sent), macs=macs, addresses=addresses))
            time.sleep(PAUSE_S)

    def until_it_arrives(self, what: str) -> None:
        """Send until a ping arrives."""
        first = len(self.sent)

        def arrives() -> bool:
            self.go_on(PAUSE_S)
            return any(number > first for number in echo_numbers(self.outside))

        wait_for(arrives, what)

    def gap_during(self, deed: Callable[[], None]) -> float:
        """The longest time, in seconds, in which no ping arrived, from just before a deed until packets flow again."""
        self.go_on(0.5)
        first = len(self.sent)
        deed()
        self.until_it_arrives("packets flow again")
        self.go_on(1.0)
        time.sleep(0.2)
        times = [self.sent[number - 1] for number in sorted(set(echo_numbers(self.outside))) if number > first - 5]
        return max(later - earlier for earlier, later in pairwise(times))


@dataclass
class World:
    """Hosts by name; the VM is on gpu3."""

    hosts: dict[str, Chassis]
    central: LocalOvn
    traffic: Traffic

    def carrier(self) -> str | None:
        """The chassis that carries the tenant's gateway, as the southbound database has it."""
        seen = Southbound(NorthboundAddress(self.central.southbound)).gateways()
        assert seen.chassis == {"gpu1", "gpu2", "gpu3"}
        return seen.carriers[gateway_port("acme")]


@pytest.fixture(scope="module")
def world(central: LocalOvn) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    remote = central.southbound
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        wire = stack.enter_context(Wire(folder / "wire"))
        hosts = {
            name: stack.enter_context(Chassis(folder / name, name, remote, wire=wire, address=f"10.83.0.{number}"))
            for number, name in enumerate(("gpu1", "gpu2", "gpu3"), start=1)
        }
        hosts["gpu3"].plug(WEB.id)
        central.nbctl("set", "NB_Global", ".", "options:bfd-min-rx=200", "options:bfd-min-tx=100")
        yield World(hosts, central, Traffic(hosts["gpu3"], wire.listen_outside()))


@pytest.fixture
def flowing(world: World, northbound: Northbound) -> Iterator[World]:
    """The hosts, once packets of the VM arrive outside by the first chassis of its tenant's gateway."""
    northbound.apply({external_owner("internet"): external_rows(OUTSIDE), tenant_owner("acme"): vpc_rows(VPC)})
    router = (gateway_port("acme"), OUTSIDE.gateway)
    world.central.nbctl("static-mac-binding-add", *router, "52:54:00:00:00:fe")
    world.central.nbctl("--timeout=55", "--wait=hv", "sync")
    wait_for(lambda: world.carrier() == FIRST, "the first chassis carries the gateway")
    world.traffic.until_it_arrives("packets flow")
    yield world
    world.central.nbctl("static-mac-binding-del", *router)


def test_a_chassis_set_aside_gives_the_gateway_away_and_takes_it_back(flowing: World, northbound: Northbound) -> None:
    def aside() -> None:
        changed = northbound.apply({tenant_owner("acme"): vpc_rows(replace(VPC, aside=frozenset([FIRST])))})
        assert {(one.table, one.word) for one in changed} == {("Gateway_Chassis", "changed")}
        wait_for(lambda: flowing.carrier() == SECOND, "the second one carries it")

    def back() -> None:
        northbound.apply({tenant_owner("acme"): vpc_rows(VPC)})
        wait_for(lambda: flowing.carrier() == FIRST, "the first one carries it")

    for deed in (aside, back):
        gap_s = flowing.traffic.gap_during(deed)
        assert gap_s < MOST_GAP_S, f"{gap_s:.2f} s without a packet"


def test_a_gateway_that_loses_its_power_under_traffic_is_replaced_within_seconds(flowing: World) -> None:
    """The last test: the host stays off."""
    gap_s = flowing.traffic.gap_during(flowing.hosts[FIRST].kill)
    logging.getLogger(__name__).info("gap: %.2f s", gap_s)
    assert flowing.carrier() == SECOND
    assert 0.1 < gap_s < MOST_GAP_S, f"{gap_s:.2f} s without a packet"


@pytest.mark.parametrize(
    ("remote", "error", "said"),
    [
        ("tcp:192.0.2.1:6642", UsageError, "southbound database at tcp:192.0.2.1:6642 is refused: plain TCP"),
        ("ssl:192.0.2.1:6642", UsageError, "southbound database at ssl:192.0.2.1:6642 needs a private key"),
        ("http://x", UsageError, "southbound database cannot be at"),
        ("unix:/nowhere/sb.sock", OvnUnreachable, "No such file or directory"),
        ("tcp:127.0.0.1:1", OvnUnreachable, "Connection refused"),
    ],
)
def test_a_southbound_database_that_is_none_is_told(remote: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Southbound(NorthboundAddress(remote), timeout_s=2).gateways()


def test_another_database_is_no_southbound_one(central: LocalOvn) -> None:
    with pytest.raises(OvnUnreachable, match="unknown database"):
        Southbound(NorthboundAddress(central.northbound)).gateways()
