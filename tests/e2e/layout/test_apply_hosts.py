# SPDX-License-Identifier: Apache-2.0
"""plan-hosts and apply-hosts over simulated hosts: real sshd, real agent, the machine's own files as witness."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine import rules
from vgpuctl_lab.simulated.machine.drivers import Drivers

GPU = "0000:41:00.0"
EQUAL: dict[str, Any] = {"gpus": [{"match": "all", "kind": "vgpu"}]}
WITH_SHARES: dict[str, Any] = {"gpus": [{"match": "all", "kind": "vgpu", "shares": {"A40-8Q": 2}}]}
MIXED: dict[str, Any] = {"gpus": [{"match": "all", "kind": "vgpu", "size_mode": "mixed-size"}]}
OFF: dict[str, Any] = {"gpus": [{"match": "all", "kind": "off"}]}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """sim-001 and sim-002 with types on VFs, sim-003 with mdevs on VFs, sim-004 with a T4 and a GeForce."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("layouts")
    fleet = layout_fleet(home, 4, "a40:2,a40/mdev-vf,t4+rtx-3090")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


@pytest.fixture(autouse=True)
def _fresh(layouts: LayoutFleet) -> None:
    """Hosts as after a start, with no layout, nothing installed and no store."""
    for name in lab.simulated.names(folder=layouts.folder):
        shutil.rmtree(layouts.machine(name).root / "etc", ignore_errors=True)
        lab.simulated.reboot(name, folder=layouts.folder)
        layouts.machine(name).reboot()
    for path in layouts.operator.home.glob("store.db*"):
        path.unlink()


def applied(layouts: LayoutFleet, *options: str) -> dict[str, Any]:
    """The answer of `apply-hosts --json` for each host, by name."""
    done = layouts.operator.run("apply-hosts", *options, "--json")
    return {one["host"]: one for one in json.loads(done.out)["hosts"]}


def test_every_host_reaches_its_layout_and_the_second_run_writes_nothing(layouts: LayoutFleet) -> None:
    layouts.declare(
        sim_001=WITH_SHARES,
        sim_002=EQUAL,
        sim_003=WITH_SHARES,
        sim_004={
            "gpus": [
                {"match": {"board": "T4"}, "kind": "vgpu", "shares": {"T4-4Q": 1}},
                {"match": {"address": "0000:43:00.0"}, "kind": "passthrough", "driver": "vfio-pci"},
            ]
        },
    )
    before = layouts.states()
    planned = {one["host"]: one["plan"] for one in layouts.operator.json("plan-hosts")}
    assert [step["phase"] for step in planned["sim-001"]["steps"]] == ["virtual-functions"]
    assert planned["sim-001"]["undo"] == [{"op": "sriov.set", "address": GPU, "count": 0}]
    assert "A40-8Q" in planned["sim-001"]["later"][0]
    checked = applied(layouts, "--check")
    assert checked["sim-002"]["changed"] == 2 and checked["sim-002"]["writes"] == 0
    assert layouts.states() == before, "plan-hosts and --check changed a host"

    first = applied(layouts)
    assert {name: one["error"] for name, one in first.items()} == dict.fromkeys(first, None)
    assert layouts.vfs("sim-001") == {GPU: 32} == layouts.vfs("sim-003")
    assert [len(layouts.machine(name).state().vgpus) for name in sorted(first)] == [2, 0, 2, 1]
    assert layouts.machine("sim-004").state().drivers["0000:43:00.0"] == "vfio-pci"
    assert first["sim-001"]["changed"] == 4 and first["sim-001"]["writes"] > 0

    after = layouts.states()
    second = applied(layouts)
    assert [(one["changed"], one["failed"], one["writes"]) for one in second.values()] == [(0, 0, 0)] * 4
    assert layouts.states() == after


def test_what_people_see_is_a_line_per_step_and_a_recap(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=EQUAL, sim_004={"gpus": [{"match": {"board": "T4"}, "kind": "vgpu"}]})
    plan = layouts.operator.does("plan-hosts", "--diff", "--steps", "--limit", "sim-001").out
    assert "virtual functions: enable 32 VFs of 0000:41:00.0" in plan
    assert "    - 0\n    + 32" in plan and "     have 0 VFs on 0000:41:00.0\n" in plan
    out = layouts.operator.does("apply-hosts", "--diff").out
    assert "changed: [sim-001] 0000:41:00.0: enable 32 VFs of 0000:41:00.0\n    - 0\n    + 32\n" in out
    assert "ok: [" not in out, "of several hosts the recap counts them"
    assert "sim-001 : ok=1   changed=2   skipped=0   failed=0   unreachable=0" in out


