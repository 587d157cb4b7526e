# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks proven with packets: emulated hosts joined by a network, a real OVN central, TLS between them.

`make test-network` runs it; it takes minutes and the whole machine, so it is not among the tests of every change.
apply-hosts sets the hosts up, onboard makes the tenants. Their VMs are placed on simulated hosts, and each one's port
is plugged in on an emulated host by an endpoint with the same binding. The tests build on one another, in their order.
"""

import contextlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import fleet, make_chassis
from tests.lab_fixtures import KernelHost
from tests.network.endpoints import (
    OUTSIDE_ROUTER,
    OUTSIDE_SERVER,
    UPLINK,
    Endpoint,
    add_outside,
    outside_asks,
    outside_pings,
    prepare,
)
from tests.network.tenants import ACME, GLOBEX, INITECH, INTERNET, PLACES
from tests.ovn_fixture import LocalOvn
from vgpuctl.ovn.authority import Authority
from vgpuctl.ovn.gateways import chassis_order
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.simulated.layout import simulated_folder

__all__ = ["fleet"]

pytestmark = pytest.mark.timeout(1800)
NAMES = ("a", "b")
LIMIT_S = 120.0
# From an emulated host this is the loopback of the machine it runs on.
MACHINE = "10.0.2.2"
# BFD needs 3 s with Open vSwitch's defaults; emulated hosts are slow.
MOST_GAP_S = 15.0


@dataclass
class World:
    """Everything: the hosts, OVN's central, an operator of the hosts and one of the tenants."""

    hosts: dict[str, KernelHost]
    central: LocalOvn
    operator: Operator
    tenants: Operator
    folder: Path
    endpoints: dict[tuple[str, str], Endpoint] = field(default_factory=dict)

    def onboard(self, content: dict[str, Any]) -> bool:
        """Onboard a tenant; whether anything changed. Its endpoints are plugged in as its VMs get their ports.

        A VM is not what was promised until a host has claimed its port.
        """
        file = self.folder / f"{content['tenant']}.yml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        ended = threading.Event()
        plugging = threading.Thread(target=self._plug_new, args=(content["tenant"], ended))
        plugging.start()
        try:
            return bool(self.tenants.json("onboard", str(file))["changed"])
        finally:
            ended.set()
            plugging.join()

    def _plug_new(self, tenant: str, ended: threading.Event) -> None:
        wanted = [place for place in PLACES if place[0] == tenant and place[:2] not in self.endpoints]
        while wanted and not ended.wait(0.5):
            for place in list(wanted):
                with contextlib.suppress(AssertionError):  # it has no port yet
                    found = self.endpoint(*place)
                    found.add()
                    self.endpoints[place[:2]] = found
                    wanted.remove(place)

    def endpoint(self, tenant: str, vm: str, host: str) -> Endpoint:
        """The endpoint in a VM's place."""
        for shown in self.tenants.json("list-networks", "--tenant", tenant):
            for one in shown["ports"]:
                if one["vm"] == vm:
                    port = one["port"]
                    name = f"{tenant}-{vm}"
                    place = (port["address"], shown["gateway"], 1442)
                    return Endpoint(self.hosts[host], name, port["id"], port["mac_address"], *place)
        raise AssertionError(f"{tenant} has no {vm}")

    def plug(self, only: str | None = None) -> None:
        """Plug every endpoint in, or those of one host, and wait until OVN has all."""
        for tenant, vm, host in PLACES:
            if host == only or (only is None and (tenant, vm) not in self.endpoints):
                self.endpoints[tenant, vm] = self.endpoint(tenant, vm, host)
                self.endpoints[tenant, vm].add()
        self.settle()

    def settle(self) -> None:
        """Wait until every host has made flows of everything, and every endpoint is bound."""
        self.central.nbctl("--timeout=55", "--wait=hv", "sync")
        for one in self.endpoints.values():
            wait_for(partial(self._is_up, one), f"{one.name} up")

    def _is_up(self, one: Endpoint) -> bool:
        return self.central.nbctl("lsp-get-up", one.interface_id).strip() == "up"

    def findings(self, host: str) -> list[str]:
        """The findings of check-hosts about OVN on a host."""
        done = self.operator.run("check-hosts", "--limit", host, "--json")
        (checked,) = yaml.safe_load(done.out)
        return [f"{one['check']}: {one['read']}" for one in checked["findings"] if one["check"] in CHECKS]

    def findings_of_all(self) -> list[str]:
        """Return check-hosts' findings of OVN on both hosts; one run sees both ends of a tunnel."""
        done = self.operator.run("check-hosts", "--json")
        found = [one for checked in yaml.safe_load(done.out) for one in checked["findings"]]
        return [f"{one['check']}: {one['read']}" for one in found if one["check"] in CHECKS]


