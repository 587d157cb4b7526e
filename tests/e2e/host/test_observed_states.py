# SPDX-License-Identifier: Apache-2.0
"""When libvirt or a whole host does not answer, the listings say what was observed, and when."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from vgpuctl_lab.simulated.layout import simulated_folder

ACME = ("--tenant", "acme")
SHOW = ("show-vm", "web", *ACME)
HOST = "sim-001"
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", HOST, *SIZE)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    fleet_operator.does(*CREATE)
    yield fleet_operator
    fleet_operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@contextmanager
def failing(fleet: lab.LabFolder, kind: str) -> Iterator[None]:
    lab.faults.begin(HOST, kind, folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(HOST, folder=fleet)


def state_of(operator: Operator) -> str:
    (line,) = [line for line in operator.does("list-vms").out.splitlines() if " web " in line]
    return line


def test_a_vm_s_state_is_what_was_observed_with_its_age(operator: Operator) -> None:
    (listed,) = operator.json("list-vms")
    assert (listed["declared"], listed["observed"], listed["unknown_since"]) == ("running", "running", None)
    assert listed["observed_at"] > 0
    assert "running, " in state_of(operator)
    assert " ago" in state_of(operator)
    (again,) = operator.json("list-vms", "--refresh")
    assert again["observed_at"] > listed["observed_at"]


def test_a_reading_writes_nothing_to_the_hosts(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does("list-gpus", "--refresh")
    assert fleet_witness.state() == before


_LIBVIRT_ALONE = pytest.mark.long(
    "tests/e2e/host/test_observed_states.py::test_what_could_not_be_asked_is_unknown_and_never_absent",
    "tests/e2e/host/test_observed_states.py::test_a_dead_libvirtd_is_shown_of_hosts_and_gpus",
)


@pytest.mark.parametrize("kind", ["sshd", pytest.param("libvirtd", marks=_LIBVIRT_ALONE)])
def test_what_could_not_be_asked_is_unknown_and_never_absent(
    kind: str, operator: Operator, fleet: lab.LabFolder
) -> None:
    operator.does("list-vms", "--refresh")
    with failing(fleet, kind):
        shown = operator.does(*SHOW)
        told = operator.json(*SHOW)
        refused = operator.is_refused("list-vms", "--refresh")
        (listed,) = operator.json("list-vms")
        line = state_of(operator)
        same = operator.does(*CREATE)
    assert f"no change, it is on {HOST}: unknown since" in same.err
    assert "unknown since" in same.out
    assert "unknown since" in shown.out
    assert ", running " in shown.out, "what was last observed, and when"
    assert "not known to libvirt" not in shown.out
    assert "held by nobody" not in shown.out
    assert "could not be asked" in shown.err
    assert ("its host could not be asked now" in shown.out) is (kind == "sshd"), "the agent is asked while SSH works"
    assert (told["domain_state"], told["observation"]["state"]) == (None, "running")
    assert told["host_problem"]
    assert refused["exit_code"] == 4
    assert listed["unknown_since"] is not None
    assert (listed["declared"], listed["observed"]) == ("running", "running")
    assert "unknown since" in line
    operator.does("list-vms", "--refresh")
    assert "unknown" not in state_of(operator)


def told_states(operator: Operator) -> list[str]:
    """The state of the VM in what is shown before several VMs, one VM or its tenant go, and in show-vm."""
    said = [
        operator.run("stop-vm", "-A", "--all", "--dry-run").err,
        operator.run("delete-vm", "acme/web", "--dry-run").err,
        operator.run("offboard-tenant", "acme", "--dry-run").err,
        operator.does(*SHOW).out,
    ]
    form = r"(?:web: |web on sim-001, |web of tenant acme, )((?:running|unknown|shut-off)(?: \(.*?\))?)"
    return [found[1] if (found := re.search(form, one)) else one for one in said]


def test_a_vm_that_libvirt_lost_differs_from_what_is_declared(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, "power-off"):
        operator.run("list-gpus", "--refresh")
        assert "unknown since" in state_of(operator)
        assert told_states(operator) == ["unknown (declared running)"] * 4
        planned = operator.json("plan-upgrade", "--driver", "999.1", "--limit", HOST)["hosts"][0]["vms"]
        (gpu,) = [
            line
            for line in operator.does(
                "list-gpus", "-o", "csv", "--columns", "host,health,closed,problems"
            ).out.splitlines()
            if line.startswith(HOST)
        ]
    assert gpu.startswith(f"{HOST},unknown,host-silent: it is unreachable: ") and "libvirt" not in gpu, gpu
    assert [(one["runs"], one["is_unknown"]) for one in planned] == [(True, True)]
    operator.does("list-vms", "--refresh")
    (listed,) = operator.json("list-vms")
    assert (listed["declared"], listed["observed"]) == ("running", "shut-off")
    assert "; declared running" in state_of(operator)
    assert told_states(operator) == ["shut-off (declared running)"] * 4
    planned = operator.json("plan-upgrade", "--driver", "999.1", "--limit", HOST)["hosts"][0]["vms"]
    assert [(one["runs"], one["is_unknown"]) for one in planned] == [(False, False)]
    same = operator.home / "acme.yml"
    same.write_text(
        "version: 1\ntenant: acme\nvms:\n"
        "- {name: web, gpus: [A40-8Q], host: sim-001, memory: 96MiB, vcpus: 1, network: none}\n"
    )
    assert f"acme/web: no change, it is on {HOST}: shut-off, " in operator.does("onboard", str(same)).err
    operator.does("start-vm", "web", *ACME)
    assert operator.json("list-vms")[0]["observed"] == "running"


def test_hosts_are_shown_with_the_age_of_their_last_answer(operator: Operator, fleet: lab.LabFolder) -> None:
    def row(*options: str) -> str:
        done = operator.run("list-hosts", *options)
        (line,) = [line for line in done.out.splitlines() if line.startswith(HOST)]
        return line

    operator.does("list-hosts")
    with failing(fleet, "sshd"):
        cached = row("--cached")
        assert " ok " in cached and "up, " in cached, "no host is contacted"
        asked = row()
        assert "host-unreachable" in asked and "unknown since " in asked
        cached = row("--cached")
        assert "unreachable" in cached and "unknown since " in cached
        assert "GiB" in cached, "the last facts stay"
    assert "unreachable" in row("--cached")
    assert re.search(r" ok +up, \d+s ago ", row())
    assert operator.json("list-hosts", "--cached", "--limit", HOST)[0]["observed"]["state"] == "up"


def test_what_is_worked_out_from_cached_facts_shows_their_age(operator: Operator, fleet: lab.LabFolder) -> None:
    questions = (
        ("list-profiles", "--limit", HOST),
        ("capacity", "--gpu", "A40-8Q", "--limit", HOST),
        ("explain-vm", "other", *ACME, "--gpu", "A40-8Q", "--limit", HOST),
        ("plan-upgrade", "--kernel", "6.99.1", "--limit", HOST),
    )
    operator.does("list-hosts")
    for question in questions:
        assert " ago" in operator.does(*question).out
    with failing(fleet, "sshd"):
        operator.run("list-hosts")
        for question in questions:
            done = operator.does(*question)
            assert "unknown since " in done.out or "is unreachable" in done.out + done.err
    operator.does("list-hosts")
    assert operator.json(*questions[1])["hosts"][0]["seen"].startswith("up, ")
    assert operator.json(*questions[2])[0]["seen"][HOST].startswith("up, ")
    assert operator.json(*questions[3])["seen"][HOST].startswith("up, ")


def test_a_mistake_in_one_hosts_variables_hides_no_other_host(operator: Operator) -> None:
    mistakes = operator.inventory.parent / "host_vars"
    mistakes.mkdir()
    try:
        (mistakes / f"{HOST}.yml").write_text("vgpu: {version: 1, gpus: [{match: all, kind: nonsense}]}\n")
        for options in ((), ("--cached",)):
            done = operator.run("list-hosts", *options)
            assert done.code == 10
            states = {line.split()[0]: line.split()[1] for line in done.out.splitlines()[1:]}
            assert states.pop(HOST) == "inventory"
            assert set(states.values()) == {"ok"}
            assert "'nonsense'" in done.err
    finally:
        shutil.rmtree(mistakes)


def test_a_dead_libvirtd_is_shown_of_hosts_and_gpus(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, "libvirtd"):
        hosts = operator.run("list-hosts")
        told = operator.run("list-hosts", "--json")
        gpus = operator.run("list-gpus", "--refresh")
        free = operator.does("list-gpus", "--free").out
    assert (hosts.code, gpus.code) == (10, 10)
    assert f"{HOST}: libvirt" in gpus.err
    (line,) = [line for line in hosts.out.splitlines() if line.startswith(HOST)]
    assert "libvirt: no answer" in line
    assert f"{HOST}: " in hosts.err
    assert '"libvirt_problem": "' in told.out
    (line,) = [line for line in gpus.out.splitlines() if line.startswith(HOST)]
    assert "libvirt: no answer since" in line
    assert HOST not in free
    assert operator.json("list-hosts")[0]["libvirt_problem"] is None
    assert "libvirt: " not in operator.does("list-gpus").out


def events_of(operator: Operator, kind: str) -> list[dict[str, Any]]:
    return [one for one in operator.json("list-events") if one["kind"] == kind]


def test_a_reboot_and_lost_shares_are_observed_and_are_events(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("list-gpus", "--refresh")
    (before,) = [one["observed"] for one in operator.json("list-hosts") if one["host"] == HOST]
    assert (before["state"], before["agent"]["unknown_since"]) == ("up", None)
    assert operator.json("list-vms")[0]["shares"][0]["state"] == "held"
    with failing(fleet, "power-off"):
        operator.run("list-gpus", "--refresh")
        (gone,) = [
            one["observed"] for one in json.loads(operator.run("list-hosts", "--json").out) if one["host"] == HOST
        ]
        assert gone["state"] == "unreachable"
        assert [one["state"] for one in gone["gpus"].values()] == ["present"], "what was last observed"
        assert all(one["unknown_since"] for one in gone["gpus"].values())
        (line,) = [line for line in operator.does("list-gpus").out.splitlines() if line.startswith(HOST)]
        assert "unknown since" in line and ", present " in line
    operator.does("list-gpus", "--refresh")
    (after,) = [one["observed"] for one in operator.json("list-hosts") if one["host"] == HOST]
    assert after["state"] == "up"
    assert after["boot_id"] != before["boot_id"]
    assert after["booted_at"] > before["booted_at"]
    assert operator.json("list-vms")[0]["shares"][0]["state"] == "lost"
    assert "(lost)" in state_of(operator)
    assert [(one["before"], one["after"]) for one in events_of(operator, "host-observed")][-2:] == [
        ({"state": "up"}, {"state": "unreachable"}),
        ({"state": "unreachable"}, {"state": "up"}),
    ]
    assert events_of(operator, "host-rebooted")[-1]["after"] == {"boot_id": after["boot_id"]}
    (share,) = [one for one in events_of(operator, "share-observed") if one["after"] == {"state": "lost"}][-1:]
    assert (share["subject"], share["host"], share["tenant"]) == ("acme/web", HOST, "acme")
    assert events_of(operator, "vm-observed")[-1]["after"] == {"state": "shut-off"}
    operator.does("start-vm", "web", *ACME)
    operator.does("list-gpus", "--refresh")
    assert operator.json("list-vms")[0]["shares"][0]["state"] == "held"


def test_a_vm_that_was_renamed_by_hand_is_named(operator: Operator) -> None:
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    with libvirt_of(operator.inventory, HOST) as there:
        there.connection.lookupByName("acme.web").rename("other", 0)
        told = operator.json("list-vms", "--refresh")[0]
        assert (told["observed"], told["domain_name"]) == ("shut-off", "other")
        assert "renamed there to other" in operator.does(*SHOW).out
        assert events_of(operator, "vm-observed")[-1]["detail"].endswith("its domain is named other")
        there.connection.lookupByName("other").rename("acme.web", 0)
    operator.does("start-vm", "web", *ACME)


def test_a_known_hosts_with_wrong_keys_is_the_operator_s_own_failure(operator: Operator, fleet: lab.LabFolder) -> None:
    known_hosts = simulated_folder(fleet).known_hosts
    right = known_hosts.read_text()
    first, second, *others = (line.split(" ", 1) for line in right.splitlines())
    swapped = [[first[0], second[1]], [second[0], first[1]], *others]
    try:
        known_hosts.write_text("".join(f"{' '.join(line)}\n" for line in swapped))
        hosts = json.loads(operator.run("list-hosts", "--json").out)
    finally:
        known_hosts.write_text(right)
    problems = [one["host"] for one in hosts if one["problem"] is not None]
    assert problems == ["sim-001", "sim-002"], "the command says it"
    assert {one["observed"]["state"] for one in hosts} == {"up"}, "and the hosts have their keys"
    assert "unknown" not in state_of(operator)


def test_a_card_off_the_bus_is_observed(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("list-gpus", "--refresh")
    with failing(fleet, "fallen"):
        (gpu,) = [one for one in operator.json("list-gpus", "--refresh") if one["host"] == HOST]
        free = operator.does("list-gpus", "--free").out
    assert gpu["observation"]["state"] == "unreadable"
    assert "NVML does not show it" in gpu["observation"]["problem"]
    assert HOST not in free
    assert events_of(operator, "gpu-observed")[-1]["subject"].startswith(HOST)
    assert events_of(operator, "gpu-quarantined")[-1]["subject"].startswith(HOST), "no VM starts on it after this test"


def test_inspect_host_records_what_it_read_and_that_it_read_nothing(operator: Operator, fleet: lab.LabFolder) -> None:
    def observed() -> dict[str, Any]:
        return next(one["observation"] for one in operator.json("list-gpus") if one["host"] == HOST)

    before = observed()["at"]
    operator.does("inspect-host", HOST)
    after = observed()
    assert after["at"] > before and after["unknown_since"] is None
    with failing(fleet, "sshd"):
        assert operator.is_refused("inspect-host", HOST)["reference"] == "host-unreachable"
    assert observed()["unknown_since"] is not None
    operator.does("inspect-host", HOST)
    assert observed()["unknown_since"] is None


def test_inspect_host_needs_no_store(operator: Operator) -> None:
    without = replace(operator, database="sqlite:////proc/no-such-folder/store.db")
    done = without.does("inspect-host", HOST)
    assert "GPU " in done.out
    assert done.err.count("is not kept in the store") == 1