def test_of_one_host_what_is_as_declared_has_a_line(layouts: LayoutFleet) -> None:
    layouts.declare(sim_004={"gpus": [{"match": {"board": "T4"}, "kind": "vgpu"}]})
    layouts.operator.does("apply-hosts", "--limit", "sim-004")
    out = layouts.operator.does("apply-hosts", "--limit", "sim-004").out
    assert "ok: [sim-004] 0000:41:00.0: vgpu, as declared" in out


def test_a_failing_host_hides_no_other_and_shows_its_undo(layouts: LayoutFleet) -> None:
    layouts.declare(
        sim_001={"gpus": [{"match": "all", "kind": "vf", "count": 4}]}, sim_002=EQUAL, sim_003=EQUAL, sim_004=EQUAL
    )
    with layouts.machine("sim-003").change() as state:
        state.drivers[GPU] = "nouveau"
    lab.simulated.down(["sim-004"], folder=layouts.folder)
    try:
        done = layouts.operator.run("apply-hosts", "--json")
        hosts = {one["host"]: one for one in json.loads(done.out)["hosts"]}
    finally:
        lab.simulated.up(4, mix="a40:2,a40/mdev-vf,t4+rtx-3090", with_vfs=False, folder=layouts.folder)
        lab_inventory = layouts.folder.path / "simulated/inventory.yml"
        (layouts.operator.inventory / "hosts.yml").write_text(lab_inventory.read_text())
    assert done.code == 10
    assert hosts["sim-001"]["error"]["reference"] == "layout-refused" and hosts["sim-001"]["failed"] == 1
    assert "has no plain VFs" in hosts["sim-001"]["lines"][-1]["reason"]
    assert hosts["sim-002"]["changed"] == 2 and layouts.vfs("sim-002") == {GPU: 32}
    assert "nouveau" in hosts["sim-003"]["lines"][-1]["reason"] and not layouts.vfs("sim-003")
    assert hosts["sim-004"]["is_unreachable"] and hosts["sim-004"]["error"]["reference"] == "host-unreachable"


def test_a_step_that_fails_ends_the_host_and_undo_takes_the_others_back(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=WITH_SHARES, sim_004={"gpus": [{"match": {"board": "T4"}, "kind": "vgpu"}]})
    lab.faults.begin("sim-001", "refuse", folder=layouts.folder)
    try:
        shown = layouts.operator.run("apply-hosts", "--no-boot", "--undo").out
        after = layouts.vfs("sim-001")
        left = applied(layouts, "--no-boot")["sim-001"]
    finally:
        lab.faults.clear("sim-001", folder=layouts.folder)
    assert f"changed: [sim-001] {GPU}: rolled back: enable 32 VFs of {GPU}" in shown
    assert "sim-001 : ok=1   changed=2   skipped=0   failed=1   unreachable=0" in shown
    assert after == {}
    assert left["undo"] == [{"op": "sriov.set", "address": GPU, "count": 0}] and layouts.vfs("sim-001") == {GPU: 32}
    assert [line["outcome"] for line in left["lines"]] == ["ok", "changed", "failed"]


def test_the_gpu_of_an_idle_share_that_is_deleted_must_prove_healthy(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=WITH_SHARES)
    applied(layouts, "--no-boot", "--limit", "sim-001")
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", "shares": {"A40-8Q": 1}}]})
    applied(layouts, "--no-boot", "--limit", "sim-001")
    (event,) = layouts.operator.json("list-events", "--kind", "share-checked")
    assert (event["host"], event["tenant"], event["evidence"]["gpu"]) == ("sim-001", None, GPU)
    assert (event["evidence"]["reset"], event["evidence"]["findings"]) == ("by the driver", [])


def test_an_interrupted_run_undoes_its_steps_and_a_second_signal_does_not_end_that(layouts: LayoutFleet) -> None:
    # 33 steps, so that some are left when the signals come.
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", "shares": {"A40-1Q": 32}}]})
    before = layouts.vfs("sim-001")
    with layouts.operator.start("apply-hosts", "--no-boot", "--undo", "--limit", "sim-001") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "enable 32 VFs" in line:
                process.send_signal(2)
                process.send_signal(15)
                break
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"rolled back: enable 32 VFs of {GPU}" in out
    assert "Traceback" not in err
    assert layouts.vfs("sim-001") == before
    assert layouts.operator.json("repair") == []