CHECKS = ("ovn", "ovn-role", "tunnel-mtu", "tunnel-down", "boot-contract")


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Poll, with a limit."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def world(fleet: lab.LabFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two emulated hosts, a central with TLS, an authority; all gone afterwards unless the lab's folder was named."""
    home = tmp_path_factory.mktemp("network")
    named = os.environ.get("VGPUCTL_NETWORK_LAB_FOLDER")
    # Sockets want short paths.
    short = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    folder = lab.LabFolder(Path(named) if named else short / "lab")
    started = lab.up([parse_host(f"{name}=t4:mdev") for name in NAMES], folder=folder, memory_mib=2048, say=print)
    hosts = {one.name: KernelHost(one.name, one.inventory, folder) for one in started}
    make_chassis(fleet)
    authority = Authority(home / "authority")
    authority.create()
    authority.issue("central")
    authority.issue("vgpuctl")
    (short / "central").mkdir()
    try:
        with LocalOvn(short / "central", authority) as central:
            inventory = _write_inventory(home / "inventory", started[0].inventory, central)
            variables = {
                "VGPUCTL_OVN_NORTHBOUND": f"ssl:127.0.0.1:{central.ports['nb']}",
                "VGPUCTL_AUTHORITY_FOLDER": str(authority.folder),
            }
            operator = Operator(home, inventory, f"sqlite:///{home}/store.db", variables)
            tenants = replace(operator, inventory=simulated_folder(fleet).inventory)
            yield World(hosts, central, operator, tenants, home)
    finally:
        for host in hosts.values():
            host.close()
        if not named:
            lab.down(folder=folder, purge=True)
        shutil.rmtree(short, ignore_errors=True)


def _write_inventory(folder: Path, hosts: Path, central: LocalOvn) -> Path:
    """The lab's hosts, as root, with their layouts; only host a has an uplink."""
    (folder / "host_vars").mkdir(parents=True)
    text = hosts.read_text().replace('ansible_user: "operator"', 'ansible_user: "root"')
    (folder / "hosts.yml").write_text(text.replace("ansible_become: true", "ansible_become: false"))
    network = {"southbound": f"ssl:{MACHINE}:{central.ports['sb']}", "tunnels": "10.83.0.0/24"}
    for name in NAMES:
        layout = {"version": 1, "network": network, **({"uplinks": {"provider": UPLINK}} if name == "a" else {})}
        (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump({"vgpu": layout}))
    return folder


def test_apply_hosts_makes_chassis_and_a_second_run_changes_nothing(world: World) -> None:
    for host in world.hosts.values():
        prepare(host)
    add_outside(world.hosts["a"])
    first = world.operator.json("apply-hosts")["hosts"]
    assert [(one["host"], one["error"]) for one in first] == [("a", None), ("b", None)]
    second = world.operator.json("apply-hosts")["hosts"]
    assert [(one["host"], one["changed"], one["writes"]) for one in second] == [("a", 0, 0), ("b", 0, 0)]
    chassis = ("--bare", "--columns=name", "list", "Chassis")
    wait_for(lambda: sorted(world.central.sbctl(*chassis).split()) == ["a", "b"], "both are chassis")


