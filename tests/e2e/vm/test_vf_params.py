# SPDX-License-Identifier: Apache-2.0
"""A VM's share of an Intel card's time changes while it runs, and its VF is as before when it is deleted."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.lab.simulated_fixtures import machine
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import open_store
from vgpuctl.telemetry.history import History

__all__ = ["operator"]

FLEET = (1, "flex-170+a40")
HOST = "sim-001"
QUANTUM = ("--vgpu-param", "exec_quantum_ms=20")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet: lab.LabFolder) -> Iterator[None]:
    """Every test ends with nothing to repair, and the driver has its own values for every VF."""
    yield
    lab.faults.clear(HOST, folder=fleet)
    operator.delete_all_vms()
    assert operator.json("repair") == []
    assert machine(fleet, HOST).state().vf_params == {}


def _params(operator: Operator) -> str | None:
    (found,) = operator.json("show-vm", "web", *ACME)["vgpu_params"]
    assert found is None or isinstance(found, str)
    return found


def test_a_running_vm_gets_another_share_of_time_and_gives_it_back(operator: Operator) -> None:
    (dry,) = operator.json("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM, "--dry-run")
    assert [(one["op"], one["params"]) for one in dry["steps"]] == [("vf-params.set", "exec_quantum_ms=20")]
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    assert _params(operator) == "exec_quantum_ms=20"
    explained = operator.does("explain-vm", "web", *ACME).out
    assert "time    not measured there: vgpuctl has no reading of what a VF uses" in explained
    wanted = ("resize-vm", "web", *ACME, "--vgpu-param", "exec_quantum_ms=40", "--vgpu-param", "preempt_timeout_us=9")
    planned = operator.json(*wanted, "--dry-run")
    assert planned["changed"] is False and planned["notes"] == ["it changes while it runs"]
    assert [one["params"] for one in planned["steps"]] == ["exec_quantum_ms=40,preempt_timeout_us=9"]
    assert _params(operator) == "exec_quantum_ms=20", "a dry run changed the VF"
    assert "resized: " in operator.does(*wanted).err
    assert _params(operator) == "exec_quantum_ms=40,preempt_timeout_us=9"
    assert operator.json(*wanted)["changed"] is False
    (event,) = [one for one in operator.json("list-events") if one["kind"] == "vm-resized"]
    assert event["before"]["vgpu_params"] == ["exec_quantum_ms=20"]
    assert _params(operator) == "exec_quantum_ms=40,preempt_timeout_us=9"
    operator.does("resize-vm", "web", *ACME, "--vgpu-param", "none")
    assert _params(operator) is None
    kinds = [one["kind"] for one in operator.json("list-events") if one["kind"].startswith("vm-")]
    assert sorted(kinds) == ["vm-created", "vm-resized", "vm-resized"], "it was never stopped"


@pytest.fixture
def answered(operator: Operator) -> Iterator[Callable[[str, str], dict[str, Any]]]:
    """Gives the controller's answer to a VM that takes its neighbours' time, under a policy of its tenant."""

    def answer(name: str, policy: str) -> dict[str, Any]:
        operator.does("set-quota", "acme", f"over-promise={policy}")
        lease = operator.json("show-vm", name, *ACME)["leases"][0]
        _finding(operator, name, lease["share"]["gpu"], "begun")
        for _round in range(2):
            operator.does("controller", "--once")
        found = list(operator.json("list-events", "--kind", "over-promise-answered"))
        last: dict[str, Any] = found[-1]
        assert (last["subject"], last["after"]["policy"]) == (f"acme/{name}", policy)
        assert [one["evidence"]["finding_event"] for one in found].count(last["evidence"]["finding_event"]) == 1
        assert last["evidence"]["contention_ratio"] == 0.4, "the answer has the finding's evidence"
        return last

    yield answer
    operator.does("set-quota", "acme", "over-promise=none")


def _finding(operator: Operator, name: str, gpu: str, state: str) -> None:
    """Write the event of a finding, as the process that keeps the history does."""
    with open_store(operator.database) as store, store.transaction() as session:
        session.add_event(
            EventKind.CONTENTION_OBSERVED,
            f"acme/{name}",
            "it takes time",
            tenant="acme",
            host=HOST,
            after={"state": state},
            evidence={"gpu": gpu, "victims": ["acme/other"], "contention_ratio": 0.4},
        )


def test_where_nothing_can_be_limited_or_moved_the_answer_says_so(
    operator: Operator, answered: Callable[[str, str], dict[str, Any]]
) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "A40-8Q")
    limited = answered("web", "limit")
    assert limited["after"]["outcome"] == "failed" and "no driver limits the time of a single vGPU" in limited["detail"]
    assert answered("web", "move")["after"]["outcome"] == "failed"
    (listed,) = operator.json("list-vms")
    assert listed["vm"]["state"] == "running"


def test_a_vf_that_was_kept_and_one_that_a_reboot_took_are_told_again(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0", "--hold", "keep")
    operator.does("resize-vm", "web", *ACME, "--vgpu-param", "exec_quantum_ms=5")
    operator.does("start-vm", "web", *ACME)
    assert _params(operator) == "exec_quantum_ms=5"
    operator.does("stop-vm", "web", *ACME, "--timeout", "0", "--hold", "keep")
    lab.simulated.reboot(HOST, folder=fleet)
    assert machine(fleet, HOST).state().vf_params == {}
    operator.does("start-vm", "web", *ACME)
    assert _params(operator) == "exec_quantum_ms=5"
    operator.does("resize-vm", "web", *ACME, "--vgpu-param", "none")
    assert _params(operator) is None, "the driver's own values are those from before the VM"


def test_the_same_command_again_sets_a_vf_right(operator: Operator, fleet: lab.LabFolder) -> None:
    """As after a run that was killed between host and store."""
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    with machine(fleet, HOST).change() as state:
        (own,) = state.vf_params.values()
        own["exec_quantum_ms"] = "60"
    done = operator.run("check-vm", "web", *ACME)
    assert (
        done.code
        and "exec_quantum_ms=60" in done.out
        and "resize-vm acme/web --vgpu-param exec_quantum_ms=20" in done.out
    )
    assert "they were otherwise" in operator.does("resize-vm", "web", *ACME, *QUANTUM).err
    assert _params(operator) == "exec_quantum_ms=20"
    assert "otherwise" not in operator.does("resize-vm", "web", *ACME, *QUANTUM).err
    assert "broken" not in operator.does("check-vm", "web", *ACME).out


def test_a_value_above_the_drivers_maximum_leaves_nothing(operator: Operator, fleet: lab.LabFolder) -> None:
    above = ("--vgpu-param", "exec_quantum_ms=200000")
    refused = operator.is_refused("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *above)
    assert "reads exec_quantum_ms=100000" in refused["message"]
    assert machine(fleet, HOST).state().vf_params == {}
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    operator.is_refused("resize-vm", "web", *ACME, *above)
    assert _params(operator) == "exec_quantum_ms=20"


@pytest.mark.long(
    "tests/agent/test_sriov_admin.py::test_a_refusal_says_what_was_refused_and_the_old_values_are_back",
    "tests/e2e/vm/test_vf_params.py::test_a_value_above_the_drivers_maximum_leaves_nothing",
)
def test_what_the_firmware_refuses_changes_nothing(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    lab.faults.begin(HOST, "vf-params-refused", card=_card(operator), folder=fleet)
    refused = operator.is_refused("resize-vm", "web", *ACME, "--vgpu-param", "exec_quantum_ms=40")
    assert "firmware" in refused["message"]
    shown = operator.json("show-vm", "web", *ACME)
    assert shown["vm"]["request"]["vgpu_params"] == [["exec_quantum_ms", "20"]]
    assert _params(operator) == "exec_quantum_ms=20"


REFUSED = {
    "a vGPU": ("A40-8Q", "exec_quantum_ms=20", "is for VFs"),
    "a VF": ("vf", "frame_rate_limiter=0", "is for vGPUs"),
    "a word": ("vf", "exec_quantum_ms=fast", "a whole number"),
    "a negative number": ("vf", "preempt_timeout_us=-1", "a whole number"),
    "too large": ("vf", "exec_quantum_ms=4294967296", "up to 4294967295"),
    "what nobody may set": ("vf", "sched_priority=high", "exec_quantum_ms"),
    "memory": ("vf", "vram_quota=4GiB", "exec_quantum_ms"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_share_cannot_have_is_refused(operator: Operator, case: str) -> None:
    gpu, param, words = REFUSED[case]
    refused = operator.is_refused("create-vm", "web", *ACME, *SIZE, "--gpu", gpu, "--vgpu-param", param)
    assert words in f"{refused['message']} {refused['hint']}"


def test_a_driver_without_them_is_no_place(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf")
    lab.faults.begin(HOST, "no-sriov-admin", card=_card(operator), folder=fleet)
    operator.does("list-gpus", "--refresh")
    refused = operator.is_refused("resize-vm", "web", *ACME, *QUANTUM)
    assert "its driver xe has no exec_quantum_ms" in str(refused)
    assert "vgpu-params" in operator.run("explain-vm", "other", *ACME, *SIZE, "--gpu", "vf", *QUANTUM).out


def test_a_vm_whose_share_would_not_suit_it_is_not_stopped_for_its_restart(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    lab.faults.begin(HOST, "no-sriov-admin", card=_card(operator), folder=fleet)
    refused = operator.is_refused("restart-vm", "web", *ACME, "--timeout", "0")
    assert "its driver xe has no exec_quantum_ms" in refused["message"]
    assert "`vgpuctl resize-vm acme/web --vgpu-param none`" in refused["hint"]
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["state"], listed["vm"]["problem"], listed["observed"]) == ("running", None, "running")
    operator.does("resize-vm", "web", *ACME, "--vgpu-param", "none")
    operator.does("restart-vm", "web", *ACME, "--timeout", "0")


def _card(operator: Operator) -> str:
    (lease,) = operator.json("show-vm", "web", *ACME)["leases"]
    return str(lease["share"]["gpu"])


def test_a_vm_over_its_promise_is_limited_where_its_driver_can_be_told(
    operator: Operator, answered: Callable[[str, str], dict[str, Any]]
) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "vf")
    operator.does("create-vm", "other", *ACME, *SIZE, "--gpu", "vf", *QUANTUM)
    first = answered("web", "limit")
    assert (first["after"]["outcome"], first["detail"]) == ("limited", "its VF has exec_quantum_ms=20")
    _is_not_measured(operator)
    assert _params(operator) == "exec_quantum_ms=20"
    why = "it takes time of its GPU that its neighbours were promised"
    assert [one["subject"] for one in operator.json("list-events") if one["detail"] == why] == ["acme/web"]
    again = answered("web", "limit")
    assert again["after"]["outcome"] == "failed" and "20 ms already, no more than its neighbours" in again["detail"]
    assert "undone" not in operator.does("controller", "--once").err, "the finding lasts"
    _finding(operator, "web", _card(operator), "over")
    operator.does("set-quota", "acme", "over-promise=none")
    assert "undone: its VF has no time slice of its own again" in operator.does("controller", "--once").err
    assert _params(operator) is None
    last = operator.json("list-events", "--kind", "over-promise-answered")[-1]
    assert (last["after"], last["evidence"]["gpu"]) == ({"policy": "limit", "outcome": "undone"}, _card(operator))
    assert "undone" not in operator.does("controller", "--once").out


def _is_not_measured(operator: Operator) -> None:
    """advise names the card, and of another tenant's VMs none."""
    path = operator.home / "readings.history"
    History(path).close()
    (found,) = operator.json("advise", "--history", str(path))["unmeasured"]
    assert (found["gpu"], found["vms"]) == (_card(operator), ["acme/other", "acme/web"])
    told = f"not measured: {HOST} {found['gpu']}: the time that its VMs take from each other (acme/other, acme/web): "
    assert told + found["why"] in operator.does("advise", "--history", str(path), *ACME).out
    operator.does("create-tenant", "globex")
    for nothing in (("--tenant", "globex"), ("--host", "sim-009")):
        assert "not measured" not in operator.run("advise", "--history", str(path), *nothing).out
    operator.does("offboard-tenant", "globex", "--yes")


