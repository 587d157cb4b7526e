# SPDX-License-Identifier: Apache-2.0
"""Impossible or overwriting requests are refused by name."""

from pathlib import Path

import pytest

from tests.e2e.operator import Operator

TENANT = ("--tenant", "acme")
ONLY_WITH_OVN = {
    "address-group partners": ("create-address-group", "partners", *TENANT),
    "egress-policy": ("create-egress-policy", "deny", *TENANT),
    "security-group web": ("create-security-group", "web", "--rule", "tcp:80", *TENANT),
    "gateway": ("create-gateway", "internet", *TENANT),
    "floating-ip web-1": ("create-floating-ip", "web-1", *TENANT),
    "port-forward tcp/80": ("create-port-forward", "80", "--vm", "web-1", *TENANT),
    "load-balancer shop": (
        *("create-load-balancer", "shop", "--network", "front", "--port", "80", "--vm", "web-1"),
        *TENANT,
    ),
    "direct-connect front": ("create-direct-connect", "front", "--physical-network", "provider", *TENANT),
    "vpn-connection office": (
        *("create-vpn-connection", "office", "--network", "front", "--peer-prefix", "192.168.10.0/24"),
        *TENANT,
    ),
    "route 10.66.0.0/16": ("create-route", "10.66.0.0/16", "--via", "web-1", *TENANT),
    "peering globex": ("create-peering", "globex", *TENANT),
    "external network internet": (
        *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
        *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider"),
    ),
}


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    home: Path = tmp_path_factory.mktemp("operator")
    made = Operator(home, home / "no-inventory", f"sqlite:///{home}/store.db")
    made.does("create-tenant", "acme")
    made.does("create-tenant", "globex")
    return made


@pytest.mark.parametrize("what", ONLY_WITH_OVN)
def test_what_only_ovn_can_make_is_refused_by_name_without_ovn(what: str, operator: Operator) -> None:
    for more in ((), ("--dry-run",)):
        refused = operator.is_refused(*ONLY_WITH_OVN[what], *more)
        assert refused["reference"] == "usage"
        assert refused["message"].startswith(f"{what} needs OVN")
        assert "VGPUCTL_OVN_NORTHBOUND" in refused["hint"]
    assert operator.json("list-vpc-objects") == []
    assert operator.json("list-external-networks") == []


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_a_tenant_s_file_is_refused_before_anything_of_it_is_made(
    arguments: tuple[str, ...], operator: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "new.yml"
    file.write_text("version: 1\ntenant: new\nquotas: {vms: 3}\nsecurity_groups: {web: [{protocol: tcp, ports: 80}]}\n")
    refused = operator.is_refused("onboard", str(file), *arguments)
    assert refused["message"].startswith("security-group web needs OVN"), refused
    assert "new" not in {one["tenant"] for one in operator.json("list-tenants")}


def test_create_tenant_never_changes_a_tenant_that_is_there(operator: Operator) -> None:
    create = ("create-tenant", "umbrella", "--quota", "vms=3", "--guaranteed", "framebuffer=48GiB")
    assert operator.json(*create)["changed"]
    before = operator.json("list-tenants")
    assert not operator.json(*create)["changed"]
    assert not operator.json("create-tenant", "umbrella")["changed"]
    assert "no change" in operator.does(*create).err
    other = ("--quota", "vms=4", "--quota", "memory=8GiB", "--reclaim", "stop")
    refused = operator.is_refused("create-tenant", "umbrella", *other)
    assert (refused["reference"], refused["exit_code"]) == ("tenant-differs", 6)
    assert refused["context"] == [
        "vms limit: 3 there, 4 wanted",
        "memory limit: none there, 8 GiB wanted",
        "reclaim: never there, stop wanted",
    ]
    assert "vgpuctl set-quota umbrella" in refused["hint"]
    assert operator.json("list-tenants") == before