def test_the_first_read_back_that_differs_ends_the_host(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={"hugepages": {"1GiB": 4000}, **EQUAL}, sim_002=EQUAL)
    hosts = applied(layouts, "--no-boot")
    assert [line["outcome"] for line in hosts["sim-001"]["lines"]] == ["failed"]
    assert "of 4000 1048576 KiB pages" in hosts["sim-001"]["lines"][0]["reason"]
    assert layouts.vfs("sim-001") == {} and not sum(layouts.machine("sim-001").state().hugepages.values())
    assert hosts["sim-002"]["changed"] == 1 and layouts.vfs("sim-002") == {GPU: 32}


def test_batches_end_with_the_failures_that_are_allowed(layouts: LayoutFleet) -> None:
    impossible = {"gpus": [{"match": "all", "kind": "mig", "geometry": {}}]}
    layouts.declare(sim_001=EQUAL, sim_002=impossible, sim_003=EQUAL)
    hosts = applied(layouts, "--no-boot", "--serial", "1")
    assert [(one["is_begun"], one["changed"]) for one in hosts.values()] == [(True, 1), (True, 0), (False, 0)]
    assert not layouts.vfs("sim-003")
    again = applied(layouts, "--no-boot", "--serial", "1,50%", "--max-failures", "1", "--limit", "sim-002,sim-003")
    assert [(one["is_begun"], one["changed"]) for one in again.values()] == [(True, 0), (True, 1)]
    refused = layouts.operator.is_refused("apply-hosts", "--serial", "0")
    assert refused["exit_code"] == 2


@pytest.mark.long(
    "tests/agent/test_sriov_repair.py::test_each_sick_state_is_repaired_by_setting_the_vfs_again",
    "tests/unit/planner/doctor/test_checks.py::test_each_sick_state_of_sriov_is_named_with_its_remedy",
    "tests/e2e/layout/test_apply_hosts.py::test_every_host_reaches_its_layout_and_the_second_run_writes_nothing",
)
def test_sick_vfs_are_named_and_repaired_without_an_operator(layouts: LayoutFleet) -> None:
    """The number of VFs is right all the time."""
    layouts.declare(sim_002=EQUAL)
    applied(layouts, "--limit", "sim-002")
    lab.faults.begin("sim-002", "vfs-on-stub", card=GPU, folder=layouts.folder)
    assert layouts.vfs("sim-002")[GPU] == 32
    done = layouts.operator.run("check-hosts", "--limit", "sim-002", "--json")
    (checked,) = json.loads(done.out)
    assert ("vfs-on-stub", "error") in {(one["check"], one["severity"]) for one in checked["findings"]}
    (planned,) = layouts.operator.json("plan-hosts", "--limit", "sim-002")
    assert "32 of 32 VFs on pci-pf-stub" in planned["plan"]["steps"][0]["summary"]
    repaired = applied(layouts, "--limit", "sim-002")["sim-002"]
    assert repaired["error"] is None and repaired["changed"] == 1
    drivers = layouts.machine("sim-002").state().drivers
    assert {driver for function, driver in drivers.items() if function.startswith("0000:41:")} == {"nvidia"}
    again = applied(layouts, "--limit", "sim-002")["sim-002"]
    assert (again["changed"], again["writes"]) == (0, 0)
    assert lab.faults.active("sim-002", folder=layouts.folder) == []


def test_a_tenants_vm_is_disturbed_only_with_leave_and_runs_again(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001=EQUAL)
    operator.does("apply-hosts")
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--limit", "sim-001")
    held = layouts.states()
    layouts.declare(sim_001=MIXED)
    refused = applied(layouts)["sim-001"]
    assert refused["error"]["reference"] == "layout-refused" and refused["skipped"] == 1 and refused["writes"] == 0
    assert "VM web-1 of acme" in refused["lines"][1]["reason"]
    assert refused["lines"][1]["hint"] == "--disrupt allows it" and refused["left"] == []
    assert layouts.states() == held
    checked, allowed = applied(layouts, "--disrupt", "--check")["sim-001"], applied(layouts, "--disrupt")["sim-001"]
    changed = [line["text"] for line in allowed["lines"] if line["outcome"] == "changed"]
    assert changed == [
        "stop VM web-1 of acme and release its shares",
        f"switch mixed-size mode of {GPU} on",
        "start VM web-1 of acme again",
        "vgpuctl-restore.service restores it at boot",
    ]
    assert [line["text"] for line in checked["lines"] if line["outcome"] == "changed"] == changed
    assert len(layouts.machine("sim-001").state().domains) == 1


