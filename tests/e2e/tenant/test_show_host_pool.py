# SPDX-License-Identifier: Apache-2.0
"""show-host-pool: a pool of hosts with its GPUs, on simulated hosts."""

from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


def test_a_pool_is_shown_with_who_may_use_it_and_what_is_free(fleet_operator: Operator) -> None:
    fleet = fleet_operator
    fleet.does("create-tenant", "acme")
    fleet.does("create-tenant", "other")
    fleet.does("create-host-pool", "closed", "--hosts", "sim-002")
    fleet.does("grant-host-pool", "closed", "acme")
    fleet.does("create-vm", "web-1", "-t", "acme", "--gpu", "A40-8Q", "--host", "sim-002", *SMALL)
    shown = fleet.json("show-host-pool", "closed")
    (listed,) = [one for one in fleet.json("list-gpus") if one["host"] == "sim-002"]
    ((host,), (gpu,)) = shown["hosts"], shown["hosts"][0]["gpus"]
    assert (shown["pool"]["tenants"], shown["vms"], host["vms"]) == (["acme"], {"acme": 1}, 1)
    assert (gpu["gpu"], gpu["shares"]) == (listed["gpu"]["address"], 1)
    assert gpu["used_mib"] == listed["memory"]["used_mib"] > 0
    assert (shown["used_mib"], shown["free_mib"]) == (gpu["used_mib"], listed["memory"]["free_mib"])

    fleet.does("grant-host-pool", "closed", "acme", "--revoke")
    text = fleet.does("show-host-pool", "closed").out
    assert max(map(len, text.splitlines())) <= 80
    assert "tenants   none granted\n" in text
    assert "VMs       1 of acme (no grant)\n" in text
    assert f"          {gpu['gpu']} " in text


def test_an_unknown_pool_is_refused_with_the_pools_there_are(fleet_operator: Operator) -> None:
    refused = fleet_operator.is_refused("show-host-pool", "nowhere")
    assert refused["reference"] == "not-found"
