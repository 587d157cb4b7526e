# SPDX-License-Identifier: Apache-2.0
"""A move that is killed, or whose host reboots under it, leaves the VM whole on one of the two hosts."""

import signal
from collections.abc import Callable, Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, kill_points, side_effects, stop_after
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.guests.libvirtd.storage import Storage

ACME = ("--tenant", "acme")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none",
          "--disk", "64MiB", "--hostname", "h")  # fmt: skip
MOVE = ("move-vm", "web", *ACME, "--shutdown-timeout", "0")
HOSTS = ("sim-001", "sim-002")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """Two equal hosts with one A40 each, which are declared: a reboot takes their VFs, and apply-hosts makes them."""
    need_simulated()
    fleet = layout_fleet(tmp_path_factory.mktemp("cut"), 2, "a40")
    layout = {"gpus": [{"match": "all", "kind": "vgpu"}]}
    fleet.declare(sim_001=layout, sim_002=layout)
    fleet.operator.does("apply-hosts")
    fleet.operator.does("create-tenant", "acme")
    fleet.operator.does("list-gpus", "--refresh")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


@pytest.fixture(scope="module")
def operator(hosts: LayoutFleet) -> Operator:
    return hosts.operator


@pytest.fixture(scope="module")
def fleet_witness(hosts: LayoutFleet) -> FleetWitness:
    return FleetWitness(hosts.folder)


def _volumes(operator: Operator) -> list[str]:
    found = []
    for host in HOSTS:
        with libvirt_of(operator.inventory, host) as there:
            storage = Storage(there)
            storage.ensure_pool("default")
            found += [f"{host} {one.name}" for one in storage.volumes("default")]
    return found


def _effects(operator: Operator) -> list[str]:
    operator.does(*CREATE)
    effects = side_effects(operator, *MOVE)
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    return effects


def _is_whole(operator: Operator, text: str) -> None:
    """One VM, on one host, with its shares and one copy of each volume, which starts where it is not running."""
    assert operator.json("repair") == [], text
    operator.does("start-vm", "web", *ACME)
    (listed,) = operator.json("list-vms", "--refresh")
    host, uuid = listed["vm"]["host"], listed["vm"]["uuid"]
    assert (listed["vm"]["state"], listed["observed"]) == ("running", "running"), text
    assert [(one["host"], one["state"]) for one in listed["leases"]] == [(host, "running")], text
    operator.does("gc", "--yes")
    assert sorted(_volumes(operator)) == [f"{host} {uuid}-seed.iso", f"{host} {uuid}.qcow2"], text
    with libvirt_of(operator.inventory, next(one for one in HOSTS if one != host)) as there:
        assert there.domains() == [], text


def _cut_each(operator: Operator, cut: Callable[[int], None], *, most: int, runs_again: bool) -> None:
    before = _volumes(operator)
    effects = _effects(operator)
    assert {"shutdown", "undefine", "copy_volume", "define", "start"} <= set(effects)
    for point in kill_points(effects, most=most):
        operator.does(*CREATE)
        cut(point)
        text = f"after side effect {point} of {len(effects)}"
        operator.does("repair")
        if runs_again:
            (listed,) = operator.json("list-vms", "--refresh")
            assert (listed["vm"]["state"], listed["vm"]["problem"], listed["observed"]) == ("running", None, "running")
        _is_whole(operator, text)
        operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
        assert operator.json("list-reservations") == [], text
        assert _volumes(operator) == before, f"{text} something leaked"
        assert operator.json("gc", "--dry-run", "--kind", "vgpu", "--kind", "domain") == []


@pytest.mark.long(
    "tests/e2e/vm/test_move_cut_short.py::test_a_copy_that_a_killed_move_has_left_goes_with_its_repair",
    "tests/e2e/vm/test_live_move_cut_short.py::test_a_move_that_is_killed_anywhere_leaves_one_running_vm",
)
def test_a_move_that_is_killed_anywhere_leaves_one_whole_vm(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    _cut_each(operator, lambda point: kill_after(operator, point, *MOVE), most=4, runs_again=True)
    assert fleet_witness.state() == before


def test_a_copy_that_a_killed_move_has_left_goes_with_its_repair(operator: Operator) -> None:
    operator.does(*CREATE)
    kill_after(operator, "copy_volume", *MOVE)
    assert len(_volumes(operator)) > 2
    operator.does("repair")
    (listed,) = operator.json("list-vms")
    host, uuid = listed["vm"]["host"], listed["vm"]["uuid"]
    assert sorted(_volumes(operator)) == [f"{host} {uuid}-seed.iso", f"{host} {uuid}.qcow2"]
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/vm/test_move_cut_short.py::test_a_copy_that_a_killed_move_has_left_goes_with_its_repair",
    "tests/e2e/vm/test_move_vm.py::test_a_stopped_vm_moves_and_stays_stopped",
)
def test_a_stopped_vm_whose_move_is_killed_at_its_end_has_no_share_that_was_never_made(operator: Operator) -> None:
    outcomes = set()
    operator.does(*CREATE)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    effects = side_effects(operator, *MOVE)
    made = len(effects) - effects[::-1].index("apply")
    for point in (made - 1, made, len(effects)):
        kill_after(operator, point, *MOVE)
        operator.does("repair")
        operator.does("list-gpus", "--refresh")
        (listed,) = operator.json("list-vms")
        shares = [(one["state"], seen["state"]) for one, seen in zip(listed["leases"], listed["shares"], strict=True)]
        assert shares in ([], [("built", "free")]), f"after side effect {point} of {effects}"
        outcomes.add(len(shares))
        operator.does("start-vm", "web", *ACME)
        operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    assert outcomes == {0, 1}
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/vm/test_move_cut_short.py::test_a_copy_that_a_killed_move_has_left_goes_with_its_repair",
    "tests/e2e/operate/test_failing_hosts.py::test_hosts_that_fail_in_the_middle_leave_nothing_half",
)
def test_a_move_whose_hosts_reboot_under_it_leaves_one_whole_vm(operator: Operator, hosts: LayoutFleet) -> None:
    def reboot(point: int) -> None:
        run = stop_after(operator, point, *MOVE)
        for host in HOSTS:
            lab.simulated.reboot(host, folder=hosts.folder)
        run.send_signal(signal.SIGCONT)
        _out, err = run.communicate(timeout=300)
        assert "Traceback" not in err, err
        operator.does("apply-hosts")

    _cut_each(operator, reboot, most=3, runs_again=False)
