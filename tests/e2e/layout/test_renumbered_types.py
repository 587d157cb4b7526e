# SPDX-License-Identifier: Apache-2.0
"""A driver update gives vGPU types other ids: a share is promised by the name of its type, on every kind of card."""

import json
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.catalog import short_name
from vgpuctl_lab.simulated.machine import rules
from vgpuctl_lab.simulated.machine.state import MachineFolder

HOST = "sim-001"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
PROFILES, ON_VFS, ON_CARD, MIG = "0000:41:00.0", "0000:43:00.0", "0000:45:00.0", "0000:47:00.0"
KEPT = {"profiles": "A40-24Q", "on-vfs": "A40-12Q", "on-card": "T4-4Q", "mig": "A100-3-20C"}
"""A stopped VM for each way to hand out a vGPU, and its type."""
OLD, NEW = "580.105.06", "590.44.01"
SWAPPED = {"A40-24Q": 563, "A40-12Q": 565, "T4-4Q": 233, "T4-8Q": 232, "A100-3-20C": 475, "A100-2-10C": 476}
"""The ids after the update: each type has another's."""
MIG_LAYOUT = {"match": {"address": MIG}, "kind": "mig-vgpu", "geometry": {"3g.20gb": 1, "2g.10gb": 1}}
VGPU_LAYOUT = {"match": "all", "kind": "vgpu"}


@pytest.fixture
def layouts(tmp_path: Path) -> Iterator[LayoutFleet]:
    """A host with the four kinds of cards, and a stopped VM with a kept share on each."""
    need_simulated()
    fleet = layout_fleet(tmp_path, 1, "a40+a40/mdev-vf+t4+a100-pcie-40gb")
    fleet.declare(sim_001={"gpus": [VGPU_LAYOUT, MIG_LAYOUT]})
    fleet.operator.does("apply-hosts", "--reset")
    fleet.operator.does("create-tenant", "acme")
    for name, gpu in KEPT.items():
        fleet.operator.does("create-vm", name, *ACME, "--gpu", gpu, *SIZE)
        fleet.operator.does("stop-vm", name, *ACME, "--timeout", "0")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def made(machine: MachineFolder) -> dict[str, str]:
    """The names of the types of the vGPUs that the machine has, by card."""
    cards = {card.address: card for card in machine.shape.cards}
    found = {}
    for one in machine.state().vgpus:
        known = cards[one.card].type_of(one.type_id)
        assert known is not None
        found[one.card] = short_name(known.full_name)
    return found


def names(layouts: LayoutFleet) -> dict[str, str]:
    """The names of the types that the host's vGPUs have now, by card."""
    return made(layouts.machine(HOST))


WANTED = dict(zip((PROFILES, ON_VFS, ON_CARD, MIG), KEPT.values(), strict=True))
WRONG = {PROFILES: "A40-12Q", ON_VFS: "A40-24Q", ON_CARD: "T4-8Q", MIG: "A100-2-10C"}
"""What the recorded ids mean after the update."""


def update(layouts: LayoutFleet, **type_ids: int | None) -> None:
    ids = type_ids or SWAPPED
    lab.simulated.update_driver(HOST, NEW, ids, folder=layouts.folder)


def shares_file(layouts: LayoutFleet) -> Path:
    return layouts.machine(HOST).root / "etc/vgpuctl/shares.json"


def without_names(layouts: LayoutFleet) -> None:
    """Bring the list of shares into the form of an earlier vgpuctl."""
    content = json.loads(shares_file(layouts).read_text())
    del content["profiles"]
    shares_file(layouts).write_text(json.dumps(content))


def recorded(layouts: LayoutFleet) -> dict[str, tuple[str, str]]:
    """Name and id of each VM's type, as the store has them."""
    shares = {name: layouts.operator.json("show-vm", name, *ACME)["leases"][0]["share"] for name in KEPT}
    return {name: (one["profile"], one["type_id"].removeprefix("nvidia-")) for name, one in shares.items()}


def findings(layouts: LayoutFleet, check: str) -> tuple[int, list[Any]]:
    done = layouts.operator.run("check-hosts", "--json")
    return done.code, [one for one in json.loads(done.out)[0]["findings"] if one["check"] == check]


NEW_IDS = {name: (gpu, str(SWAPPED[gpu])) for name, gpu in KEPT.items()}


