# SPDX-License-Identifier: Apache-2.0
"""Quotas, pools and usage as an operator meets them, on simulated hosts."""

import csv
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
VM = ("--tenant", "acme", "--gpu", "A40-8Q", *SMALL)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("list-gpus", "--refresh")
    yield fleet_operator
    for vm in fleet_operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        fleet_operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")


def _quotas(operator: Operator, tenant: str) -> dict[str, Any]:
    (found,) = [one for one in operator.json("list-tenants") if one["tenant"] == tenant]
    return {one["resource"]: one for one in found["quotas"]}


def test_a_tenant_gets_what_it_was_promised_and_no_more(operator: Operator) -> None:
    quota = ("--quota", "framebuffer=16GiB", "--guaranteed", "framebuffer=8GiB", "--quota", "vms=4")
    assert operator.json("create-tenant", "acme", *quota)["changed"]
    assert not operator.json("create-tenant", "acme", *quota)["changed"]
    operator.does("create-vm", "web-1", *VM)
    operator.does("create-vm", "web-2", *VM)
    refused = operator.is_refused("create-vm", "web-3", *VM)
    assert (refused["reference"], refused["exit_code"]) == ("quota-exceeded", 9)
    assert refused["context"] == ["framebuffer: 16 GiB of 16 GiB used, 8 GiB asked"]
    assert "set-quota acme framebuffer=24GiB" in refused["hint"]
    assert operator.is_refused("create-vm", "web-3", *VM, "--dry-run")["reference"] == "quota-exceeded"
    framebuffer = _quotas(operator, "acme")["framebuffer"]
    assert (framebuffer["used"], framebuffer["limit"], framebuffer["borrowed"]) == (16384, 16384, 8192)
    assert _quotas(operator, "acme")["vms"]["used"] == 2

    assert operator.json("set-quota", "acme", "shares:A40-8Q=2", "--dry-run")["changed"]
    assert operator.json("set-quota", "acme", "shares:A40-8Q=2", "framebuffer=none")["changed"]
    assert "shares:A40-8Q: 2 of 2 used" in operator.is_refused("create-vm", "web-3", *VM)["context"][0]
    operator.does("set-quota", "acme", "shares:A40-8Q=none", "gpu-hours=0")
    assert "gpu-hours" in operator.is_refused("create-vm", "web-3", *VM)["message"]
    operator.does("create-vm", "plain", "--tenant", "acme", *SMALL)
    operator.does("set-quota", "acme", "gpu-hours=none")


def test_released_shares_count_again_only_when_the_vm_starts(operator: Operator) -> None:
    operator.does("stop-vm", "web-2", "--tenant", "acme", "--hold", "release", "--timeout", "0")
    operator.does("set-quota", "acme", "framebuffer=12GiB")
    assert _quotas(operator, "acme")["framebuffer"]["used"] == 8192
    refused = operator.is_refused("start-vm", "web-2", "--tenant", "acme")
    assert (refused["reference"], refused["context"]) == (
        "quota-exceeded", ["framebuffer: 8 GiB of 12 GiB used, 8 GiB asked"],
    )  # fmt: skip
    operator.does("set-quota", "acme", "framebuffer=16GiB")
    operator.does("start-vm", "web-2", "--tenant", "acme")


def test_usage_survives_the_vm_in_every_form_of_output(operator: Operator) -> None:
    operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
    (line,) = operator.json("show-usage", "--tenant", "acme")["usage"]
    assert (line["tenant"], line["profile"], line["shares"], line["attached"]) == ("acme", "A40-8Q", 3, 1)
    assert line["framebuffer_gib_hours"] == pytest.approx(8 * line["share_hours"])
    assert line["gpu_hours"] == pytest.approx(line["share_hours"] / 6)
    rows = list(csv.DictReader(io.StringIO(operator.does("show-usage", "-o", "csv", "--profile", "A40-8Q").out)))
    assert [(row["tenant"], row["profile"], row["attached"]) for row in rows] == [("acme", "A40-8Q", "1")]
    assert "A40-8Q" in operator.does("show-usage").out
    intervals = operator.json("show-usage", "--intervals")["intervals"]
    assert sorted((one["vm_name"], one["ended_at"] is None) for one in intervals) == [
        ("web-1", False), ("web-2", False), ("web-2", True),
    ]  # fmt: skip
    assert operator.json("show-usage", "--profile", "T4-2Q")["usage"] == []
    assert operator.json("show-usage", "--since", "2001-01-01", "--until", "2001-02-01")["usage"] == []
    assert operator.is_refused("show-usage", "--since", "soon")["reference"] == "usage"
    assert operator.json("repair") == []