def test_the_fleet_is_summed_up_and_asked_about_before_vms_of_two_hosts_stop(layouts: LayoutFleet) -> None:
    operator, hosts = layouts.operator, ("sim-001", "sim-002")
    layouts.declare(sim_001=EQUAL, sim_002=EQUAL)
    assert "sim-001  1 difference" not in operator.does("apply-hosts").out
    operator.does("create-tenant", "acme")
    for host in hosts:
        operator.does("create-vm", host, "--tenant", "acme", "--gpu", "A40-8Q", "--limit", host)
    assert operator.does("plan-hosts").out == "2 hosts: 2 as declared\n"
    layouts.declare(sim_001=MIXED, sim_002=MIXED)
    held = layouts.states()
    summed, steps = operator.does("plan-hosts"), operator.does("plan-hosts", "--steps").out
    rows = [line.split() for line in summed.out.splitlines()]
    assert ["sim-002", "2", "differences", "2", "1", "VM", "-"] in rows
    assert ["mixed", "sizes", "2", "2", "2", "VMs"] in rows
    assert summed.out.endswith("2 hosts: 0 as declared, 2 with differences, 4 steps that disturb 2 VMs\n")
    assert "vgpuctl plan-hosts -l sim-001" in summed.err and steps.count("rolled back by:") == 2
    assert "rolled back by 1 step (--steps shows them)" in operator.does("plan-hosts", "-l", "sim-001").out
    asked = operator.run("apply-hosts", "--disrupt")
    assert asked.code == 2 and "Stop 2 VMs on 2 hosts?" in asked.err and "sim-002: stops 1 VM\n" in asked.err
    assert layouts.states() == held
    assert [one["error"] for one in applied(layouts, "--disrupt", "--yes").values()] == [None, None]
    no_mig = {"gpus": [{"match": {"board": "T4"}, "kind": "mig-vgpu", "geometry": {"3g.20gb": 1}}]}
    layouts.declare(sim_001=MIXED, sim_004=no_mig)
    blocked = operator.run("plan-hosts")
    assert ["sim-004", "1", "difference", "0", "-", "no-mig"] in [line.split() for line in blocked.out.splitlines()]
    assert blocked.code == 10 and blocked.out.endswith("2 hosts: 1 as declared, 1 with differences\n")


def test_a_vm_that_could_not_come_back_is_a_refusal_before_anything_stops(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001=EQUAL)
    operator.does("apply-hosts")
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web-2", "--tenant", "acme", "--gpu", "A40-8Q", "--limit", "sim-001")
    held = layouts.states()
    layouts.declare(sim_001=OFF)
    for options in (("--check", "--disrupt"), ("--disrupt", "--undo")):
        done = operator.run("apply-hosts", "--limit", "sim-001", *options)
        assert done.code == 4 and "changed=0" in done.out and "failed=1" in done.out
        assert "acme/web-2 could not start again in the new layout" in done.out
        assert layouts.states() == held
    (planned,) = operator.ends(4, "plan-hosts", "--limit", "sim-001")
    assert [one["code"] for one in planned["plan"]["obstacles"]] == ["vm-cannot-return"]
    shown = operator.run("plan-hosts", "--limit", "sim-001")
    assert "the declared layout would not be reached" in shown.err
    checked = operator.run("check-hosts", "--no-boot", "--limit", "sim-001").out.splitlines()[0]
    counted = operator.run("plan-hosts", "--no-boot", "--limit", "sim-001").out.splitlines()[0]
    assert counted.split(", ")[0] == checked.split(", ")[0] and "difference" in counted
    assert planned["plan"]["steps"] == [] and planned["plan"]["installs"] == []
    operator.does("stop-vm", "web-2", "--tenant", "acme", "--hold", "release", "--timeout", "0")
    assert applied(layouts, "--limit", "sim-001")["sim-001"]["error"] is None
    assert layouts.vfs("sim-001") == {}