def test_the_unit_makes_every_share_again_by_the_name_of_its_type(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    before = recorded(layouts)
    operator.run("check-hosts", "--snapshot")
    update(layouts)
    assert names(layouts) == WANTED
    assert "A40-24Q is type 563 now, was 565" in (layouts.machine(HOST).root / "var/log/journal.txt").read_text()
    content = json.loads(shares_file(layouts).read_text())
    ids = {one["step"]["type_id"].removeprefix("nvidia-") for one in content["steps"]}
    assert ids == {str(SWAPPED[gpu]) for gpu in KEPT.values()}
    assert sorted(content["profiles"].values()) == sorted(KEPT.values())
    done = operator.run("check-hosts", "--after-reboot", "--json")
    host = json.loads(done.out)[0]
    assert host["findings"] == []
    assert [one["subject"] for one in host["since_reboot"]] == ["nvidia-driver"], host["since_reboot"]
    assert recorded(layouts) == NEW_IDS
    told = [one for one in operator.json("list-events", "--limit", "500") if one["kind"] == "lease-renumbered"]
    assert {one["subject"].removeprefix("acme/") for one in told} == set(KEPT)
    assert {one["before"]["type"].removeprefix("nvidia-") for one in told} == {number for _, number in before.values()}
    again = operator.json("apply-hosts")["hosts"][0]
    assert (again["changed"], again["writes"]) == (0, 0)
    operator.does("start-vm", *KEPT, *ACME)
    assert names(layouts) == WANTED
    operator.does("stop-vm", *KEPT, *ACME, "--timeout", "0", "--hold", "release")
    assert names(layouts) == {}, "a share whose id has changed was not released"


@pytest.mark.parametrize("command", ["repair", "start-vm"])
@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
    "tests/unit/sharing/test_type_names.py::test_a_share_is_built_with_the_id_of_now",
)
def test_without_the_unit_the_next_command_makes_it_by_its_name(command: str, layouts: LayoutFleet) -> None:
    operator = layouts.operator
    shutil.rmtree(layouts.machine(HOST).root / "etc/vgpuctl")
    update(layouts)
    operator.does("apply-hosts", "--no-boot")
    assert names(layouts) == {}
    operator.does(*(("repair",) if command == "repair" else ("start-vm", *KEPT, *ACME)))
    assert names(layouts) == WANTED
    assert recorded(layouts) == NEW_IDS


def test_a_share_of_another_type_is_never_held_or_healthy(layouts: LayoutFleet) -> None:
    """The list of an earlier vgpuctl has ids alone, and the unit has made the devices by them."""
    operator = layouts.operator
    without_names(layouts)
    update(layouts)
    assert names(layouts) == WRONG
    code, found = findings(layouts, "vgpu-type")
    assert code == 1 and {one["severity"] for one in found} == {"error"}
    read = {one["subject"]: one["read"] for one in found}
    assert read.keys() == WANTED.keys()
    assert "carries A40-12Q (type 565) now, not A40-24Q, which VM profiles of acme was promised" in read[PROFILES]
    assert "carries T4-8Q (type nvidia-232) now, not T4-4Q" in read[ON_CARD]
    listed = operator.json("list-vms", "--refresh")
    assert {one["name"] for one in listed if "lost" in [share["state"] for share in one["shares"]]} == set(KEPT)
    for name, gpu in KEPT.items():
        message = operator.is_refused("start-vm", name, *ACME)["message"]
        assert f"which is not the VM's {gpu}; if it is nobody's: write " in message
    assert operator.json("gc", "--dry-run", "--kind", "vgpu") == []
    done = operator.run("repair", "--json")
    assert done.code == 10 and all("now, which is not the VM's" in one["outcome"] for one in json.loads(done.out))
    operator.does("apply-hosts")
    content = json.loads(shares_file(layouts).read_text())
    assert sorted(content["profiles"].values()) == sorted(KEPT.values()), "the wrong type must not become the promise"
    with layouts.machine(HOST).change() as state:
        state.vgpus = []
    operator.does("repair")
    assert names(layouts) == WANTED
    assert findings(layouts, "vgpu-type")[1] == []


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
    "tests/unit/planner/doctor/test_checks.py::test_a_share_is_compared_with_its_promise_by_the_name_of_its_type",
)
def test_a_guest_that_runs_on_another_type_is_found(layouts: LayoutFleet) -> None:
    """An earlier vgpuctl started it; QEMU holds the device, and it is not what was promised."""
    operator, machine = layouts.operator, layouts.machine(HOST)
    operator.does("start-vm", *KEPT, *ACME)
    swapped = {card: int(str(SWAPPED[gpu])) for card, gpu in WANTED.items()}
    with machine.change() as state:
        for one in state.vgpus:
            one.type_id = swapped[one.card]
    code, found = findings(layouts, "vgpu-type")
    assert code == 1 and len(found) == len(KEPT)
    listed = operator.json("list-vms", "--refresh")
    assert all(share["state"] == "lost" for one in listed for share in one["shares"])


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
    "tests/unit/planner/doctor/test_checks.py::test_a_list_of_shares_at_boot_without_names_is_a_warning",
)
def test_a_list_without_names_is_told_and_written_again(layouts: LayoutFleet) -> None:
    without_names(layouts)
    code, (found,) = findings(layouts, "boot-contract")
    assert (code, found["severity"]) == (1, "warning")
    assert "by its id alone" in found["read"] and "`vgpuctl apply-hosts` writes the names" in found["fix"]
    lab.simulated.reboot(HOST, folder=layouts.folder)
    assert names(layouts) == WANTED, "the id decides where nothing else is known"
    assert layouts.operator.json("apply-hosts")["hosts"][0]["changed"] == 1
    assert findings(layouts, "boot-contract") == (0, [])


