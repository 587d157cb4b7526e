# SPDX-License-Identifier: Apache-2.0
"""One name for one thing at every command: read in any form, refused with near names when nobody knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("list-gpus", "--refresh")
    fleet_operator.does("create-tenant", "acme")
    yield fleet_operator
    fleet_operator.does("offboard-tenant", "acme", "--yes", "--timeout", "0")


def _file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def _quotas(operator: Operator) -> dict[str, int]:
    (found,) = [one for one in operator.json("list-tenants") if one["tenant"] == "acme"]
    return {one["resource"]: one["limit"] for one in found["quotas"]}


@pytest.mark.parametrize("name", ["A40-81Q", "NVIDIA A40-81q", "a40-81Q"])
def test_a_name_that_nobody_knows_is_refused_at_every_command(operator: Operator, tmp_path: Path, name: str) -> None:
    vms = _file(tmp_path, "vms.yml", f"vms: [{{name: web-1, gpus: ['{name}']}}]\n")
    tenant = _file(tmp_path, "acme.yml", f"version: 1\ntenant: acme\nguaranteed: {{'shares:{name}': 1}}\n")
    nodes = _file(
        tmp_path,
        "nodes.yml",
        f"version: 1\ntenant: acme\nnode_pools: [{{name: n, role: slurm, max: 1, vm: {{gpus: ['{name}']}}}}]\n",
    )
    of_acme, period = ("--tenant", "acme"), ("--from", "2031-01-01", "--until", "2031-01-02")
    commands = [
        ("set-quota", "acme", f"shares:{name}=3"),
        ("set-quota", "acme", "--guaranteed", f"shares:{name}=3"),
        ("set-quota", "acme", f"shares:{name}=3", "--dry-run"),
        ("create-tenant", "other", "--quota", f"shares:{name}=3"),
        ("onboard", tenant),
        ("onboard", tenant, "--dry-run"),
        ("onboard", nodes),
        ("create-vm", "web-1", *of_acme, "--gpu", name, *SMALL),
        ("create-vm", "web-1", *of_acme, "--gpu", name, *SMALL, "--queue"),
        ("create-vm", "-f", vms, *of_acme, "--dry-run"),
        ("explain-vm", "web-1", "--gpu", name),
        ("capacity", "--gpu", f"2*{name}"),
        ("reserve", "r", *of_acme, "--gpu", name, *period),
        ("create-node-pool", "acme/n", "--role", "slurm", "--max", "1", "--gpu", name),
        ("show-usage", "--profile", name),
        ("export", "proxmox", "--profile", name),
    ]
    for command in commands:
        refused = operator.is_refused(*command)
        assert refused["reference"] in ("usage", "inventory"), command
        assert "did you mean" in str(refused["hint"]), (command, refused)
        assert "A40-8Q" in str(refused["hint"]), (command, refused)
    assert _quotas(operator) == {}
    assert "other" not in {one["tenant"] for one in operator.json("list-tenants")}


def test_a_type_is_the_same_in_every_form(operator: Operator, tmp_path: Path) -> None:
    operator.does("set-quota", "acme", "shares:NVIDIA a40-8q=1", "--guaranteed", "shares:a40-8Q=1")
    assert _quotas(operator) == {"shares:A40-8Q": 1}
    assert (
        operator.json("capacity", "--gpu", "nvidia a40-8q")["now"]
        == operator.json("capacity", "--gpu", "A40-8Q")["now"]
    )
    operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "a40-8q", *SMALL)
    assert not operator.json("create-vm", "web-1", "--tenant", "acme", "--gpu", "NVIDIA A40-8Q", *SMALL)[0]["changed"]
    refused = operator.is_refused("create-vm", "web-2", "--tenant", "acme", "--gpu", "GRID A40-8q", *SMALL)
    assert refused["context"] == ["shares:A40-8Q: 1 of 1 used, 1 asked"]
    assert [one["profile"] for one in operator.json("show-usage", "--profile", "a40-8q")["usage"]] == ["A40-8Q"]
    file = _file(tmp_path, "acme.yml", "version: 1\ntenant: acme\nquotas: {'shares:NVIDIA A40-8q': 1}\n")
    (quota,) = [one for one in operator.json("onboard", file, "--dry-run")["objects"] if one["kind"] == "quota"]
    assert (quota["name"], quota["outcome"]) == ("shares:A40-8Q", "unchanged")


def test_a_quota_below_todays_use_says_so(operator: Operator, tmp_path: Path) -> None:
    told = operator.does("set-quota", "acme", "vms=0", "--dry-run")
    assert "warning: tenant acme uses 1 of vms, more than 0" in told.err
    told = operator.does("set-quota", "acme", "vms=0", "framebuffer=4GiB", "vcpus=1")
    assert "acme uses 1 of vms, more than 0" in told.err
    assert "acme uses 8 GiB of framebuffer, more than 4 GiB" in told.err
    assert "vcpus" not in told.err
    file = _file(tmp_path, "acme.yml", "version: 1\ntenant: acme\nquotas: {memory: 64MiB}\n")
    assert "acme uses 96 MiB of memory, more than 64 MiB" in operator.does("onboard", file).err
    operator.does("set-quota", "acme", "vms=none", "framebuffer=none", "vcpus=none", "memory=none")


def test_a_size_without_a_unit_is_refused_with_both_readings(operator: Operator, tmp_path: Path) -> None:
    for command in (("set-quota", "acme", "memory=8"), ("create-tenant", "new", "--quota", "framebuffer=8")):
        refused = operator.is_refused(*command)
        assert refused["hint"] == "write 8MiB or 8GiB"
    file = _file(tmp_path, "acme.yml", "version: 1\ntenant: acme\nquotas:\n  memory: 8\n")
    refused = operator.is_refused("onboard", file)
    assert f"{file}:4" in refused["message"]
    assert refused["hint"] == "write 8MiB or 8GiB"
