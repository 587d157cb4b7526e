# SPDX-License-Identifier: Apache-2.0
"""A tenant from one file, on simulated hosts and a real OVN central: made, left alone, changed, pruned, deleted."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.ovn_fixture import LocalOvn, central, chassis
from tests.postgres_fixture import LocalPostgres

__all__ = ["central", "chassis"]

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "onboarding.md").read_text()
SECRET = "eyJ-token-that-nobody-may-see"
SMALL = """
version: 1
tenant: NAME
quotas: {vms: 3}
networks:
  front: {cidr: 10.0.0.0/24}
security_groups:
  web: [{protocol: tcp, ports: 80}]
vms:
  - {name: a, vcpus: 1, memory: 96MiB, network: front, security_groups: [web]}
"""


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the guide's file and its secret."""
    (tmp_path / "acme.yml").write_text(_block("yaml"))
    (tmp_path / "acme.tok").write_text(SECRET)
    (tmp_path / "acme.tok").chmod(0o600)
    return tmp_path


@pytest.fixture
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None, tmp_path: Path) -> Iterator[Operator]:
    """An operator with a store of the test's own; every tenant is gone from hosts and OVN afterwards."""
    made = replace(
        fleet_operator,
        database=f"sqlite:///{tmp_path}/store.db",
        variables={"VGPUCTL_OVN_NORTHBOUND": central.northbound},
    )
    yield made
    for one in made.json("list-tenants"):
        made.does("offboard-tenant", one["tenant"], "--yes", "--timeout", "0")
    for one in made.json("list-external-networks"):
        made.does("delete-external-network", "--yes", one["external_network"]["name"])
    assert _rows(central) == 0


def _rows(central: LocalOvn) -> int:
    """How many rows of OVN's are tenants'."""
    tables = ("Logical_Switch", "Logical_Router", "Port_Group", "Load_Balancer")
    return sum(central.nbctl("--columns=external_ids", "list", one).count("tenant/") for one in tables)


