# SPDX-License-Identifier: Apache-2.0
"""A VM gets another size on its host, or on another one; one that cannot have it runs on as it was."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.xml_reader import read_xml

__all__ = ["operator"]

FLEET = (3, "a40,a40,t4+rtx-3090")
"""Two equal hosts with an A40, and one with a T4 and a card for passthrough."""
NOW = ("--restart", "--shutdown-timeout", "0")
KINDS = {"vf-profile": ("sim-001", "A40-8Q", "A40-12Q"), "mdev": ("sim-003", "T4-2Q", "T4-8Q")}


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    """Every test ends with nothing to repair, and the machines are then as they were."""
    before = fleet_witness.state()
    yield
    assert operator.json("repair") == []
    assert operator.json("list-reservations") == []
    operator.delete_all_vms()
    assert fleet_witness.state() == before


def _the_vm(operator: Operator, name: str = "web") -> Any:
    (found,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == name]
    return found


def _domain(operator: Operator, host: str) -> tuple[str | None, str | None, int]:
    """vCPUs, memory in KiB and the count of host devices of the domain."""
    with libvirt_of(operator.inventory, host) as there:
        xml = there.xml("acme.web")
    assert xml is not None
    domain = read_xml(xml)
    return domain.findtext("vcpu"), domain.findtext("memory"), len(domain.findall("devices/hostdev"))


_MDEV = pytest.mark.long(
    "tests/e2e/vm/test_resize_vm.py::test_a_running_vm_gets_its_new_size_and_the_old_share_is_free"
)


@pytest.mark.parametrize("kind", ["vf-profile", pytest.param("mdev", marks=_MDEV)])
def test_a_running_vm_gets_its_new_size_and_the_old_share_is_free(operator: Operator, kind: str) -> None:
    host, old, new = KINDS[kind]
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", old, "--host", host, *SEEDED)
    wanted = ("--vcpus", "2", "--memory", "128MiB", "--gpu", new)
    assert "--restart" in operator.is_refused("resize-vm", "web", *ACME, *wanted, "--dry-run")["hint"]
    planned = operator.json("resize-vm", "web", *ACME, *wanted, "--restart", "--dry-run")
    assert planned["changed"] is False
    assert planned["differences"] == [
        f"gpus: {old} there, {new} wanted", "vcpus: 1 there, 2 wanted", "memory: 96MiB there, 128MiB wanted",
    ]  # fmt: skip
    assert len(planned["steps"]) == 2
    assert _the_vm(operator)["leases"] == made["leases"], "a dry run writes nothing"
    runs = operator.is_refused("resize-vm", "web", *ACME, *wanted)
    assert (runs["reference"], "--restart" in runs["hint"]) == ("state", True)
    resized = operator.json("resize-vm", "web", *ACME, *wanted, "--reason", "more work", *NOW)
    assert (resized["changed"], resized["moves"]) == (True, False)
    after = _the_vm(operator)
    assert (after["vm"]["state"], after["vm"]["uuid"], after["vm"]["problem"]) == ("running", made["vm"]["uuid"], None)
    assert [(one["index"], one["state"], one["share"]["profile"]) for one in after["leases"]] == [(0, "running", new)]
    assert _domain(operator, host) == ("2", str(128 * 1024), 1)
    again = operator.json("resize-vm", "web", *ACME, *wanted, *NOW)
    assert (again["changed"], again["differences"]) == (False, [])
    (told,) = operator.json("list-events", "--kind", "vm-resized", "--limit", "1")
    assert (told["before"]["gpus"], told["after"]["gpus"], told["detail"]) == ([old], [new], "more work")
    assert (told["before"]["vcpus"], told["after"]["memory_mib"]) == (1, 128)


def test_the_same_card_changes_its_size_when_the_vm_is_alone_on_it(operator: Operator) -> None:
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-48Q", "--host", "sim-001", *SEEDED)
    operator.does("resize-vm", "web", *ACME, "--gpu", "A40-8Q", "--gpu", "A40-8Q", *NOW)
    leases = _the_vm(operator)["leases"]
    assert [(one["index"], one["share"]["profile"]) for one in leases] == [(0, "A40-8Q"), (1, "A40-8Q")]
    first = leases[0]["share"]["function"]
    operator.does("resize-vm", "web", *ACME, "--gpu", "A40-8Q", *NOW)
    assert [one["share"]["function"] for one in _the_vm(operator)["leases"]] == [first], (
        "an equal GPU stays where it is"
    )
    operator.does("resize-vm", "web", *ACME, "--gpu", "none", *NOW)
    assert _the_vm(operator)["leases"] == []
    assert _domain(operator, "sim-001") == ("1", str(96 * 1024), 0)


_RELEASED = pytest.mark.long("tests/e2e/vm/test_resize_vm.py::test_a_stopped_vm_is_resized_and_stays_stopped")


@pytest.mark.parametrize("hold", ["keep", pytest.param("release", marks=_RELEASED)])
def test_a_stopped_vm_is_resized_and_stays_stopped(operator: Operator, hold: str) -> None:
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0", "--hold", hold)
    operator.does("resize-vm", "web", *ACME, "--gpu", "A40-24Q", "--vcpus", "2")
    operator.does("list-gpus", "--refresh")
    after = _the_vm(operator)
    kept = [(one["state"], one["share"]["profile"]) for one in after["leases"]]
    assert (after["vm"]["state"], kept) == ("stopped", [("built", "A40-24Q")] if hold == "keep" else [])
    assert [one["state"] for one in after["shares"]] == (["free"] if hold == "keep" else []), "it is made"
    operator.does("start-vm", "web", *ACME)
    assert [one["share"]["profile"] for one in _the_vm(operator)["leases"]] == ["A40-24Q"]
    assert _domain(operator, "sim-001")[0] == "2"


@pytest.mark.long(
    "tests/e2e/vm/test_attach_gpu.py::test_a_gpu_that_never_came_leaves_at_once_and_bad_asks_are_refused",
    "tests/e2e/vm/test_resize_vm.py::test_the_difference_counts_in_the_quota_and_use_is_counted_by_profile",
)
def test_a_type_that_the_card_cannot_take_now_is_refused_in_words_and_the_vm_runs_on(operator: Operator) -> None:
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
    operator.does("create-vm", "other", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
    before = _the_vm(operator)
    refused = operator.is_refused("resize-vm", "web", *ACME, "--gpu", "A40-12Q", *NOW)
    assert refused["reference"] == "no-capacity"
    assert "8 GiB" in " ".join(refused["context"]) or "A40-8Q" in " ".join(refused["context"]), refused
    assert "--move" in refused["hint"]
    assert _the_vm(operator)["leases"] == before["leases"]
    pinned = operator.is_refused("resize-vm", "web", *ACME, "--gpu", "A40-12Q", "--move", *NOW)
    assert "created for host sim-001" in pinned["message"]


def test_a_vm_that_its_host_has_no_room_for_is_resized_on_another(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    operator.does("create-vm", "other", *ACME, "--gpu", "A40-8Q", "--host", made["vm"]["host"], *SEEDED)
    resized = operator.json("resize-vm", "web", *ACME, "--gpu", "A40-48Q", "--vcpus", "2", "--move", *NOW)
    assert (resized["moves"], resized["storage"]) == (True, "copied")
    after = _the_vm(operator)
    assert after["vm"]["host"] == resized["after"]["host"] != made["vm"]["host"]
    assert (after["vm"]["state"], after["vm"]["request"]["vcpus"]) == ("running", 2)
    assert [one["share"]["profile"] for one in after["leases"]] == ["A40-48Q"]


def test_the_difference_counts_in_the_quota_and_use_is_counted_by_profile(operator: Operator) -> None:
    operator.does("set-quota", "acme", "vcpus=2", "framebuffer=12GiB")
    try:
        (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
        for wanted in (("--vcpus", "3"), ("--gpu", "A40-24Q")):
            assert operator.is_refused("resize-vm", "web", *ACME, *wanted, *NOW)["reference"] == "quota-exceeded"
        operator.does("resize-vm", "web", *ACME, "--vcpus", "2", "--gpu", "A40-12Q", *NOW)
        counted = operator.json("show-usage", "--tenant", "acme", "--intervals")["intervals"]
        own = [one for one in counted if one["vm_uuid"] == made["vm"]["uuid"]]
        assert [(one["profile"], one["ended_at"] is None) for one in own] == [("A40-8Q", False), ("A40-12Q", True)]
    finally:
        operator.does("set-quota", "acme", "vcpus=none", "framebuffer=none")


def test_the_longest_halt_of_a_live_move_changes_while_the_vm_runs(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "acme.yml"
    body = "version: 1\ntenant: acme\nvms: [{name: web, gpus: [A40-8Q], memory: 96MiB, network: none, "
    body += "disk: {size: 64MiB}, cloud_init: {hostname: h}, vcpus: 1}]\nmax_downtime: "
    file.write_text(f"{body}2s\n")
    operator.does("onboard", str(file))
    before, stopped = _the_vm(operator), operator.json("list-events", "--kind", "vm-stopped")
    file.write_text(f"{body}1m30s\n")
    hint = "vgpuctl resize-vm acme/web --max-downtime 90s"
    assert hint in operator.run("onboard", str(file)).err
    flags = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    assert operator.is_refused(*flags, "--max-downtime", "90s")["hint"] == f"resize it: {hint}"
    limit = ("resize-vm", "web", *ACME, "--max-downtime")
    planned = operator.json(*limit, "90s", "--dry-run")
    assert (planned["changed"], planned["after"]["max_downtime_s"], planned["notes"]) == (False, 90, [])
    resized = operator.json(*limit, "90s", "--reason", "a slower link")
    assert (resized["changed"], resized["differences"]) == (True, ["max_downtime: 2s there, 1m30s wanted"])
    assert operator.json(*limit, "90s")["changed"] is False
    after = _the_vm(operator)
    request = before["vm"]["request"] | {"max_downtime_s": 90}
    assert after == before | {"vm": before["vm"] | {"request": request}}
    operator.does("onboard", str(file))
    file.write_text(body.removesuffix("max_downtime: ").replace("96MiB", "128MiB"))
    silent = operator.is_refused("onboard", str(file))["hint"]
    assert silent == (
        "resize it: vgpuctl resize-vm acme/web --memory 128MiB; write `max_downtime: 90s` to keep that limit,"
        " or lift it: vgpuctl resize-vm acme/web --max-downtime none; then run the same command again"
    )
    assert operator.json("list-events", "--kind", "vm-stopped") == stopped
    (told,) = operator.json("list-events", "--kind", "vm-resized", "--limit", "1")
    assert (told["before"]["max_downtime_s"], told["after"]["max_downtime_s"]) == (2, 90)
    lifted = operator.json(*limit, "none", "--memory", "128MiB", *NOW)
    assert lifted["differences"] == ["memory: 96MiB there, 128MiB wanted", "max_downtime: 1m30s there, none wanted"]
    assert _the_vm(operator)["vm"]["request"]["max_downtime_s"] is None
    assert operator.is_refused(*limit, "soon")["exit_code"] == 2


def test_a_gang_is_refused_and_create_vm_with_the_new_values_says_no_change(operator: Operator, tmp_path: Path) -> None:
    operator.does("create-vm", "job", *ACME, "--gpu", "A40-8Q", "--count", "2", "--gang", *SEEDED)
    refused = operator.is_refused("resize-vm", "job-1", *ACME, "--vcpus", "2", *NOW)
    assert "gang" in refused["message"]
    operator.does("create-vm", "web", *ACME, "--gpu", "T4-2Q", *SEEDED)
    operator.does("resize-vm", "web", *ACME, "--vcpus", "2", *NOW)
    old = tmp_path / "web.yml"
    body = "name: web\ntenant: acme\ngpus: [T4-2Q]\nmemory: 96MiB\nnetwork: none\n"
    body += "disk: {size: 64MiB}\ncloud_init: {hostname: h}\nvcpus: "
    old.write_text(f"{body}2\n")
    (same,) = operator.json("create-vm", "-f", str(old))
    assert same["changed"] is False
    for added, hint in (
        ("nics: [default]", "change it with `vgpuctl attach-nic` and `detach-nic`"),
        ("data_disks: [{name: a, size: 1GiB}]\nos: debian-12", "change it with `vgpuctl attach-disk`, `detach-disk`"),
    ):
        old.write_text(f"{body}2\n{added}\n")
        assert hint in operator.is_refused("create-vm", "-f", str(old))["hint"]
    old.write_text(f"{body}1\n")
    differs = operator.is_refused("create-vm", "-f", str(old))
    assert differs["context"] == ["vcpus: 2 there, 1 wanted"]
    assert differs["hint"] == "resize it: vgpuctl resize-vm acme/web --vcpus 1"
    for flags, hint in (
        (("--gpu", "T4-4Q"), "resize it: vgpuctl resize-vm acme/web --gpu T4-4Q"),
        (("--vcpus", "1"), "resize it: vgpuctl resize-vm acme/web --vcpus 1"),
        ((), "give the options that it was created with, or choose another name"),
    ):
        assert operator.is_refused("create-vm", "web", *ACME, *flags)["hint"] == hint, "nobody named the memory"