def test_a_vm_over_its_promise_is_stopped_until_its_next_start(
    operator: Operator, answered: Callable[[str, str], dict[str, Any]], fleet: lab.LabFolder
) -> None:
    operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "2*vf")
    assert answered("web", "stop")["after"]["outcome"] == "stopped"
    functions = sorted(one["share"]["function"] for one in operator.json("show-vm", "web", *ACME)["leases"])
    assert sorted(machine(fleet, HOST).state().stopped_vfs) == functions and len(functions) == 2
    (listed,) = operator.json("list-vms")
    assert listed["vm"]["state"] == "running"
    assert f"the work of its VF was stopped ({', '.join(functions)})" in listed["vm"]["problem"]
    operator.does("restart-vm", "web", *ACME, "--timeout", "0")
    (listed,) = operator.json("list-vms")
    assert listed["vm"]["problem"] is None and machine(fleet, HOST).state().stopped_vfs == []


LAYOUT: dict[str, Any] = {
    "version": 1,
    "gpus": [
        {
            "match": {"board": "Flex 170"},
            "kind": "vf",
            "count": 4,
            "vf_params": ["exec_quantum_ms=20", "preempt_timeout_us=5000"],
            "pf_params": ["exec_quantum_ms=20", "preempt_timeout_us=5000"],
        }
    ],
}