def test_tenants_are_onboarded_and_their_endpoints_are_bound(world: World) -> None:
    world.tenants.does(*INTERNET, "--chassis", "a")
    for content in (ACME, GLOBEX, INITECH):
        assert world.onboard(content)
    world.plug()
    assert world.endpoints["acme", "web-1"].address == world.endpoints["globex", "web-1"].address == "10.0.0.2"
    wait_for(lambda: world.findings("a") == [], "check-hosts finds nothing of OVN")


def test_a_tenant_s_own_reach_one_another_across_hosts(world: World) -> None:
    web, other, store = (world.endpoints["acme", name] for name in ("web-1", "web-2", "db"))
    assert web.pings(other.address) == 3
    assert web.pings(store.address) == 3, "another network of the tenant, through its router"
    assert other.asks(web.address) == f"acme-web-1 {other.address}"
    assert web.asks(store.address) == f"acme-db {web.address}"
    assert web.fetches(other.address) == 1 << 20


def test_full_size_packets_pass_without_loss(world: World) -> None:
    web, other = world.endpoints["acme", "web-1"], world.endpoints["acme", "web-2"]
    assert web.pings(other.address, count=50, size=1442 - 28) == 50


def test_nothing_passes_between_tenants(world: World) -> None:
    acme, globex = world.endpoints["acme", "web-1"], world.endpoints["globex", "web-1"]
    other = world.endpoints["globex", "web-2"]
    # The same addresses lead each tenant to its own.
    assert other.asks(globex.address) == f"globex-web-1 {other.address}"
    assert world.endpoints["acme", "web-2"].asks(acme.address).startswith("acme-web-1 ")
    before = {key: one.echoes_received() for key, one in world.endpoints.items()}
    initech = world.endpoints["initech", "app"]
    assert initech.hears_nothing_from(acme.address) and acme.hears_nothing_from(initech.address)
    assert initech.asks(acme.address, limit_s=4) == ""
    assert {key: one.echoes_received() for key, one in world.endpoints.items()} == before


def test_a_spoofed_source_is_dropped(world: World) -> None:
    web, other = world.endpoints["acme", "web-1"], world.endpoints["acme", "web-2"]
    before = other.echoes_received()
    web.run(f"ip address add 10.0.0.77/32 dev {web.name}")
    assert web.hears_nothing_from(other.address, source="10.0.0.77")
    assert other.echoes_received() == before
    web.run(f"ip address del 10.0.0.77/32 dev {web.name}")
    web.run(f"ip link set {web.name} address 02:00:00:00:00:77")
    assert web.hears_nothing_from(other.address)
    assert other.echoes_received() == before
    web.run(f"ip link set {web.name} address {web.mac_address}")
    wait_for(lambda: web.pings(other.address) == 3, "its own address again")


def test_the_way_out_a_floating_ip_and_a_forwarded_port(world: World) -> None:
    web, other = world.endpoints["acme", "web-1"], world.endpoints["acme", "web-2"]
    a = world.hosts["a"]
    wait_for(lambda: web.pings(OUTSIDE_SERVER, count=1) == 1, "the way out")
    router, floating = (_external_address(world, kind) for kind in ("snat", "dnat_and_snat"))
    assert web.asks(OUTSIDE_SERVER) == f"outside {router}"
    assert other.asks(OUTSIDE_SERVER) == f"outside {floating}"
    assert outside_pings(a, floating) == 3
    assert outside_asks(a, floating, 80) == f"acme-web-2 {OUTSIDE_ROUTER}"
    assert outside_asks(a, router, 8080).startswith("acme-db ")
    assert world.endpoints["globex", "web-1"].hears_nothing_from(OUTSIDE_SERVER), "globex has no gateway"
    assert web.hears_nothing_from(MACHINE), "the hosts' management"


def _external_address(world: World, kind: str) -> str:
    text = world.central.nbctl("--bare", "--columns=external_ip", "find", "NAT", f"type={kind}")
    return sorted(set(text.split()))[0]


