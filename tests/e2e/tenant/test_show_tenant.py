# SPDX-License-Identifier: Apache-2.0
"""show-tenant: everything of a tenant on one page, on simulated hosts."""

from tests.e2e.operator import Operator

SMALL = ("-t", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


def test_a_tenant_is_shown_with_all_that_it_may_use_and_has(fleet_operator: Operator) -> None:
    fleet = fleet_operator
    fleet.does("list-gpus", "--refresh")
    fleet.does("create-tenant", "acme", "--quota", "framebuffer=16GiB", "--guaranteed", "framebuffer=8GiB")
    fleet.does("create-tenant", "other")
    fleet.does("create-host-pool", "closed", "--hosts", "sim-002")
    fleet.does("grant-host-pool", "closed", "acme")
    fleet.does("create-network", "front", "-t", "acme", "--cidr", "10.20.0.0/29", "--host", "sim-001")
    fleet.does("create-network", "back-10", "-t", "acme", "--cidr", "10.20.1.0/29", "--host", "sim-001")
    fleet.does("create-network", "back-9", "-t", "acme", "--cidr", "10.20.2.0/29", "--host", "sim-001")
    fleet.does("create-vm", "web-1", "--gpu", "A40-8Q", *SMALL)
    fleet.does("create-vm", "plain", *SMALL)
    fleet.does("stop-vm", "plain", "-t", "acme", "--timeout", "0")
    fleet.does("create-vm", "waits", "--gpu", "A40-12Q", *SMALL, "--queue")
    soon = ("--from", "2099-01-01T00:00", "--until", "2099-01-02T00:00")
    fleet.does("reserve", "training", "-t", "acme", "--gpu", "A40-4Q", *soon)

    shown = fleet.json("show-tenant", "acme")
    assert shown["tenant"] == next(one for one in fleet.json("list-tenants") if one["tenant"] == "acme")
    assert shown["tenant"]["host_pools"] == ["closed"]
    assert shown["vm_states"] == {"queued": 1, "running": 1, "stopped": 1}
    assert shown["queue"] == fleet.json("list-queue", "-t", "acme")["queue"]
    assert shown["reservations"] == fleet.json("list-reservations", "-t", "acme")
    assert [(one["name"], one["free"]) for one in shown["networks"]] == [
        ("back-9", 5),
        ("back-10", 5),
        ("front", 5),
    ]
    assert fleet.json("show-tenant", "other")["vm_states"] == {}

    text = fleet.does("show-tenant", "acme").out
    assert max(map(len, text.splitlines())) <= 80
    assert "quota     framebuffer 8 GiB / 16 GiB (8 GiB guaranteed)\n" in text
    assert "host pool closed\n" in text
    assert "VMs       1 queued, 1 running, 1 stopped\n" in text
    assert "reserved  training: A40-4Q from 2099-01-01 00:00" in text
    assert "network   back-9 10.20.2.0/29" in text


def test_an_unknown_tenant_is_refused_with_names_that_are_near(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "acme")
    refused = fleet_operator.is_refused("show-tenant", "acne")
    assert refused["reference"] == "not-found"
    assert "acme" in str(refused["hint"])