@pytest.mark.long(
    "tests/unit/sharing/test_type_names.py::test_a_type_that_is_gone_is_named_with_its_former_id",
    "tests/unit/planner/doctor/test_checks.py::test_a_share_is_compared_with_its_promise_by_the_name_of_its_type",
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
)
def test_a_type_that_the_driver_no_longer_has_is_refused_by_name_and_id(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    update(layouts, **{"A40-24Q": None, "A40-12Q": 565, "T4-4Q": None, "T4-8Q": 232, "A100-3-20C": None})
    assert names(layouts) == {ON_VFS: "A40-12Q"}
    journal = (layouts.machine(HOST).root / "var/log/journal.txt").read_text()
    assert "type 565 of 0000:41:00.4 is A40-12Q now, not A40-24Q, which the driver does not offer there" in journal
    code, found = findings(layouts, "vgpu-type")
    assert code == 1
    assert {one["subject"] for one in found} == {PROFILES, ON_CARD, MIG}
    refused = operator.is_refused("start-vm", "profiles", *ACME)
    assert f"the driver of GPU {PROFILES} has no type A40-24Q now; its id 565 is A40-12Q now" in refused["message"]
    assert "has no type A100-3-20C now; it was type 476" in operator.is_refused("start-vm", "mig", *ACME)["message"]
    done = operator.run("repair", "--json")
    outcomes = {one["subject"]: one["outcome"] for one in json.loads(done.out)}
    assert done.code == 10 and "has no type T4-4Q now; its id nvidia-232 is T4-8Q now" in outcomes["acme/on-card"]
    operator.does("resize-vm", "profiles", *ACME, "--gpu", "A40-12Q")
    operator.does("start-vm", "profiles", *ACME)
    assert recorded(layouts)["profiles"] == ("A40-12Q", "565")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LayoutFleet]:
    """Two hosts with an A40 each, whose drivers number the types in two ways; the first one's facts are cached."""
    need_simulated()
    fleet = layout_fleet(tmp_path, 2, "a40")
    fleet.declare(sim_001={"gpus": [VGPU_LAYOUT]}, sim_002={"gpus": [VGPU_LAYOUT]})
    lab.simulated.update_driver(OTHER, NEW, A40_SWAPPED, folder=fleet.folder)
    fleet.operator.does("apply-hosts")
    fleet.operator.does("create-tenant", "acme")
    fleet.operator.does("list-gpus", "--refresh")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


OTHER = "sim-002"
A40_SWAPPED = {name: number for name, number in SWAPPED.items() if name.startswith("A40")}


def type_on(layouts: LayoutFleet, host: str) -> str | None:
    return made(layouts.machine(host)).get(PROFILES)


def update_behind_the_cache(layouts: LayoutFleet) -> None:
    lab.simulated.update_driver(HOST, NEW, A40_SWAPPED, folder=layouts.folder)