def test_a_pool_serves_only_tenants_with_a_grant(operator: Operator) -> None:
    operator.does("create-tenant", "umbrella")
    assert operator.json("create-host-pool", "gold", "--hosts", "sim-001,sim-002")["changed"]
    assert not operator.json("create-host-pool", "gold", "--hosts", "sim-002,sim-001")["changed"]
    operator.does("grant-host-pool", "gold", "umbrella")
    refused = operator.is_refused("create-vm", "other", *VM, "--host", "sim-001")
    assert refused["context"] == ["sim-001: in pool gold, which is not granted to acme"]
    assert "grant-host-pool gold acme" in refused["hint"]
    assert operator.is_refused("create-vm", "other", *VM)["reference"] == "no-capacity"
    umbrella = ("--tenant", "umbrella", "--gpu", "A40-8Q", *SMALL)
    assert operator.json("create-vm", "mine", *umbrella)[0]["vm"]["host"] in ("sim-001", "sim-002")
    assert operator.json("list-host-pools") == [
        {"name": "gold", "hosts": ["sim-001", "sim-002"], "tenants": ["umbrella"]}
    ]
    assert operator.is_refused("create-host-pool", "silver", "--hosts", "sim-002")["reference"] == "state"
    operator.does("grant-host-pool", "gold", "umbrella", "--revoke")
    assert operator.is_refused("create-vm", "next", *umbrella)["reference"] == "no-capacity"
    operator.does("delete-host-pool", "gold", "--yes")
    operator.does("create-vm", "next", *umbrella)


def test_a_vm_that_gave_everything_back_starts_only_where_its_memory_and_its_label_are(
    operator: Operator, tmp_path: Path
) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("vgpu_placing: {labels: {rack: r1}}\n")
    shutil.copy(operator.inventory, tmp_path / "hosts.yml")
    labelled = replace(operator, inventory=tmp_path)
    labelled.does("create-tenant", "large")
    of_it = ("--tenant", "large")
    size = (*of_it, "--memory", "300GiB", "--network", "none", "--require-label", "rack=r1", "--host", "sim-001")
    labelled.does("create-vm", "sharing", "--gpu", "A40-8Q", *size)
    labelled.does("stop-vm", "sharing", *of_it, "--hold", "release", "--timeout", "0")
    labelled.does("create-vm", "plain", *size)
    refused = labelled.is_refused("start-vm", "sharing", *of_it)
    assert refused["reference"] == "no-capacity"
    assert "promised to its VMs (host-memory)" in refused["context"][0]
    labelled.does("stop-vm", "plain", *of_it, "--timeout", "0")
    labelled.does("start-vm", "sharing", *of_it)
    assert labelled.is_refused("start-vm", "plain", *of_it)["reference"] == "no-capacity"
    labelled.does("delete-vm", "sharing", "plain", *of_it, "--yes", "--timeout", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set-quota", "acme"], "nothing to set"),
        (["set-quota", "acne", "vms=1"], "no tenant"),
        (["set-quota", "acme", "vms=1", "vms=2"], "twice"),
        (["set-quota", "acme", "gpus=1"], "nothing that a quota"),
        (["set-quota", "acme", "vms=1", "--guaranteed", "vms=2"], "more than the limit"),
        (["grant-host-pool", "none", "acme"], "no host pool"),
        (["create-host-pool", "x", "--hosts", "nowhere"], "nowhere"),
        (["create-tenant", "third", "--host-pool", "none"], "no host pool"),
    ],
)
def test_bad_input_says_what_is_wrong(operator: Operator, arguments: list[str], said: str) -> None:
    assert said in operator.is_refused(*arguments)["message"]
    assert all(one["tenant"] != "third" for one in operator.json("list-tenants"))
