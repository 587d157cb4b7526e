# SPDX-License-Identifier: Apache-2.0
"""explain-vm and capacity as an operator meets them, on simulated hosts."""

from collections import Counter
from collections.abc import Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
VM = ("--tenant", "explained", "--gpu", "A40-8Q", *SMALL)
COUNT = ("capacity", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("list-gpus", "--refresh")
    fleet_operator.does("create-tenant", "explained")
    yield fleet_operator
    delete_all(fleet_operator)


def delete_all(operator: Operator) -> None:
    """Delete every VM of the tenant."""
    operator.does("delete-vm", "--all", "--tenant", "explained", "--yes", "--timeout", "0")


def test_a_vm_goes_where_it_was_explained_to_go_and_counts(operator: Operator) -> None:
    before = operator.json(*COUNT)["now"]
    (explained,) = operator.json("explain-vm", "web-1", *VM)
    assert explained["fits"]
    assert explained["vm"] is None
    assert {one["code"] for one in explained["answers"]} >= {None, "no-such-type"}
    operator.does("create-vm", "web-1", *VM)
    (there,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "web-1"]
    assert there["vm"]["host"] == explained["placement"]["host"]
    assert operator.json(*COUNT)["now"] == before - 1
    again = operator.json(*COUNT, "--after-defrag")
    assert again["after_defrag"] >= again["now"] == sum(one["now"] for one in again["hosts"])
    (itself,) = operator.json("explain-vm", "web-1", "--tenant", "explained")
    assert itself["vm"]["host"] == itself["placement"]["host"]
    assert "takes it" in operator.does("explain-vm", "web-1", "--tenant", "explained").out
    assert "more fit" in operator.does(*COUNT, "--after-defrag").out


def test_what_fits_nowhere_is_told_what_would_help(operator: Operator) -> None:
    (explained,) = operator.json("explain-vm", "big", *VM, "--memory", "4000GiB", "--require-label", "rack=r1")
    assert not explained["fits"]
    (explained,) = operator.json("explain-vm", "big", *VM, "--memory", "4000GiB")
    assert explained["changes"][0]["text"].startswith("it wanted at most")
    assert "it would fit on" in operator.does("explain-vm", "big", *VM, "--memory", "4000GiB").out
    assert operator.is_refused("explain-vm", "nobody", "--tenant", "explained")["reference"] == "not-found"
    assert operator.is_refused("capacity", "--gpu", "A40-8Q,")["exit_code"] == 2


def test_a_refusal_reads_only_hosts_that_could_change_it(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "early", *VM)
    taken = made["vm"]["host"]
    operator.does("list-gpus", "--refresh")
    wanted = ("create-vm", "late", "--tenant", "explained", "--gpu", "A40-48Q", *SMALL, "--host", taken)

    def read_for_refusal(*options: str) -> list[str]:
        done = operator.run(*wanted, *options)
        assert done.code == 5, done
        return [line for line in done.err.splitlines() if line.startswith("reading ")]

    assert read_for_refusal() == [f"reading 1 host: {taken}"]
    (once,) = read_for_refusal("--refresh")
    assert once.startswith("reading 4 hosts: ")
    assert read_for_refusal("--require-label", "rack=r9") == []
    operator.does("cordon-host", taken, "--reason", "late")
    assert read_for_refusal() == []
    operator.does("uncordon-host", taken)
    waits = operator.does(*wanted, "--count", "3", "--queue").err
    assert [line for line in waits.splitlines() if line.startswith("reading ")] == [f"reading 1 host: {taken}"]
    for number in (1, 2, 3):
        operator.does("leave-queue", f"late-{number}", "--tenant", "explained", "--yes")


def test_least_utilised_looks_at_what_the_host_measured(operator: Operator) -> None:
    operator.does("create-vm", "busy", *VM)
    operator.does("list-gpus", "--refresh")
    (there,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "busy"]
    used = (there["vm"]["host"], there["leases"][0]["share"]["gpu"])
    facts = operator.json("inspect-host", used[0])
    measured = {gpu["address"]: gpu["utilisation_percent"] for gpu in facts["gpus"]}
    assert measured[used[1]] >= 10
    (kept,) = operator.json("explain-vm", "next", *VM)
    assert (kept["placement"]["host"], kept["placement"]["shares"][0]["gpu"]) == used
    (idle,) = operator.json("explain-vm", "next", *VM, "--policy", "least-utilised")
    assert (idle["placement"]["host"], idle["placement"]["shares"][0]["gpu"]) != used


def test_vms_placed_between_two_readings_go_to_different_cards(operator: Operator) -> None:
    delete_all(operator)
    operator.does("list-gpus", "--refresh")
    options = (*VM, "--policy", "least-utilised")
    created = operator.json("create-vm", "spread", *options, "--count", "4")
    cards = [(one["vm"]["host"], one["leases"][0]["share"]["gpu"]) for one in created]
    assert sorted(Counter(cards).values()) == [2, 2]
    (explained,) = operator.json("explain-vm", "next", *options)
    added = {(one["host"], one["gpu"]): one["added_percent"] for one in explained["loads"]}
    assert {card: percent for card, percent in added.items() if percent} == dict.fromkeys(cards, 33)
    assert "and 33 % of shares that came later" in operator.does("explain-vm", "next", *options).out


def test_a_vm_in_huge_pages_goes_where_they_are_free(operator: Operator, fleet: lab.LabFolder) -> None:
    machine = MachineFolder(simulated_folder(fleet).host("sim-002"))
    with machine.change() as state:
        state.hugepages["2048"] = 96
    paged = (*VM, "--memory", "128MiB", "--hugepages", "2MiB")
    try:
        operator.does("list-gpus", "--refresh")
        (created,) = operator.json("create-vm", "paged", *paged)
        assert created["vm"]["host"] == "sim-002"
        assert "<page size='2048' unit='KiB'/>" in created["xml"]
        assert machine.state().used_pages("2048") == 64
        assert "128 MiB in huge pages of 2 MiB" in operator.does("show-vm", "paged", "--tenant", "explained").out
        refused = operator.is_refused("create-vm", "second", *paged)
        assert any("(host-hugepages)" in line for line in refused["context"]), refused
        (explained,) = operator.json("explain-vm", "second", *paged)
        assert "sim-002 had 32 more huge pages of 2 MiB" in [one["text"] for one in explained["changes"]]
        operator.does("delete-vm", "paged", "--tenant", "explained", "--yes", "--timeout", "0")
        assert machine.state().used_pages("2048") == 0
    finally:
        with machine.change() as state:
            state.hugepages.clear()


@pytest.mark.parametrize(
    "named",
    [
        ("--base-image", "nosuch"),
        ("--iso", "nosuch"),
        ("--kernel", "nosuch"),
        ("--licence-pool", "nosuch"),
        ("--security-group", "nosuch", "--network", "default"),
        ("--host", "nosuch"),
    ],
)
def test_what_the_store_does_not_know_is_refused_by_questions_as_by_the_run(
    operator: Operator, named: tuple[str, ...]
) -> None:
    words = ("--tenant", "explained", "--gpu", "A40-8Q", *SMALL, *named)
    said = [
        operator.is_refused(*command, *words, *more)["message"].replace("VM any ", "VM x ")
        for command, more in ((("capacity",), ()), (("explain-vm", "x"), ()), (("create-vm", "x"), ("--dry-run",)))
    ]
    assert said[0] == said[1] == said[2], said
    assert operator.run("create-vm", "x", *words).code != 0


def test_what_only_a_host_can_tell_is_said(operator: Operator) -> None:
    words = ("--gpu", "A40-8Q", *SMALL[:4], "--network", "elsewhere", "--disk", "1GiB", "--storage-pool", "fast")
    (explained,) = operator.json("explain-vm", "x", "--tenant", "explained", *words)
    counted = operator.json("capacity", *words)
    assert explained["not_looked_at"] == counted["not_looked_at"] == ["network elsewhere", "storage pool fast"]
    operator.does("create-vm", "there", "--tenant", "explained", "--gpu", "A40-8Q", *SMALL[:4], "--network", "default")
    (itself,) = operator.json("explain-vm", "there", "--tenant", "explained")
    assert itself["not_looked_at"] == ["network default"]
    assert "not looked at: whether the hosts have network elsewhere" in operator.does("capacity", *words).err


def test_a_type_that_nobody_knows_is_named_with_near_ones(operator: Operator) -> None:
    for command in (("capacity",), ("explain-vm", "web", "--tenant", "explained")):
        refused = operator.is_refused(*command, "--gpu", "A40-9Q")
        assert (refused["reference"], "'A40-9Q'" in refused["message"]) == ("usage", True), refused
        assert "did you mean" in refused["hint"]


def test_a_question_needs_neither_name_nor_tenant(operator: Operator) -> None:
    (explained,) = operator.json("explain-vm", "--gpu", "A40-8Q", *SMALL)
    assert explained["fits"] and explained["request"]["tenant"] == "" and not explained["is_quota_checked"]
    (with_tenant,) = operator.json("explain-vm", *VM)
    assert with_tenant["is_quota_checked"] and with_tenant["placement"] == explained["placement"]
    said = operator.does("explain-vm", "--gpu", "A40-8Q", *SMALL).out
    assert said.startswith("VM      any of no tenant: A40-8Q, ") and "quota   not checked, since no tenant" in said
    operator.does("set-quota", "explained", "vms=0")
    assert "vms" in operator.json("explain-vm", *VM)[0]["quota"]
    assert operator.json("explain-vm", "--gpu", "A40-8Q", *SMALL)[0]["fits"], "nobody's quota is asked"
    operator.does("set-quota", "explained", "vms=none")
    operator.does("create-host-pool", "closed", "--hosts", "all")
    assert not operator.json("explain-vm", *VM)[0]["fits"]
    assert operator.json("explain-vm", "--gpu", "A40-8Q", *SMALL)[0]["fits"], "hosts of every pool count"
    operator.does("delete-host-pool", "closed", "--yes")
    refused = operator.is_refused("explain-vm")
    assert (refused["exit_code"], refused["message"]) == (2, "no VM is described")
    assert operator.is_refused("explain-vm", "web-9")["exit_code"] == 2, "a name alone is of a VM that exists"
    assert "no tenant, so hosts of every pool count; quotas are not checked" in operator.does(*COUNT).err


def test_the_verdict_is_one_and_capacity_asks_the_same_quota(operator: Operator) -> None:
    of_tenant = (*COUNT, "--tenant", "explained")
    whole = operator.json(*of_tenant)
    assert whole["now"] == whole["hosts_take"] > 2 and whole["quota"] == {}
    operator.does("create-vm", "one", *VM)
    operator.does("set-quota", "explained", "shares:A40-8Q=0")
    try:
        (explained,) = operator.json("explain-vm", *VM)
        said = operator.does("explain-vm", *VM).out
        assert not explained["fits"] and explained["placement"]["host"]
        assert "fits    nowhere: refused by quota" in said and "room    sim-" in said and "fits    sim-" not in said
        counted = operator.json(*of_tenant)
        assert (counted["now"], counted["quota"]["shares:A40-8Q"]) == (0, 0)
        done = operator.does(*of_tenant)
        assert f"0 more fit; the hosts have room for {whole['hosts_take'] - 1}" in done.out
        assert "shares:A40-8Q allows 0 more" in done.err
        assert operator.json(*COUNT)["now"] == whole["hosts_take"] - 1, "nobody's quota is asked"
    finally:
        operator.does("set-quota", "explained", "shares:A40-8Q=none")
        operator.does("delete-vm", "one", "--tenant", "explained", "--yes", "--timeout", "0")


def test_a_queued_vm_is_explained_by_its_name(operator: Operator) -> None:
    queued = ("create-vm", "late", "--tenant", "explained", "--gpu", "A40-8Q", *SMALL, "--require-label", "rack=none")
    operator.does(*queued, "--queue")
    (explained,) = operator.json("explain-vm", "late", "--tenant", "explained")
    assert (explained["vm"], explained["fits"], explained["queued"]["kind"]) == (None, False, "create")
    assert explained["request"]["constraints"]["required"] == [["rack", "none"]]
    said = operator.does("explain-vm", "late", "--tenant", "explained").out
    assert "queue   waits since " in said
    operator.does("leave-queue", "late", "--tenant", "explained", "--yes")
    assert operator.is_refused("explain-vm", "late", "--tenant", "explained")["reference"] == "not-found"


def test_capacity_describes_a_vm_as_create_vm_does(operator: Operator) -> None:
    of_vgpu = ("--display", "vnc", "--vgpu-display", "on")
    plain, shown = operator.json(*COUNT)["now"], operator.json(*COUNT, *of_vgpu)["now"]
    fits = operator.json("explain-vm", "--gpu", "A40-8Q", *SMALL, *of_vgpu)[0]["fits"]
    assert plain > 0 and (shown > 0) == fits
    assert operator.json(*COUNT, "--host", "sim-001")["now"] < plain
    assert operator.json(*COUNT, "--require-label", "rack=nowhere")["now"] == 0


def test_a_vm_without_a_disk_is_told_which_host_has_room(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "bare", *VM)
    host = made["vm"]["host"]
    operator.does("stop-vm", "bare", "--tenant", "explained", "--hold", "release", "--timeout", "0")
    names: list[str] = []
    while len(names) < 20 and operator.run("create-vm", f"fill-{len(names)}", *VM, "--host", host).code == 0:
        names.append(f"fill-{len(names)}")
    refused = operator.is_refused("start-vm", "bare", "--tenant", "explained")
    assert f"{host}, where it ran last, and which has no disk of it, has no room" in refused["message"]
    way = refused["hint"].partition("`vgpuctl ")[2].partition("`")[0].split()
    assert way[:2] == ["move-vm", "bare"]
    operator.does(*way)
    operator.does("start-vm", "bare", "--tenant", "explained")


_LIBVIRT = pytest.mark.long(
    "tests/e2e/placement/test_explain_vm.py::test_a_host_that_is_known_not_to_answer_takes_nothing"
)


@pytest.mark.parametrize(
    ("kind", "reason"), [("sshd", "it is unreachable"), pytest.param("libvirtd", "its libvirt", marks=_LIBVIRT)]
)
def test_a_host_that_is_known_not_to_answer_takes_nothing(
    operator: Operator, fleet: lab.LabFolder, kind: str, reason: str
) -> None:
    counted = {one["host"]: one["now"] for one in operator.json(*COUNT)["hosts"]}
    name = max(counted, key=lambda one: counted[one])
    lab.faults.begin(name, kind, folder=fleet)
    try:
        operator.run("list-hosts", "--limit", name)
        found = operator.json(*COUNT)
        assert name not in {one["host"] for one in found["hosts"]}
        assert found["now"] == sum(counted.values()) - counted[name]
        (explained,) = operator.json("explain-vm", "next", *VM, "--host", name)
        (answer,) = [one for one in explained["answers"] if one["host"] == name]
        assert not explained["fits"]
        assert (answer["gpu"], answer["code"]) == (None, "host-silent") and answer["reason"].startswith(reason)
        assert "fits    nowhere" in operator.run("explain-vm", "next", *VM, "--host", name).out
    finally:
        lab.faults.clear(name, folder=fleet)
    operator.does("list-hosts", "--limit", name)
    assert {one["host"]: one["now"] for one in operator.json(*COUNT)["hosts"]} == counted


@pytest.mark.long(
    "tests/e2e/placement/test_defrag.py::test_a_plan_asks_its_hosts_and_is_made_live",
    "tests/unit/scheduler/defrag/test_fleet_plans.py::test_each_step_is_a_place_of_the_scheduler_after_those_before_it",
)
def test_a_plan_of_moves_makes_the_room_that_it_says_step_by_step(operator: Operator) -> None:
    delete_all(operator)
    for number in (1, 2, 3):
        operator.does("create-vm", f"apart-{number}", *VM, "--policy", "spread")
    before = {one["vm"]["request"]["name"]: one["vm"]["host"] for one in operator.json("list-vms")}
    now = operator.json("capacity", "--gpu", "A40-48Q")["now"]
    found = operator.json("defrag", "--for", "A40-48Q", "--count", str(now + 1))
    assert (found["plan"]["before"], found["plan"]["after"]) == (now, now + 1)
    assert found["optimal"]
    assert [one["way"] for one in found["plan"]["steps"]] == ["cold"] * found["plan"]["fewest_moves"]
    text = operator.does("defrag", "--for", "A40-48Q", "--count", str(now + 1)).out
    assert f"{now} now, {now + 1} after 1 move" in text
    assert "proven: no plan makes as much room with fewer moves" in text
    assert before == {one["vm"]["request"]["name"]: one["vm"]["host"] for one in operator.json("list-vms")}
    for step in found["plan"]["steps"]:
        operator.does("move-vm", step["name"], "--to", step["placement"]["host"], "--yes", "--shutdown-timeout", "0")
    assert operator.json("capacity", "--gpu", "A40-48Q")["now"] == now + 1


def test_a_plan_keeps_its_limits_and_says_who_stays(operator: Operator) -> None:
    delete_all(operator)
    operator.does("create-vm", "stays", *VM)
    everything = operator.json("defrag")
    assert everything["plan"]["after"] == everything["plan"]["most"] or not everything["optimal"]
    none = operator.json("defrag", "--max-moves", "0")
    assert none["plan"]["steps"] == []
    assert none["plan"]["after"] == none["plan"]["before"]
    operator.does("create-tenant", "still")
    held = operator.json("defrag", "-t", "still")
    assert not held["plan"]["steps"]
    assert {one["reason"] for one in held["staying"]} == {"only VMs of tenant still may move"}
    assert operator.is_refused("defrag", "--for", "A40-9Q")["exit_code"] == 2
    assert operator.is_refused("defrag", "-t", "nobody")["reference"] == "not-found"
