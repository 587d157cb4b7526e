# SPDX-License-Identifier: Apache-2.0
"""Load balancers of HTTP and TLS by commands: on two hosts, off a drained one, repaired, and gone without rest."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine
from tests.ovn_fixture import LocalOvn, central, chassis
from tests.tenant_certificates import self_signed
from vgpuctl.ovn.gateways import chassis_order
from vgpuctl_lab.simulated.machine.state import MachineFolder

__all__ = ["central", "chassis"]

FLEET = (3, "a40")
HOSTS = ("sim-001", "sim-002", "sim-003")
ACME = ("--tenant", "acme")
FIRST, SECOND, THIRD = chassis_order("acme", HOSTS)
EXTERNAL = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
    *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider"),
    *(word for host in HOSTS for word in ("--chassis", host)),
)
SHOP = (
    *("create-load-balancer", "shop", *ACME, "--network", "front", "--port", "443", "--protocol", "https"),
    *("--vm", "web-1", "--vm-port", "8080", "--pool", "api=web-2:81", "--route", "shop.example.com/api=api"),
    *("--affinity", "cookie", "--check", "GET /healthz 200", "--rate", "100", "--max-connections", "500"),
)


@pytest.fixture(scope="module")
def hosts(fleet: lab.LabFolder) -> dict[str, MachineFolder]:
    return {name: machine(fleet, name) for name in HOSTS}


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None, tmp_path_factory: Any) -> Operator:
    key = tmp_path_factory.mktemp("keys") / "key"
    variables = {"VGPUCTL_OVN_NORTHBOUND": central.northbound, "VGPUCTL_KEY_FILE": str(key)}
    key.write_text("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n")
    key.chmod(0o600)
    made = replace(fleet_operator, variables=variables)
    made.does("list-hosts")
    made.does(*EXTERNAL)
    made.does("create-tenant", "acme")
    made.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", "--cidr6", "fd00:1::/64")
    made.does("create-security-group", "web", *ACME, "--rule", "tcp:8080@10.0.0.0/24")
    vm = ("--network", "front", "--memory", "96MiB", "--vcpus", "1", "--host", THIRD, *ACME)
    made.does("create-vm", "web-1", *vm, "--security-group", "web")
    made.does("create-vm", "web-2", *vm)
    return made


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    """The options of a certificate and its key."""
    return _pair(tmp_path, "shop.example.com")


def _pair(folder: Path, name: str, **times: int) -> tuple[str, ...]:
    certificate, key = self_signed(name, **times)
    for file, text, mode in ((f"{name}.pem", certificate, 0o644), (f"{name}.key", key, 0o600)):
        (folder / file).write_text(text)
        (folder / file).chmod(mode)
    return "--certificate", str(folder / f"{name}.pem"), "--key", str(folder / f"{name}.key")


def _units(host: MachineFolder) -> dict[str, bool]:
    return {name: on for name, on in host.state().services.items() if name.startswith("vgpuctl-function-")}


def _has(host: MachineFolder) -> tuple[int, int, int]:
    """How many namespaces, ports and programs of ours a host has."""
    state = host.state()
    return len(state.namespaces), len(state.ovn.ports), sum(_units(host).values())


def _secrets(host: MachineFolder) -> list[str]:
    return [one.read_text() for one in (host.root / "var/lib").rglob("tls.pem") if not one.parent.is_symlink()]


def test_bad_input_is_refused_with_nothing_written(
    operator: Operator, hosts: dict[str, MachineFolder], tmp_path: Path, pair: tuple[str, ...]
) -> None:
    refused = operator.is_refused(*SHOP, *pair)
    assert (refused["reference"], refused["hint"]) == ("state", "create one first with `vgpuctl create-gateway`")
    operator.does("create-gateway", "internet", *ACME)
    other, expired, later = (
        _pair(tmp_path, "other.example.com"),
        _pair(tmp_path, "old.example.com", ends=-1, begins=-9),
        _pair(tmp_path, "new.example.com", begins=2),
    )
    open_key = tmp_path / "open.key"
    open_key.write_text((tmp_path / "shop.example.com.key").read_text())
    open_key.chmod(0o644)
    no_key = tmp_path / "no.key"
    no_key.write_text(Path(pair[1]).read_text())
    no_key.chmod(0o600)
    for more, said in (
        ((*pair[:2], *other[2:]), "is not the one of the certificate for shop.example.com"),
        (expired, "the certificate is expired since"),
        (later, "the certificate is valid from"),
        (pair[:2], "needs a certificate and its private key"),
        ((), "needs a certificate and its private key"),
        ((*pair[:2], "--key", str(no_key)), "has no PRIVATE KEY in PEM"),
        ((*pair[:2], "--key", str(open_key)), "it may be read by every user"),
        ((*pair, "--route", "/x=nowhere"), "leads to pool nowhere"),
        ((*pair, "--route", "shop.example.com/api=default"), "two routes for shop.example.com/api"),
        ((*pair, "--route", "a b=api"), "is no name of a host"),
        ((*pair, "--route", "/a\nbackend x=api"), "is no path"),
        ((*pair, "--pool", "default=web-1"), "is that of the balancer's own VMs"),
    ):
        refused = operator.is_refused(*SHOP, *more)
        assert said in refused["message"], refused
    hidden = hosts[SECOND].root / "run/lab-hidden-programs/haproxy"
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.touch()
    refused = operator.is_refused(*SHOP, *pair)
    assert refused["context"] == [f"{SECOND} has no haproxy"]
    hidden.unlink()
    assert operator.json("list-vpc-objects", *ACME, "--kind", "load-balancer") == []
    assert {_has(host) for host in hosts.values()} == {(0, 0, 0)}


def test_a_balancer_runs_on_two_hosts_and_follows_changes_and_hosts(
    operator: Operator, hosts: dict[str, MachineFolder], central: LocalOvn, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    told = operator.json(*SHOP, *pair, "--dry-run")
    assert told["dry_run"] and {_has(host) for host in hosts.values()} == {(0, 0, 0)}
    made = operator.json(*SHOP, *pair)
    assert made["changed"] and not operator.json(*SHOP, *pair)["changed"]
    spec = made["object"]["spec"]
    assert (spec["address"], spec["instances"]) == (
        "10.0.0.253",
        [["10.0.0.252", "fd00:1::fffd"], ["10.0.0.251", "fd00:1::fffc"]],
    )
    remarks = " ".join(made["remarks"])
    assert "certificate for shop.example.com until" in remarks
    assert "no rule of VM web-2's security groups (default) allows tcp/81 from the balancer's instances" in remarks
    assert "VM web-1's" not in remarks
    assert {name: _has(host) for name, host in hosts.items()} == {FIRST: (1, 1, 1), SECOND: (1, 1, 1), THIRD: (0, 0, 0)}
    assert "PRIVATE KEY" not in json.dumps(made) + operator.does("list-events", "--json").out
    vips = central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer")
    assert "10.0.0.253:443=10.0.0.252:443,10.0.0.251:443" in vips
    assert operator.json("repair") == []
    # Another certificate, another member: both hosts have it, and nothing of the old one is left.
    renewed = _pair(tmp_path, "two.example.com")
    set_it = ("set-load-balancer", "shop", *ACME)
    assert operator.json(*set_it, *renewed, "--add-vm", "web-2")["changed"]
    for name in (FIRST, SECOND):
        (text,) = set(_secrets(hosts[name]))
        assert Path(renewed[1]).read_text() in text and Path(pair[1]).read_text() not in text
        (config,) = {one.read_text() for one in (hosts[name].root / "var/lib").rglob("haproxy.cfg")}
        assert "server 'web-2' 'ipv4@10.0.0.3:8080'" in config and "/healthz" in config
    assert "is not the one of the certificate" in operator.is_refused(*set_it, *pair[:2], *renewed[2:])["message"]
    assert "without its private key" in operator.is_refused(*set_it, *pair[:2])["message"]
    (shown,) = operator.json("list-vpc-objects", *ACME, "--kind", "load-balancer", "--members")
    assert shown["members"] == [] and any("was not asked" in one for one in shown["remarks"]), "it carries no packets"
    # A program that ended is found, and repaired; what another store's run left is gc's.
    with hosts[FIRST].change() as state:
        for name in _units(hosts[FIRST]):
            state.services[name] = False
    (checked,) = json.loads(operator.run("check-hosts", "--limit", FIRST, "--json").out)
    found = [one["read"] for one in checked["findings"] if one["check"] == "network-functions"]
    assert found == ["load-balancer acme/shop, instance 1: haproxy does not run"]
    assert [one["outcome"] for one in operator.json("repair", "--dry-run")] == ["would be finished"]
    assert [one["outcome"] for one in operator.json("repair")] == ["finished"]
    assert _has(hosts[FIRST]) == (1, 1, 1) and operator.json("repair") == []
    with hosts[THIRD].change() as state:
        state.namespaces["vgpuctl-vgn_left"] = {}
    assert operator.json("gc", "--yes") == []
    (left,) = operator.json("gc", "--kind", "function", "--yes")
    assert (left["name"], left["host"], left["outcome"]) == ("vgn_left", THIRD, "deleted")
    assert _has(hosts[THIRD]) == (0, 0, 0)
    # A drained host gives its instance to the third one; the other instance stays.
    operator.does("drain-host", FIRST, "--reason", "new disks", "--yes")
    assert {name: _has(host)[0] for name, host in hosts.items()} == {FIRST: 0, SECOND: 1, THIRD: 1}
    operator.does("uncordon-host", FIRST)
    assert {name: _has(host)[0] for name, host in hosts.items()} == {FIRST: 1, SECOND: 1, THIRD: 0}
    refused = operator.is_refused("delete-gateway", *ACME, "--yes")
    assert refused["context"] == ["gateway: load-balancer shop runs on hosts of its external network"]


def test_nothing_is_left_of_a_balancer_that_is_deleted(operator: Operator, hosts: dict[str, MachineFolder]) -> None:
    """The last test: the tenant goes with a balancer."""
    operator.does("delete-load-balancer", "shop", *ACME, "--yes")
    for host in hosts.values():
        assert _has(host) == (0, 0, 0) and _secrets(host) == [] and _units(host) == {}
        assert not (host.root / "var/lib/vgpuctl/functions").exists()
    plain = ("create-load-balancer", "plain", *ACME, "--network", "front", "--port", "80", "--protocol", "http")
    made = operator.json(*plain, "--vm", "web-1")
    assert made["object"]["spec"]["address"] == "10.0.0.253", "the addresses are free again"
    assert [_has(hosts[name])[2] for name in (FIRST, SECOND)] == [1, 1]
    operator.does("offboard-tenant", "acme", "--yes", "--timeout", "0")
    assert {_has(host) for host in hosts.values()} == {(0, 0, 0)}