def test_a_host_with_a_failed_line_never_ends_with_0(layouts: LayoutFleet) -> None:
    """The host reaches its layout, and then the VM does not start again."""
    operator = layouts.operator
    layouts.declare(sim_001=EQUAL)
    operator.does("apply-hosts", "--limit", "sim-001")
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web-3", "--tenant", "acme", "--gpu", "A40-8Q", "--limit", "sim-001")
    layouts.declare(sim_001=MIXED)
    lab.faults.begin("sim-001", "vf-wedged", value=1, folder=layouts.folder)
    machine = layouts.machine("sim-001")
    with machine.change() as state:
        state.wedged = list(state.vfs_of(machine.shape.cards[0]))
    done = operator.run("apply-hosts", "--limit", "sim-001", "--disrupt")
    lab.faults.clear("sim-001", folder=layouts.folder)
    assert "failed: [sim-001] host: start VM web-3 of acme again" in done.out, done.out
    assert "failed=1" in done.out and done.code == 4 and "not all that was stopped runs" in done.err
    planned = operator.json("plan-hosts", "--limit", "sim-001")[0]["plan"]
    assert planned["restarts"] == ["start VM web-3 of acme again"] and not planned["is_in_layout"]
    assert "start VM web-3 of acme again" in operator.run("apply-hosts", "--limit", "sim-001", "--check").out


@pytest.mark.long("tests/e2e/layout/test_after_reboot.py::test_a_restore_that_is_gone_or_damaged_is_a_difference")
def test_the_plan_has_the_files_that_a_run_installs(layouts: LayoutFleet) -> None:
    layouts.declare(sim_004={"gpus": [{"match": {"board": "T4"}, "kind": "vgpu"}]})
    out = layouts.operator.does("plan-hosts", "--limit", "sim-004").out
    assert "sim-004: 1 difference, 1 step\n" in out and "1 install: vgpuctl-restore.service restores it at boot" in out
    applied(layouts, "--limit", "sim-004")
    assert layouts.operator.does("plan-hosts", "--limit", "sim-004").out == "sim-004: as declared\n"
    manifest = layouts.machine("sim-004").root / "etc/vgpuctl/manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    (planned,) = layouts.operator.json("plan-hosts", "--limit", "sim-004")
    assert planned["plan"]["installs"] == [
        {"summary": "vgpuctl-restore.service restores it at boot", "before": "different", "after": "installed"}
    ]


def test_a_failed_run_names_what_it_left(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=WITH_SHARES)
    lab.faults.begin("sim-001", "refuse", folder=layouts.folder)
    try:
        left = applied(layouts, "--no-boot", "--limit", "sim-001")["sim-001"]
        shown = layouts.operator.run("apply-hosts", "--no-boot", "--limit", "sim-001").out
    finally:
        lab.faults.clear("sim-001", folder=layouts.folder)
    assert {"gpu": GPU, "subject": "vfs", "before": "0", "after": "32"} in left["left"]
    # Nothing was done the second time: the VFs were there before.
    assert "not as before this run" not in shown


def test_a_foreign_vgpu_is_never_disturbed(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=OFF)
    machine = layouts.machine("sim-001")
    card = machine.shape.cards[0]
    with machine.change() as state:
        Drivers(machine, state).set_vfs(card, 32)
        rules.add(state, card, state.vfs_of(card)[3], card.types[0], None)
    held = layouts.states()
    refused = applied(layouts, "--disrupt", "--reset")["sim-001"]
    reasons = [line["reason"] for line in refused["lines"] if line["outcome"] == "failed"]
    assert "vgpuctl does not know" in reasons[0] and refused["changed"] == 0
    assert layouts.states() == held


@pytest.mark.long(
    "tests/e2e/layout/test_apply_hosts.py::test_the_gpu_of_an_idle_share_that_is_deleted_must_prove_healthy",
    "tests/unit/planner/layout/test_every_way.py::test_every_layout_leads_to_every_other_and_the_undo_leads_back",
)
def test_shares_of_a_layout_go_when_the_layout_changes(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=WITH_SHARES, sim_003=WITH_SHARES)
    layouts.operator.does("apply-hosts")
    layouts.declare(sim_001=OFF, sim_003=OFF)
    hosts = applied(layouts)
    assert {name: one["error"] for name, one in hosts.items()} == {"sim-001": None, "sim-003": None}
    assert not layouts.vfs("sim-001") and not layouts.machine("sim-003").state().vgpus