def test_a_vm_is_created_by_the_name_where_the_store_knows_the_ids_of_before(pair: LayoutFleet) -> None:
    operator = pair.operator
    operator.does("cordon-host", OTHER, "--reason", "the test wants the first")
    update_behind_the_cache(pair)
    operator.does("create-vm", "new", *ACME, "--gpu", "A40-24Q", *SIZE)
    assert type_on(pair, HOST) == "A40-24Q"
    (lease,) = operator.json("show-vm", "new", *ACME)["leases"]
    assert lease["share"]["type_id"] == "563"


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::"
    "test_a_vm_is_created_by_the_name_where_the_store_knows_the_ids_of_before",
    "tests/unit/sharing/test_type_names.py::test_a_share_is_built_with_the_id_of_now",
)
def test_a_vm_moves_between_hosts_that_number_in_two_ways(pair: LayoutFleet) -> None:
    operator = pair.operator
    operator.does("cordon-host", OTHER, "--reason", "the test wants the first")
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-24Q", *SIZE)
    operator.does("uncordon-host", OTHER)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    operator.does("move-vm", "web", *ACME, "--to", OTHER)
    operator.does("start-vm", "web", *ACME)
    assert (type_on(pair, HOST), type_on(pair, OTHER)) == (None, "A40-24Q")
    update_behind_the_cache(pair)
    operator.does("move-vm", "web", *ACME, "--to", HOST)
    assert (type_on(pair, HOST), type_on(pair, OTHER)) == ("A40-24Q", None)


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::"
    "test_a_vm_is_created_by_the_name_where_the_store_knows_the_ids_of_before",
    "tests/unit/sharing/test_type_names.py::test_a_share_is_built_with_the_id_of_now",
)
def test_a_gpu_that_is_promised_for_the_next_start_is_of_the_name(pair: LayoutFleet) -> None:
    operator = pair.operator
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-24Q", *SIZE, "--host", HOST)
    operator.does("attach-gpu", "web", "A40-24Q", *ACME, "--next-start")
    update_behind_the_cache(pair)
    operator.does("start-vm", "web", *ACME)
    machine = pair.machine(HOST)
    (card,) = machine.shape.cards
    found = [card.type_of(one.type_id) for one in machine.state().vgpus]
    assert [one.full_name for one in found if one is not None] == ["NVIDIA A40-24Q"] * 2


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::"
    "test_a_vm_is_created_by_the_name_where_the_store_knows_the_ids_of_before",
    "tests/unit/sharing/test_type_names.py::test_a_share_is_built_with_the_id_of_now",
)
def test_a_reserved_share_is_given_by_its_name(pair: LayoutFleet) -> None:
    operator = pair.operator
    operator.does("cordon-host", OTHER, "--reason", "the test wants the first")
    times = [f"{datetime.fromtimestamp(time.time() + one, UTC):%Y-%m-%dT%H:%M}" for one in (-60, 7200)]
    operator.does("reserve", "soon", *ACME, "--gpu", "A40-24Q", "--from", times[0], "--until", times[1])
    update_behind_the_cache(pair)
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-24Q", *SIZE, "--reservation", "soon")
    assert type_on(pair, HOST) == "A40-24Q"


@pytest.mark.long(
    "tests/e2e/layout/test_renumbered_types.py::test_the_unit_makes_every_share_again_by_the_name_of_its_type",
    "tests/unit/sharing/test_type_names.py::test_a_device_of_the_recorded_id_and_another_name_is_not_the_vms",
)
def test_idle_shares_of_a_layout_are_its_types_by_name(pair: LayoutFleet) -> None:
    """The unit makes them by name; `apply-hosts` replaces those that were made from a list of ids."""
    operator, layout = pair.operator, {"gpus": [{**VGPU_LAYOUT, "shares": {"A40-24Q": 2}}]}
    pair.declare(sim_001=layout)
    for command in ("apply-hosts", "check-hosts"):
        operator.does(command, "--limit", HOST)
    without_names(pair)
    update_behind_the_cache(pair)
    assert type_on(pair, HOST) == "A40-12Q"
    done = operator.run("check-hosts", "--limit", HOST)
    assert done.code == 1 and "2 x A40-24Q" in done.out
    operator.does("apply-hosts", "--limit", HOST)
    assert type_on(pair, HOST) == "A40-24Q" and len(pair.machine(HOST).state().vgpus) == 2
    lab.simulated.update_driver(HOST, OLD, {"A40-24Q": 565, "A40-12Q": 563}, folder=pair.folder)
    assert type_on(pair, HOST) == "A40-24Q" and len(pair.machine(HOST).state().vgpus) == 2
    operator.does("check-hosts", "--limit", HOST)
    assert operator.json("apply-hosts", "--limit", HOST)["hosts"][0]["changed"] == 0


@pytest.mark.long(
    "tests/unit/sharing/test_type_names.py::test_a_device_of_the_recorded_id_and_another_name_is_not_the_vms",
    "tests/e2e/host/test_adopt_host.py::test_a_host_is_adopted_as_it_is",
)
def test_an_adopted_vgpu_is_what_the_driver_says_it_is(pair: LayoutFleet) -> None:
    operator = pair.operator
    update_behind_the_cache(pair)
    operator.does("apply-hosts", "--limit", HOST, "--no-boot")
    machine = pair.machine(HOST)
    (card,) = machine.shape.cards
    with machine.change() as state:
        wanted = card.type_of(565)
        assert wanted is not None
        rules.add(state, card, card.vf_address(0), wanted)
    adopted = operator.json("adopt-host", HOST, "--dry-run")
    assert "A40-12Q" in json.dumps(adopted) and "A40-24Q" not in json.dumps(adopted)