def _words(answer: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in answer["objects"]:
        found.setdefault(one["outcome"], []).append(f"{one['kind']} {one['name']}")
    return found


def _run_script(operator: Operator, folder: Path, language: str, *command: str) -> str:
    """Run a script of the guide as it stands there, with a `vgpuctl` on PATH that is this working tree's."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    wrapper = programs / "vgpuctl"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m vgpuctl "$@"\n')
    wrapper.chmod(0o755)
    script = folder / f"script.{language}"
    script.write_text(_block(language))
    environment = {**operator.environment, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*command, str(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


def test_the_guides_scripts_bring_a_tenant_and_take_it_back(
    operator: Operator, central: LocalOvn, folder: Path
) -> None:
    printed = _run_script(operator, folder, "sh", "sh")
    assert "10.0.0.2" in printed
    assert [one["contact"] for one in operator.json("list-tenants")] == ["gpu-team@acme.example"]
    nat = central.nbctl("--bare", "--columns=type,external_ip,logical_ip", "list", "NAT").split()
    assert {"203.0.113.10", "203.0.113.11", "dnat_and_snat", "snat"} <= set(nat)
    balancers = central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer")
    assert "203.0.113.10:8080=10.0.0." in balancers
    assert ":80=10.0.0." in balancers
    assert SECRET.encode() not in Path(operator.database.removeprefix("sqlite:///")).read_bytes()
    printed = _run_script(operator, folder, "python", sys.executable)
    assert "vm web-1 unchanged" in printed
    assert "4 hosts asked" in printed
    assert _rows(central) == 0
    (tenant,) = operator.json("list-tenants")
    assert (tenant["tenant"], tenant["vms"], tenant["quotas"]) == ("acme", 0, [])


def test_a_changed_file_changes_what_it_names_and_prune_removes_the_rest(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "globex.yml"
    file.write_text(SMALL.replace("NAME", "globex"))
    dry = operator.json("onboard", str(file), "--dry-run")
    assert list(_words(dry)) == ["created"]
    assert operator.json("list-tenants") == []
    made = operator.json("onboard", str(file))
    assert _words(made) == _words(dry)
    file.write_text(
        SMALL.replace("NAME", "globex").replace("ports: 80", "ports: 443").replace("  - {name: a,", "  - {name: b,")
    )
    changed = operator.json("onboard", str(file))
    assert _words(changed) == {
        "unchanged": ["tenant globex", "quota vms", "network front"],
        "changed": ["security-group web"],
        "created": ["vm b"],
        "not in the file": ["vm a"],
    }
    assert len(operator.json("list-vms")) == 2
    pruned = _words(operator.json("onboard", str(file), "--prune"))
    assert pruned["removed"] == ["vm a"]
    assert [vm["vm"]["request"]["name"] for vm in operator.json("list-vms")] == ["b"]
    file.write_text(file.read_text().replace("memory: 96MiB", "memory: 128MiB"))
    assert _words(operator.ends(6, "onboard", str(file), "--dry-run"))["differs"] == ["vm b"]
    refused = operator.is_refused("onboard", str(file))
    assert (refused["reference"], refused["context"]) == ("vm-differs", ["memory: 96MiB there, 128MiB wanted"])


def test_a_dry_run_ends_where_the_run_ends(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "wayne.yml"
    one = next(line for line in SMALL.splitlines() if line.startswith("  - {name: a,"))
    more = "\n".join(one.replace("name: a", f"name: a{number}") for number in range(4))
    file.write_text(SMALL.replace("NAME", "wayne").replace(one, more))
    dry, run = (operator.run("onboard", str(file), *more, "--json") for more in (("--dry-run",), ()))
    assert (dry.code, run.code) == (9, 9), "the quota has room for three VMs"
    assert [json.loads(one.err.splitlines()[-1])["error"]["message"] for one in (dry, run)] == [
        "VM a3 does not fit into the quota of tenant wayne: vms"
    ] * 2
    assert _words(json.loads(dry.out)) == _words(json.loads(run.out))
    assert json.loads(dry.out)["changed"] is False
    operator.does("offboard-tenant", "wayne", "--yes", "--timeout", "0")


def test_a_file_with_a_vm_that_differs_changes_nothing(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "initech.yml"
    two = SMALL.replace("NAME", "initech")
    vm = next(line for line in two.splitlines() if line.startswith("  - {name: a,"))
    file.write_text(two.replace(vm, f"{vm}\n{vm.replace('name: a', 'name: b')}"))
    operator.does("onboard", str(file))
    before = [operator.json(command) for command in ("list-tenants", "list-vpc-objects", "list-networks")]
    file.write_text(two.replace("memory: 96MiB", "memory: 128MiB").replace("vms: 3}", "vms: 9}").replace("80", "443"))
    refused = operator.is_refused("onboard", str(file), "--prune")
    assert (refused["reference"], refused["context"]) == ("vm-differs", ["memory: 96MiB there, 128MiB wanted"])
    assert [operator.json(command) for command in ("list-tenants", "list-vpc-objects", "list-networks")] == before
    assert sorted(one["vm"]["request"]["name"] for one in operator.json("list-vms", "--tenant", "initech")) == [
        "a",
        "b",
    ]


@pytest.mark.long(
    "tests/e2e/network/test_networks.py::test_after_kill_9_anywhere_the_same_command_or_repair_finishes",
    "tests/e2e/tenant/test_onboard.py::test_a_changed_file_changes_what_it_names_and_prune_removes_the_rest",
)
def test_after_kill_9_the_same_command_finishes(operator: Operator, central: LocalOvn, tmp_path: Path) -> None:
    file = tmp_path / "acme.yml"
    file.write_text(SMALL.replace("NAME", "acme"))
    onboard, offboard = ("onboard", str(file)), ("offboard-tenant", "acme", "--yes", "--timeout", "0")
    for kill_on, kill_off in (("apply", "3"), ("define", "apply")):
        kill_after(operator, kill_on, *onboard)
        operator.does(*onboard)
        assert list(_words(operator.json(*onboard))) == ["unchanged"], f"after {kill_on}"
        kill_after(operator, kill_off, *offboard)
        operator.does(*offboard)
        assert _rows(central) == 0, f"after {kill_off}"
        assert operator.json("list-vms") == operator.json("list-networks") == []


def test_a_disk_that_nobody_knows_is_found_before_a_tenant_counts_as_gone(operator: Operator) -> None:
    from vgpuctl.guests.libvirtd.storage import Storage
    from vgpuctl.wiring import Settings, open_services

    for name in ("acme", "acme.eu"):
        operator.does("create-tenant", name)
    settings = Settings((str(operator.inventory),), operator.database)
    with open_services(settings, print) as services:
        storage = Storage(services.host("sim-002").hypervisor)
        storage.ensure_pool("default")
        for name in ("acme.lost.qcow2", "acme.eu.other.qcow2", "acme.txt"):
            storage.create_disk("default", name, 16)
        refused = operator.is_refused("offboard-tenant", "acme", "--yes", "--timeout", "0")
        assert refused["context"] == ["volume acme.lost.qcow2 of pool default on sim-002"]
        for name in ("acme.lost.qcow2", "acme.eu.other.qcow2", "acme.txt"):
            storage.delete_volume("default", name)
    operator.does("offboard-tenant", "acme", "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/tenant/test_onboard.py::test_several_tenants_come_from_standard_input",
    "tests/integration/store/test_store_concurrency.py::test_exactly_one_of_many_runs_wins",
    "tests/integration/store/test_store_concurrency.py::test_a_quota_is_never_exceeded_by_many_runs_at_once",
)
def test_two_tenants_are_onboarded_at_once_on_postgresql(
    operator: Operator, tmp_path: Path, postgres: LocalPostgres
) -> None:
    with postgres.create_database() as database:
        shared = replace(operator, database=database)
        runs = []
        for name in ("acme", "globex"):
            (tmp_path / f"{name}.yml").write_text(SMALL.replace("NAME", name))
            runs.append(shared.start("onboard", str(tmp_path / f"{name}.yml")))
        for run in runs:
            _out, err = run.communicate(timeout=200)
            assert run.returncode == 0, err
        assert [vm["vm"]["request"]["tenant"] for vm in shared.json("list-vms")] == ["acme", "globex"]
        assert shared.json("repair") == []
        for name in ("acme", "globex"):
            shared.does("offboard-tenant", name, "--yes", "--timeout", "0")


def test_overlapping_neighbours_are_refused_and_others_joined(
    operator: Operator, central: LocalOvn, tmp_path: Path
) -> None:
    for name, cidr, other in (("acme", "10.0.0.0/24", "globex"), ("globex", "10.1.0.0/24", "acme")):
        text = f"version: 1\ntenant: {name}\nnetworks: {{front: {{cidr: {cidr}}}}}\npeerings: [{other}]\n"
        (tmp_path / f"{name}.yml").write_text(text)
        operator.does("onboard", str(tmp_path / f"{name}.yml"))
    routes = central.nbctl("--bare", "--columns=ip_prefix", "list", "Logical_Router_Static_Route").split()
    assert sorted(routes) == ["10.0.0.0/24", "10.1.0.0/24"]
    refused = operator.is_refused("create-network", "more", "--tenant", "globex", "--cidr", "10.0.0.0/16")
    assert refused["reference"] == "network-in-use"
    assert "of a peered tenant" in refused["message"]


REFUSED = [
    ("version: 2\ntenant: a\n", "1: file.version is 2"),
    ("version: 1\ntenant: a\nvm: []\n", "3: file.vm is not a key of this file"),
    ("version: 1\ntenant: a b\n", "2: file.tenant 'a b'"),
    ("version: 1\ntenant: a\nnetworks:\n  front: {cidr: 10.0.0.1/24}\n", "not a network"),
    ("version: 1\ntenant: a\nquotas:\n  vms: 3\n  gold: 4\n", "5: 'gold' is nothing that a quota"),
    (
        "version: 1\ntenant: a\nsecurity_groups:\n  web:\n    - {ports: 80}\n",
        "5: a rule has ports, and any has none",
    ),
    ("version: 1\ntenant: a\nvms:\n  - name: b\n    memroy: 1GiB\n", "5: file.vms[0].memroy is not a key"),
    ("version: 1\ntenant: a\nvms:\n  - {name: b}\n  - {name: b}\n", "5: file.vms[1] has the name 'b', as at"),
    ("version: 1\ntenant: a\ntenant: b\n", "3: key 'tenant' is written twice"),
    ("tenant: a\n", "has no 'version'"),
    ("version: 1\ntenant: [\n", "not valid YAML"),
]


def test_a_wrong_file_is_refused_with_its_line_before_anything_is_done(tmp_path: Path) -> None:
    from vgpuctl.errors import InventoryError
    from vgpuctl.model.network import Backend
    from vgpuctl.specs.tenant import read_tenant_files

    file = tmp_path / "tenant.yml"
    for text, said in REFUSED:
        file.write_text(text)
        with pytest.raises(InventoryError) as caught:
            read_tenant_files(file, default_backend=Backend.LIBVIRT)
        assert said in caught.value.message, caught.value.message
        assert caught.value.message.startswith(str(file))


NEEDS = {
    "a VM": ("vms: [{name: a, network: none}]", "no inventory given"),
    "a network of libvirt": ("networks: {front: {cidr: 10.0.0.0/24}}", "no inventory given"),
    "a network of OVN": ("networks: {front: {cidr: 10.0.0.0/24, backend: ovn}}", "this needs OVN"),
}


@pytest.mark.parametrize("case", NEEDS)
def test_what_needs_hosts_or_ovn_is_refused_with_nothing_done_where_there_are_none(tmp_path: Path, case: str) -> None:
    needs, said = NEEDS[case]
    operator = Operator(
        tmp_path, Path("unused"), f"sqlite:///{tmp_path}/store.db", without=("VGPUCTL_INVENTORY", "VGPUCTL_CONFIG")
    )
    file = tmp_path / "tenants.yml"
    quotas = "version: 1\ntenant: red\nquotas: {vms: 1}\n"
    file.write_text(f"{quotas}---\nversion: 1\ntenant: blue\nquotas: {{vms: 2}}\n{needs}\n")
    refused = operator.is_refused("onboard", str(file))
    assert said in refused["message"], refused
    assert operator.json("list-tenants") == [], "also the first tenant of the file"
    file.write_text(quotas)
    assert operator.json("onboard", str(file))["changed"], "quotas need no host"
    assert "no inventory given" in operator.is_refused("offboard-tenant", "red", "--yes")["message"]
    assert [one["resource"] for one in operator.json("list-tenants")[0]["quotas"]] == ["vms"], "they are still there"


def test_a_secret_that_others_can_read_is_refused(operator: Operator, folder: Path) -> None:
    (folder / "acme.tok").chmod(0o644)
    text = (folder / "acme.yml").read_text().replace("acme.tok", str(folder / "acme.tok"))
    (folder / "acme.yml").write_text(text)
    refused = operator.is_refused("onboard", str(folder / "acme.yml"))
    assert f"`chmod o-r {folder}/acme.tok`" in refused["hint"]
    assert operator.json("list-tenants") == []


def test_a_secret_elsewhere_is_read_only_from_folders_of_the_operator(
    operator: Operator, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vault = tmp_path_factory.mktemp("vault")
    (folder / "acme.tok").rename(vault / "acme.tok")
    file = folder / "acme.yml"
    text = file.read_text()
    file.write_text(text.replace("acme.tok", str(vault / "acme.tok")))
    refused = operator.is_refused("onboard", str(file))
    assert "neither beside the tenant's file" in refused["message"]
    assert "--secrets-from" in (refused["hint"] or "")
    file.write_text(text.replace("acme.tok", "../../../etc/shadow"))
    assert "cannot be named so" in operator.is_refused("onboard", str(file))["message"]
    assert operator.json("list-tenants") == []
    file.write_text(text.replace("acme.tok", str(vault / "acme.tok")))
    operator.does("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1",
                  "--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider")  # fmt: skip
    allowed = ("onboard", str(file), "--secrets-from", str(vault))
    assert "vm web-1" in _words(operator.json(*allowed, "--dry-run"))["created"]


def test_several_tenants_come_from_standard_input(operator: Operator) -> None:
    """One in each document; the JSON of several is a list, and a wrong one stops all before the first is changed."""
    text = "version: 1\ntenant: red\nquotas: {vms: 1}\n---\nversion: 1\ntenant: blue\nquotas: {vms: 2}\n"
    argv = [*operator.command, "onboard", "-", "--json"]
    wrong = f"{text}quota: 1\n"
    refused = subprocess.run(argv, input=wrong, env=operator.environment, text=True, capture_output=True, check=False)
    assert "stdin:8: file.quota is not a key of this file" in refused.stderr
    assert "did you mean quotas?" in refused.stderr
    assert operator.json("list-tenants") == []
    for changed in (True, False):
        done = subprocess.run(argv, input=text, env=operator.environment, text=True, capture_output=True, check=True)
        told = json.loads(done.stdout)
        assert [(one["tenant"], one["changed"]) for one in told["tenants"]] == [("red", changed), ("blue", changed)]
        assert told["changed"] is changed


def test_the_vms_of_a_host_that_is_silent_keep_no_other_from_being_deleted(
    fleet_operator: Operator, fleet: lab.LabFolder
) -> None:
    small = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
    fleet_operator.does("create-tenant", "leaving")
    for name, host in (("a", "sim-001"), ("b", "sim-002"), ("c", "sim-001")):
        fleet_operator.does("create-vm", name, "-t", "leaving", "--host", host, *small)
    would = fleet_operator.does("offboard-tenant", "leaving", "--dry-run").err
    assert [would.count(f"VM {name} on ") + would.count(f"leaving/{name}") for name in "abc"] == [1, 1, 1]
    assert "leaving: 3 objects would be deleted" in would
    assert "disk" not in would
    assert "Delete all of this of leaving?" in fleet_operator.run("offboard-tenant", "leaving").err
    assert "Delete 1 VM?" in fleet_operator.run("delete-vm", "a", "-t", "leaving").err
    leave = ("offboard-tenant", "leaving", "--yes", "--timeout", "0")
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    try:
        refused = fleet_operator.is_refused(*leave)
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    left = [one["vm"]["request"]["name"] for one in fleet_operator.json("list-vms", "-t", "leaving")]
    assert left == ["a", "c"]
    assert (refused["exit_code"], refused["message"].split(";")[0]) == (
        10,
        "1 of 3 VMs of leaving are deleted and 2 are left",
    )
    (why,) = refused["context"]
    assert (why.startswith("sim-001: "), why.endswith("; left: a, c")) == (True, True)
    assert "forget-host" in refused["hint"]
    fleet_operator.does(*leave)