@pytest.mark.long(
    "tests/e2e/layout/test_layout_kinds.py::test_every_kind_is_reached_proven_and_restored",
    "tests/unit/planner/layout/test_function_params.py::test_a_layout_that_breaks_a_promise_to_a_vm_says_which",
    "tests/unit/scheduler/test_compute.py::test_no_vm_gets_a_longer_slice_than_its_neighbours_were_promised_beside",
)
def test_declared_slices_are_a_promise_that_no_vm_can_break(operator: Operator, fleet: lab.LabFolder) -> None:
    """Last, since the card has other VFs then."""
    wanted = ("--gpu", "vf,compute>=16%")
    refused = operator.run("create-vm", "web", *ACME, *SIZE, *wanted)
    assert refused.code and "(compute-promise)" in refused.err and "vf_params" in refused.err
    folder = operator.inventory if operator.inventory.is_dir() else operator.inventory.parent
    variables = folder / "host_vars" / f"{HOST}.yml"
    variables.parent.mkdir(exist_ok=True)
    variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
    try:
        operator.does("apply-hosts", "--disrupt", "--no-boot")
        assert json.loads(operator.run("check-hosts", "--json").out)[0]["plan"]["differences"] == []
        operator.does("list-gpus", "--refresh")
        operator.does("create-vm", "web", *ACME, *SIZE, *wanted)
        checked = json.loads(operator.run("check-vm", "web", *ACME, "--json").out)
        (row,) = [one for one in checked["findings"] if one["row"] == "compute-promise"]
        assert (row["verdict"], "16.6% of the GPU's time" in row["seen"]) == ("kept", True), row
        for own in ("exec_quantum_ms=40", "preempt_timeout_us=0"):
            longer = operator.run("create-vm", "greedy", *ACME, *SIZE, "--gpu", "vf", "--vgpu-param", own)
            assert longer.code and "gives each VF" in longer.err, longer.err
        operator.does("create-vm", "greedy", *ACME, *SIZE, "--gpu", "vf", "--vgpu-param", "exec_quantum_ms=5")
        longer = operator.run("resize-vm", "greedy", *ACME, "--vgpu-param", "exec_quantum_ms=40")
        assert longer.code and "gives each VF exec_quantum_ms=20" in longer.err
        refused = operator.run("create-vm", "both", *ACME, *SIZE, *wanted, "--vgpu-param", "exec_quantum_ms=5")
        assert refused.code and "contradicts the compute time" in refused.err
        LAYOUT["gpus"][0]["vf_params"][0] = "exec_quantum_ms=10"
        variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        assert "exec_quantum_ms=20, declared exec_quantum_ms=10" in operator.run("check-hosts").out
        for command in (["plan-hosts"], ["apply-hosts", "--no-boot"], ["check-hosts"]):
            refused = operator.run(*command)
            assert refused.code and "acme/web: it promises vf at least 12.5%" in refused.out + refused.err, refused
        assert "acme/greedy" not in refused.out, "its own slice is no longer"
        LAYOUT["gpus"][0]["vf_params"][1] = "preempt_timeout_us=2000"
        LAYOUT["gpus"][0]["pf_params"][:] = ["exec_quantum_ms=5", "preempt_timeout_us=2000"]
        variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        done = operator.json("apply-hosts", "--no-boot")["hosts"][0]
        assert done["changed"] == 5, "while both VMs run"
        shown = operator.run("check-vm", "greedy", *ACME, "--json").out
        assert "exec_quantum_ms=5" in shown, "a VM's own value stays"
        before = machine(fleet, HOST).state().vf_params
        LAYOUT["gpus"][0]["vf_params"][0] = "exec_quantum_ms=200000"
        LAYOUT["gpus"][0]["pf_params"][0] = "exec_quantum_ms=4"
        variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        refused = operator.run("apply-hosts", "--no-boot")
        assert refused.code and "reads exec_quantum_ms=100000" in refused.out and "rolled back: set" in refused.out
        assert machine(fleet, HOST).state().vf_params == before, "the PF is as before too"
        LAYOUT["gpus"][0]["vf_params"][0] = "exec_quantum_ms=10"
        LAYOUT["gpus"][0]["pf_params"][0] = "exec_quantum_ms=5"
        LAYOUT["gpus"][0]["vf_params"][2:] = ["vram_quota=2GiB"]
        variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        refused = operator.run("apply-hosts", "--no-boot")
        assert refused.code and "would disturb" in refused.out + refused.err and "VM web of acme" in refused.out
        operator.does("apply-hosts", "--disrupt", "--no-boot")
        assert json.loads(operator.run("check-hosts", "--json").out)[0]["plan"]["differences"] == []
        running = {one["vm"]["request"]["name"]: one["vm"]["state"] for one in operator.json("list-vms")}
        assert running == {"web": "running", "greedy": "running"}
    finally:
        operator.delete_all_vms()
        LAYOUT["gpus"][0]["vf_params"][:] = ["exec_quantum_ms=0", "preempt_timeout_us=0"]
        LAYOUT["gpus"][0]["pf_params"][:] = ["exec_quantum_ms=0", "preempt_timeout_us=0"]
        variables.write_text(yaml.safe_dump({"vgpu": LAYOUT}))
        operator.does("apply-hosts", "--no-boot")
        variables.unlink()
        with machine(fleet, HOST).change() as state:  # the driver keeps memory until the VFs are disabled
            assert all(one.pop("vram_quota", None) for one in state.vf_params.values())
            state.vf_params = {vf: one for vf, one in state.vf_params.items() if one}
