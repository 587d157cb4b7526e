# SPDX-License-Identifier: Apache-2.0
"""Seats of licences as an operator meets them, on simulated hosts."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.licence.licence_tokens import token_file
from tests.e2e.operator import Operator
from vgpuctl_lab import licensing

TENANT = ("--tenant", "acme")
VM = (*TENANT, "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
DLS = "dls-1.example.org"


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    yield fleet_operator
    for vm in fleet_operator.json("list-vms"):
        fleet_operator.does("delete-vm", vm["vm"]["request"]["name"], *TENANT, "--yes")


def _pool(operator: Operator, name: str = "dls") -> Any:
    (found,) = operator.json("list-licence-pools", name)
    return found


def _counts(operator: Operator) -> tuple[int, int, int]:
    pool = _pool(operator)
    return pool["held"], pool["coming_back"], pool["free"]


def test_a_site_without_pools_counts_nothing_and_its_vms_are_counted_by_the_first(
    operator: Operator, tmp_path: Path
) -> None:
    operator.does("create-vm", "old", *VM)
    assert operator.json("list-licence-pools") == []
    token = token_file(tmp_path, DLS)
    create = ("create-licence-pool", "dls", "--edition", "vws", "--seats", "2", "--token", str(token))
    done = operator.run(*create, "--json")
    assert "1 running VM with a seat now" in done.err
    made = json.loads(done.out)
    assert made["changed"] and made["pool"]["server"] == DLS and made["pool"]["has_token"]
    assert not operator.json(*create)["changed"]
    assert operator.is_refused(*create[:-4], "--seats", "3")["reference"] == "state"
    assert _counts(operator) == (1, 0, 1)
    assert _pool(operator)["tenants"] == {"acme": 1}


def test_a_vm_that_waits_for_a_gpu_waits_for_no_seat(operator: Operator) -> None:
    for name, size in (("room", "4000GiB"), ("seat", "96MiB")):
        operator.does("create-vm", name, *VM, "--memory", size, "--queue")
        operator.does("set-licence-pool", "dls", "--seats", "1")
    assert _pool(operator)["waiting"] == ["acme/room", "acme/seat"]
    operator.does("set-licence-pool", "dls", "--seats", "2")
    assert _pool(operator)["waiting"] == []
    for name in ("room", "seat"):
        operator.does("leave-queue", name, *TENANT, "--yes")


def test_all_seats_taken_refuses_by_name_and_queues(operator: Operator) -> None:
    operator.does("create-vm", "web", *VM)
    assert _counts(operator) == (2, 0, 0)
    refused = operator.is_refused("create-vm", "third", *VM)
    assert (refused["reference"], refused["exit_code"]) == ("no-licence", 5)
    assert "all 2 seats of licences of edition vws are taken" in refused["message"]
    assert [line.partition(" since")[0] for line in refused["context"]] == [
        "dls: acme/old holds a seat", "dls: acme/web holds a seat",
    ]  # fmt: skip
    assert operator.is_refused("create-vm", "third", *VM, "--dry-run")["reference"] == "no-licence"
    assert [vm["vm"]["request"]["name"] for vm in operator.json("list-vms")] == ["old", "web"]
    assert "set-licence-pool dls --seats 3" in refused["hint"]
    operator.does("set-licence-pool", "dls", "--seats", "1")
    refused = operator.is_refused("create-vm", "third", *VM)
    assert refused["message"].endswith("; 2 are in use in dls, so 2 must come back before one is free")
    assert refused["hint"].startswith("stop 2 VMs that hold one, or add --queue")
    operator.does("set-licence-pool", "dls", "--seats", "2")
    operator.does("create-vm", "third", *VM, "--queue")
    assert "seats of licences of edition vws are taken" in operator.does("list-queue", "--json").out
    assert _pool(operator)["waiting"] == ["acme/third"]
    assert "acme/third" in operator.does("list-licence-pools").out
    operator.does("controller", "--once", "--shutdown-timeout", "0")
    assert _pool(operator)["waiting"] == ["acme/third"]
    operator.does("stop-vm", "web", *TENANT, "--hold", "keep")
    operator.does("controller", "--once", "--shutdown-timeout", "0")
    assert [seat["vm_name"] for seat in _pool(operator)["seats"]] == ["old", "third"]
    operator.does("delete-vm", "third", *TENANT, "--yes")
    operator.does("start-vm", "web", *TENANT)
    # No licence is needed without a vGPU.
    operator.does("create-vm", "plain", *TENANT, "--memory", "96MiB", "--vcpus", "1", "--network", "none")
    operator.does("delete-vm", "plain", *TENANT, "--yes")


def test_a_clean_stop_returns_the_seat_at_once_and_the_start_takes_it_again(operator: Operator) -> None:
    assert _counts(operator) == (2, 0, 0)
    shown = operator.json("show-vm", "web", *TENANT)
    assert (shown["licence"]["pool"], shown["licence_states"]) == ("dls", ["licensed"])
    assert "a seat of dls (vws); the host's NVML says licensed" in operator.does("show-vm", "web", *TENANT).out
    assert "LICENCE" in operator.does("list-vms").out
    operator.does("stop-vm", "web", *TENANT, "--hold", "keep")
    assert _counts(operator) == (1, 0, 1)
    operator.does("create-vm", "third", *VM)
    refused = operator.is_refused("start-vm", "web", *TENANT)
    assert refused["reference"] == "no-licence"
    operator.does("delete-vm", "third", *TENANT, "--yes")
    operator.does("start-vm", "web", *TENANT)
    assert _counts(operator) == (2, 0, 0)
    assert operator.json("repair") == []


def test_the_seat_of_a_killed_vm_comes_back_after_the_lease(operator: Operator) -> None:
    vm = operator.json("show-vm", "web", *TENANT)["vm"]
    with libvirt_of(operator.inventory, vm["host"]) as there:
        there.destroy("acme.web", uuid=vm["uuid"])
    operator.does("repair")
    assert _counts(operator) == (1, 1, 0)
    refused = operator.is_refused("create-vm", "third", *VM)
    assert "the seat of acme/web comes back at" in refused["message"]
    assert re.search(r"comes back at \d{4}-\d\d-\d\d", refused["context"][0])
    operator.does("create-vm", "third", *VM, "--queue")
    operator.does("create-vm", "fourth", *VM, "--queue")
    back = next(one["released_at"] for one in _pool(operator)["seats"] if one["released_at"] is not None)
    # The seat that comes back is for the first of them.
    assert [one["expected_at"] for one in operator.json("list-queue")["queue"]] == [back, None]
    for name in ("third", "fourth"):
        operator.does("leave-queue", name, *TENANT, "--yes")
    # The same guest gets its own licence again.
    operator.does("start-vm", "web", *TENANT)
    assert _counts(operator) == (2, 0, 0)
    operator.does("set-licence-pool", "dls", "--lease", "1h")
    with libvirt_of(operator.inventory, vm["host"]) as there:
        there.destroy("acme.web", uuid=vm["uuid"])
    operator.does("repair")
    assert _counts(operator) == (1, 1, 0)
    assert _counts(operator.later(3700)) == (1, 0, 1)
    operator.does("start-vm", "web", *TENANT)
    operator.does("delete-vm", "web", *TENANT, "--yes")


def test_a_gang_gets_all_its_seats_or_none(operator: Operator) -> None:
    assert _counts(operator) == (1, 0, 1)
    gang = ("create-vm", "gang", *VM, "--count", "2", "--gang")
    assert operator.is_refused(*gang)["reference"] == "no-licence"
    assert _counts(operator) == (1, 0, 1)
    operator.does("set-licence-pool", "dls", "--seats", "3")
    operator.does(*gang)
    assert _counts(operator) == (3, 0, 0)
    operator.does("delete-vm", "gang-1", "gang-2", *TENANT, "--yes")
    assert _counts(operator) == (1, 0, 2)


def test_the_edition_follows_from_the_type_and_quotas_count_it(operator: Operator) -> None:
    refused = operator.is_refused("create-vm", "cuda", *TENANT, "--gpu", "A40-8C", *VM[4:])
    assert refused["reference"] == "no-licence" and "there is no pool of it" in refused["message"]
    refused = operator.is_refused("create-vm", "odd", *VM, "--licence", "vapps")
    assert refused["reference"] == "usage" and "cannot run with the licence vapps" in refused["message"]
    operator.does("set-quota", "acme", "licences:vws=1")
    refused = operator.is_refused("create-vm", "more", *VM)
    assert (refused["reference"], refused["context"]) == ("quota-exceeded", ["licences:vws: 1 of 1 used, 1 asked"])
    (tenant,) = operator.json("list-tenants")
    used = {one["resource"]: one["used"] for one in tenant["quotas"]}
    assert used == {"licences:vws": 1}
    operator.does("set-quota", "acme", "licences:vws=none")
    assert operator.is_refused("set-quota", "acme", "licences:gold=1")["reference"] == "usage"


def test_the_token_goes_into_the_seed_and_nowhere_else(operator: Operator, tmp_path: Path) -> None:
    token = token_file(tmp_path, DLS)
    secret = token.read_text().strip()
    operator.does("set-licence-pool", "dls", "--token", str(token))
    done = operator.does("create-vm", "seeded", *VM)
    said = done.out + done.err
    for command in (
        ("show-vm", "seeded", *TENANT), ("list-vms",), ("list-events",), ("list-licence-pools", "dls"),
        ("create-vm", "seeded", *VM),
    ):  # fmt: skip
        said += operator.does(*command, "--json").out
    assert secret not in said and secret.split(".")[1] not in said
    assert secret.encode() not in (operator.home / "store.db").read_bytes()
    assert "-seed.iso" in operator.does("show-vm", "seeded", *TENANT, "--xml").out
    operator.does("stop-vm", "seeded", *TENANT)
    operator.does("start-vm", "seeded", *TENANT)
    assert "-seed.iso" in operator.does("show-vm", "seeded", *TENANT, "--xml").out
    assert not operator.json("create-vm", "seeded", *VM)[0]["changed"]
    operator.does("delete-vm", "seeded", *TENANT, "--yes")


def test_capacity_and_explain_vm_name_the_licences(operator: Operator) -> None:
    operator.does("set-licence-pool", "dls", "--seats", "2")
    kind = ("--gpu", "A40-8Q")
    assert (operator.json("capacity", *kind)["now"], operator.json("capacity", *kind)["free_licences"]) == (1, 1)
    assert operator.json("capacity", "--gpu", "passthrough:A40")["free_licences"] is None
    operator.does("set-licence-pool", "dls", "--seats", "1")
    assert operator.json("capacity", *kind)["now"] == 0
    (explained,) = operator.json("explain-vm", "more", *VM)
    assert (
        not explained["fits"]
        and explained["placement"] is not None
        and "the only seat of licences" in explained["licence"]
    )
    page = operator.does("serve", "exporter", "--once").out
    seats = {line for line in page.splitlines() if "licence_seats{" in line}
    labels = 'edition="vws",pool="dls"'
    assert f'vgpuctl_licence_seats{{{labels},state="free"}} 0.0' in seats, seats
    assert f'vgpuctl_tenant_licence_seats{{{labels},state="held",tenant="acme"}} 1.0' in seats, seats


def test_a_token_that_others_can_read_or_of_another_server_is_refused(operator: Operator, tmp_path: Path) -> None:
    readable = token_file(tmp_path, "dls-2.example.org", mode=0o644)
    create = ("create-licence-pool", "two", "--edition", "vpc", "--seats", "1")
    assert "may be read by every user" in operator.is_refused(*create, "--token", str(readable))["message"]
    readable.chmod(0o600)
    refused = operator.is_refused(*create, "--server", DLS, "--token", str(readable))
    assert (
        refused["message"] == f"the token is of another server: it names dls-2.example.org, the pool's server is {DLS}"
    )
    other = operator.is_refused("set-licence-pool", "dls", "--server", "dls-3.example.org")
    assert "of another server" in other["message"]
    own = tmp_path / "own.tok"
    own.write_text(readable.read_text())
    own.chmod(0o600)
    file = tmp_path / "acme.yml"
    file.write_text(
        "version: 1\ntenant: acme\nsecrets: {licence_token: {file: own.tok}}\n"
        "vms: [{name: brings, gpus: [A40-8Q], memory: 96MiB, vcpus: 1, network: none, secrets: [licence_token]}]\n"
    )
    done = operator.run("onboard", str(file))
    assert done.code != 0
    assert "brings a token of another server" in done.err and own.read_text().strip() not in done.err


def test_a_pool_that_cannot_serve_its_vms_says_so_and_can_be_deleted(operator: Operator) -> None:
    assert operator.json("delete-licence-pool", "dls", "--yes")["deleted"] == ["dls"]
    for name in ("more-1", "more-2"):
        operator.does("create-vm", name, *VM)
    taken = sum(one["observed"] == "running" for one in operator.json("list-vms", "--refresh"))
    create = ("create-licence-pool", "dls", "--lease", "24h", "--seats", "1")
    said = operator.does(*create, "--edition", "vws").err
    assert f"licence pool dls: {taken} VMs hold its 1 seat, {taken - 1} more than there are" in said, said
    assert "more than there are" in operator.does("set-licence-pool", "dls", "--lease", "23h").err
    operator.does("delete-licence-pool", "dls", "--yes")
    other = operator.does(*create, "--edition", "vcs").err
    assert "no licence pool is of edition vws" in other and "acme/more-1" in other, other
    operator.does("delete-licence-pool", "dls", "--yes")
    operator.does("stop-vm", "more-1", *TENANT, "--timeout", "0")
    operator.does("start-vm", "more-1", *TENANT)
    for name in ("more-1", "more-2"):
        operator.does("delete-vm", name, *TENANT, "--yes", "--timeout", "0")
    operator.does("create-licence-pool", "dls", "--edition", "vws", "--seats", "2")


def test_a_pool_is_deleted(operator: Operator) -> None:
    operator.does("delete-vm", "old", *TENANT, "--yes")
    assert operator.json("delete-licence-pool", "dls", "--yes")["deleted"] == ["dls"]
    operator.does("create-vm", "free", *VM)
    kinds = [one["kind"] for one in operator.json("list-events", "--limit", "500")]
    assert {"licence-pool-created", "licence-taken", "licence-returned", "licence-pool-deleted"} <= set(kinds)


def test_the_commands_of_the_page_run(operator: Operator, tmp_path: Path, fleet: lab.LabFolder) -> None:
    page = (Path(__file__).parents[3] / "docs" / "licences.md").read_text()
    commands = re.findall(r"^    \$ vgpuctl (.+)$", page, re.MULTILINE)
    assert len(commands) == 13
    rehearsing = replace(operator, variables={"VGPUCTL_LAB_FOLDER": str(fleet.path)})
    for line in commands:
        words = [str(tmp_path / word) if word.endswith(".tok") else word for word in shlex.split(line)]
        rehearsing.does(*words)
    assert _counts(operator) == (2, 0, 0)
    assert [one.seats for one in licensing.status(folder=fleet)] == [{"vws": 2}]
    assert rehearsing.does("lab", "licence-server", "stop", "rehearsal").err.endswith("rehearsal: stopped\n")
    assert rehearsing.json("lab", "licence-server", "status")["servers"][0]["state"] == "dead"
    assert "1 tokens revoked" in rehearsing.does("lab", "licence-server", "revoke", "rehearsal").err
    unknown = rehearsing.run("lab", "licence-server", "stop", "other")
    assert unknown.code != 0 and "there is no licence server 'other'" in unknown.err
    elsewhere = rehearsing.run("lab", "licence-server", "up", "two", "--seats", "vws=1", "--listen", "192.0.2.1")
    assert elsewhere.code != 0 and "port 0 cannot be listened on" in elsewhere.err
    rehearsing.does("lab", "licence-server", "down")
    assert licensing.names(folder=fleet) == []