def test_a_balancer_leaves_a_dead_backend_out(world: World) -> None:
    other = world.endpoints["acme", "web-2"]
    found = re.search(r"(10\.0\.0\.\d+):8000", world.central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer"))
    assert found is not None
    columns = ("--bare", "--columns=status", "list", "Service_Monitor")
    wait_for(lambda: world.central.sbctl(*columns).split() == ["online"] * 3, "all backends are well")
    world.endpoints["acme", "web-3"].stop_serving()
    wait_for(lambda: sorted(world.central.sbctl(*columns).split()) == ["offline", "online", "online"], "one is dead")
    world.settle()
    answers = [other.asks(found[1], 8000).partition(" ")[0] for _ in range(16)]
    assert set(answers) == {"acme-web-1", "acme-web-2"}, answers


def test_peered_tenants_reach_each_other_and_overlapping_ones_cannot_be_peered(world: World) -> None:
    web, app = world.endpoints["acme", "web-1"], world.endpoints["initech", "app"]
    world.onboard({**ACME, "peerings": ["initech"]})
    world.settle()
    assert web.hears_nothing_from(app.address), "one side alone is no peering"
    world.onboard({**INITECH, "peerings": ["acme"]})
    world.settle()
    assert web.pings(app.address) == 3
    assert app.asks(web.address) == f"acme-web-1 {app.address}"
    file = world.folder / "overlapping.yml"
    file.write_text(yaml.safe_dump({**GLOBEX, "peerings": ["acme"]}))
    assert world.tenants.is_refused("onboard", str(file))["reference"] == "network-in-use"


def test_what_flows_goes_on_while_the_central_is_stopped(world: World) -> None:
    web, other, store = (world.endpoints["acme", name] for name in ("web-1", "web-2", "db"))
    answered: list[int] = []
    flow = threading.Thread(target=lambda: answered.append(web.pings(other.address, count=60)))
    flow.start()
    world.central.stop()
    try:
        flow.join()
        assert answered == [60]
        assert store.asks(web.address) == f"acme-web-1 {store.address}"
        assert [text for text in world.findings("a") if "not connected" in text or "ovn-controller is" in text]
    finally:
        world.central.start()
    world.settle()
    assert web.pings(other.address) == 3
    wait_for(lambda: world.findings("a") == [], "connected again")


def test_a_host_that_was_rebooted_is_a_chassis_again(world: World) -> None:
    web, other = world.endpoints["acme", "web-1"], world.endpoints["acme", "web-2"]
    world.hosts["b"].reboot()
    assert web.hears_nothing_from(other.address), "its endpoints are gone"
    prepare(world.hosts["b"])
    world.plug(only="b")
    wait_for(lambda: web.pings(other.address) == 3, "its endpoints are back")
    assert other.asks(OUTSIDE_SERVER).startswith("outside ")
    (again,) = world.operator.json("apply-hosts", "--limit", "b")["hosts"]
    changed = [line["text"] for line in again["lines"] if line["outcome"] == "changed"]
    assert (again["error"], changed) == (None, [])
    assert world.findings("b") == []


def test_a_real_vm_is_plugged_into_its_network(world: World) -> None:
    size = ("--memory", "96MiB", "--vcpus", "1", "--host", "a", "--security-group", "open")
    world.operator.does("create-vm", "real", "--tenant", "acme", "--network", "front", *size)
    real = world.endpoint("acme", "real", "a")
    wait_for(lambda: world.central.nbctl("lsp-get-up", real.interface_id).strip() == "up", "its port is up")
    words = f"--bare --columns=external_ids find Interface external_ids:iface-id={real.interface_id}"
    _code, listed, _errors = world.hosts["a"].run(f"ovs-vsctl {words}")
    assert real.mac_address in listed
    world.operator.does("delete-vm", "real", "--tenant", "acme", "--yes", "--timeout", "0")


def test_a_tunnel_that_is_down_or_too_narrow_is_found(world: World) -> None:
    b = world.hosts["b"]
    assert b.run("ip link set dev eth1 mtu 1400")[0] == 0
    assert [text.partition(":")[0] for text in world.findings("b")] == ["tunnel-mtu"]
    assert b.run("ip link set dev eth1 mtu 1500; ip link set dev eth1 down")[0] == 0
    assert world.findings("a") == ["tunnel-down: 10.83.0.2 does not answer"]
    assert b.run("ip link set dev eth1 up")[0] == 0


def test_a_firewall_that_admits_ping_and_drops_the_tunnels_is_found(world: World) -> None:
    b = world.hosts["b"]
    rule = "INPUT -i eth1 -p udp --dport 6081 -j"
    wait_for(lambda: world.findings("b") == [], "the tunnel carries packets")
    assert b.run(f"iptables -I {rule} DROP")[0] == 0
    assert world.findings_of_all() == [
        "tunnel-down: 10.83.0.1 answers ping, but none of the tunnel's packets from it arrive, UDP 6081"
    ]
    assert b.run(f"iptables -D {rule} DROP; iptables -I {rule} REJECT --reject-with icmp-host-prohibited")[0] == 0
    assert world.findings("a") == [
        "tunnel-down: 10.83.0.2 answers ping and refuses the tunnel's packets, UDP 6081: No route to host"
    ]
    assert b.run(f"iptables -D {rule} REJECT --reject-with icmp-host-prohibited")[0] == 0


def test_a_gateway_that_is_killed_under_traffic_is_replaced(world: World) -> None:
    """The host with acme's gateway loses its power; its tenants' way out goes on from the other host.

    Each host has a world outside of its own, with the same addresses. The host that was killed is not put back.
    """
    add_outside(world.hosts["b"])
    variables = world.operator.inventory / "host_vars" / "b.yml"
    variables.write_text(f"{variables.read_text()}  uplinks: {{provider: {UPLINK}}}\n")
    (applied,) = world.operator.json("apply-hosts", "--limit", "b")["hosts"]
    assert applied["error"] is None
    assert world.tenants.json(*INTERNET, "--chassis", "a", "--chassis", "b")["changed"]
    world.tenants.does("repair")
    world.settle()
    first, second = chassis_order("acme", NAMES)
    southbound = {**world.tenants.variables, "VGPUCTL_OVN_SOUTHBOUND": world.central.southbound}
    looking = replace(world.tenants, variables=southbound)

    def carrier() -> str:
        gateways = looking.json("show-external-network", "internet")["gateways"]
        return str(next(one["carrier"] for one in gateways if one["tenant"] == "acme"))

    wait_for(lambda: carrier() == first, f"{first} carries the gateway of acme")
    guest = world.endpoints["acme", {"a": "web-1", "b": "web-2"}[second]]
    neighbour = world.endpoints["globex", {"a": "web-2", "b": "web-1"}[second]]
    wait_for(lambda: guest.pings(OUTSIDE_SERVER, count=1) == 1, "the way out")
    kept = neighbour.echoes_received()
    answered: list[int] = []
    count, pause_s = 100, 0.2
    flow = threading.Thread(target=lambda: answered.append(guest.pings(OUTSIDE_SERVER, count=count)))
    flow.start()
    time.sleep(3)
    off_and_on = threading.Thread(target=world.hosts[first].reboot)
    off_and_on.start()
    wait_for(lambda: carrier() == second, f"{second} carries the gateway of acme")
    answer = guest.asks(OUTSIDE_SERVER)
    flow.join()
    off_and_on.join()
    gap_s = (count - answered[0]) * pause_s
    logging.getLogger(__name__).info("gap: %.1f s", gap_s)
    assert answer.startswith("outside ")
    assert 0 < gap_s < MOST_GAP_S, f"{gap_s:.1f} s without an answer"
    assert neighbour.echoes_received() == kept, "nothing of it came to another tenant"


def test_offboarded_tenants_leave_nothing_in_ovn(world: World) -> None:
    for tenant in ("acme", "globex", "initech"):
        world.tenants.does("offboard-tenant", tenant, "--yes", "--timeout", "0")
    tables = ("Logical_Router", "Logical_Switch_Port", "NAT", "Load_Balancer", "ACL", "DHCP_Options")
    left = {table: world.central.nbctl("--bare", "--columns=name", "list", table).split() for table in tables[:2]}
    # The one port is the external network's localnet port, which belongs to no tenant.
    assert left["Logical_Router"] == [] and len(left["Logical_Switch_Port"]) == 1, left
