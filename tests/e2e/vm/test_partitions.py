# SPDX-License-Identifier: Apache-2.0
"""Partitions of the NVSwitch fabric: active exactly while a VM runs with their GPUs, on hosts of both modes."""

import json
from collections.abc import Iterable, Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.host.test_adopt_host import pci
from tests.e2e.kills import kill_after, paired_points
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.test_watched_hosts import controller, soon
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.lab.simulated_fixtures import machine
from vgpuctl.agent.fabric_manager import CONFIG
from vgpuctl.agent.facts import fabric_notes

__all__ = ["operator"]

FLEET = (3, "h100-sxm5/passthrough~fabric-shared*8,h100-sxm5~fabric-vgpu*8,h100-sxm5/passthrough*8")
SHARED, VGPU, BARE = "sim-001", "sim-002", "sim-003"
FORCED = ("--timeout", "0")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet: lab.LabFolder) -> Iterator[None]:
    """Every test ends with nothing to repair and no partition active."""
    yield
    for host in (SHARED, VGPU):
        lab.faults.clear(host, folder=fleet)
    operator.delete_all_vms()
    assert operator.json("repair") == []
    assert active(fleet, SHARED) == active(fleet, VGPU) == []


def active(fleet: lab.LabFolder, host: str) -> list[int]:
    return sorted(machine(fleet, host).state().fabric.active)


def create(operator: Operator, name: str, gpu: str, *more: str) -> None:
    operator.does("create-vm", name, *ACME, *SIZE, "--gpu", gpu, *more)


_OTHERS = pytest.mark.long(
    "tests/e2e/vm/test_partitions.py::test_a_partition_is_active_while_its_vm_runs",
    "tests/e2e/vm/test_partitions_elsewhere.py::test_a_vm_moves_with_a_partition_on_either_host",
    "tests/agent/test_partitions.py::test_a_partition_lives_as_long_as_its_vm",
)


@pytest.mark.parametrize(
    ("host", "gpu", "number"),
    [
        (SHARED, "passthrough:H100*2", 3),
        pytest.param(SHARED, "passthrough", 7, marks=_OTHERS),
        pytest.param(VGPU, "H100XM-80C*4", 1, marks=_OTHERS),
        pytest.param(VGPU, "H100XM-80C", 7, marks=_OTHERS),
    ],
)
def test_a_partition_is_active_while_its_vm_runs(
    operator: Operator, fleet: lab.LabFolder, host: str, gpu: str, number: int
) -> None:
    create(operator, "web", gpu, "--host", host)
    assert active(fleet, host) == [number]
    is_alone = gpu.partition("*")[2] == ""
    rows = operator.ends(0 if is_alone else 14, "check-vm", "web", *ACME)["findings"]
    assert [(one["verdict"], one["subject"]) for one in rows if one["row"] == "partition"] == [("kept", str(number))]
    (peers,) = [one for one in rows if one["row"] == "gpu-peers"] or [None]
    assert (peers is None) is is_alone
    if peers is not None:  # the tenant has not allowed the probe
        assert peers["verdict"] == "not-looked-at" and "`guest_probe: true`" in peers["why"]
        kept = operator.json("show-vm", "web", *ACME)["promises"]
        assert peers in [one["finding"] for one in kept]
    shown = operator.json("show-vm", "web", *ACME)["partition"]
    assert (shown["number"], shown["is_active"]) == (number, True)
    for hold in ("keep", "release"):
        operator.does("stop-vm", "web", *ACME, *FORCED, "--hold", hold)
        assert active(fleet, host) == []
        shown = operator.json("show-vm", "web", *ACME)["partition"]
        assert (shown and (shown["number"], shown["is_active"])) == ((number, False) if hold == "keep" else None)
        operator.does("start-vm", "web", *ACME)
        assert active(fleet, host) == [number]
    operator.does("restart-vm", "web", *ACME, *FORCED)
    assert active(fleet, host) == [number]
    if host == VGPU:
        operator.does("suspend-vm", "web", *ACME)
        assert active(fleet, host) == []
        operator.does("resume-vm", "web", *ACME)
        assert active(fleet, host) == [number]
    operator.does("delete-vm", "web", *ACME, "--yes", *FORCED)
    assert active(fleet, host) == []


@pytest.mark.long(
    "tests/e2e/vm/test_partitions.py::test_a_controller_sets_partitions_without_a_word_and_touches_no_vm",
    "tests/agent/test_partitions.py::test_notes_of_what_is_not_active_any_more_are_forgotten",
)
def test_the_end_of_a_guest_a_reboot_and_a_kill_leave_nothing_that_repair_does_not_mend(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED)
    create(operator, "db", "passthrough:H100*4", "--host", SHARED)
    assert active(fleet, SHARED) == [2, 3]
    with libvirt_of(operator.inventory, SHARED) as there:  # both guests end, and nobody tells vgpuctl
        for name in ("web", "db"):
            there.connection.lookupByName(f"acme.{name}").destroy()
    found = [one["found"] for one in operator.json("repair", "--dry-run") if "NVSwitch" in one["found"]]
    assert found == [f"partition {one} of the NVSwitch fabric is active, and no VM runs with it" for one in (2, 3)]
    assert active(fleet, SHARED) == [2, 3]
    operator.json("repair")
    assert active(fleet, SHARED) == []
    operator.does("start-vm", "web", "db", *ACME)
    lab.simulated.reboot(SHARED, folder=fleet)
    operator.json("repair")
    assert active(fleet, SHARED) == []
    operator.does("start-vm", "db", "web", *ACME)
    assert active(fleet, SHARED) == [2, 3]


@pytest.mark.parametrize("fault", ["fabric-restarted", "fabric-starting"])
@pytest.mark.long(
    "tests/e2e/vm/test_partitions.py::test_without_fabric_manager_no_vm_starts_and_its_rows_are_not_looked_at",
    "tests/e2e/vm/test_partitions.py::test_a_controller_sets_partitions_without_a_word_and_touches_no_vm",
)
def test_a_fabric_manager_that_came_back_is_told_the_partitions(
    operator: Operator, fleet: lab.LabFolder, fault: str
) -> None:
    create(operator, "web", "H100XM-80C*2", "--host", VGPU)
    create(operator, "db", "H100XM-80C", "--host", VGPU)
    lab.faults.begin(VGPU, fault, 1 if fault == "fabric-starting" else None, folder=fleet)
    if fault == "fabric-starting":
        with machine(fleet, VGPU).change() as state:
            state.skipped_s += 1
        rows = operator.run("check-vm", "web", *ACME, "--json")
        assert rows.code
    before = machine(fleet, VGPU).state().domains
    operator.json("repair")
    assert active(fleet, VGPU) == [3, 8]
    assert machine(fleet, VGPU).state().domains == before, "the running VMs were not touched"
    kinds = [one["kind"] for one in operator.json("list-events", "--kind", "partitions-set")]
    assert kinds


def test_without_fabric_manager_no_vm_starts_and_its_rows_are_not_looked_at(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED)
    lab.faults.begin(SHARED, "fabric-dead", folder=fleet)
    rows = json.loads(operator.run("check-vm", "web", *ACME, "--json").out)["findings"]
    (row,) = [one for one in rows if one["row"] == "partition"]
    assert row["verdict"] == "not-looked-at"
    operator.does("list-gpus", "--refresh", "--limit", SHARED)
    shown = operator.json("show-vm", "web", *ACME)
    assert (shown["partition"], shown["partition_problem"]) == (None, row["why"])
    assert f"fabric    its partition is not known: {row['why']}" in operator.does("show-vm", "web", *ACME).out
    refused = operator.is_refused("create-vm", "db", *ACME, *SIZE, "--gpu", "passthrough", "--host", SHARED)
    assert "Fabric Manager tells no partitions" in str(refused)
    lab.faults.clear(SHARED, folder=fleet)
    operator.json("repair")  # it came back, and waits to be told the partition of the VM that runs
    assert active(fleet, SHARED) == [3]
    operator.does("list-gpus", "--refresh", "--limit", SHARED)
    create(operator, "db", "passthrough", "--host", SHARED)


_PLACED = pytest.mark.long("tests/unit/scheduler/test_partitions.py::test_why_a_host_takes_none")


@pytest.mark.parametrize(
    ("host", "gpu", "said"),
    [
        (SHARED, "passthrough:H100*3", "no partition of its NVSwitch fabric has 3 GPUs"),
        pytest.param(VGPU, "H100XM-40C", "leaves room for other vGPUs", marks=_PLACED),
        pytest.param(BARE, "passthrough:H100*8", "fabric: {mode: shared}", marks=_PLACED),
    ],
)
def test_what_would_not_compute_is_refused_with_what_to_do(operator: Operator, host: str, gpu: str, said: str) -> None:
    done = operator.run("create-vm", "web", *ACME, *SIZE, "--gpu", gpu, "--host", host)
    assert done.code
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.long("tests/unit/scheduler/test_partitions.py::test_each_vm_gets_a_partition_and_the_large_ones_stay")
def test_gpus_are_chosen_so_that_large_partitions_stay(operator: Operator, fleet: lab.LabFolder) -> None:
    create(operator, "one", "passthrough", "--host", SHARED)
    create(operator, "two", "passthrough", "--host", SHARED)
    assert active(fleet, SHARED) == [7, 9]  # modules 1 and 3, a pair on this board
    create(operator, "pair", "passthrough:H100*2", "--host", SHARED)
    create(operator, "four", "passthrough:H100*4", "--host", SHARED)
    assert active(fleet, SHARED) == [2, 4, 7, 9]
    done = operator.run("create-vm", "more", *ACME, *SIZE, "--gpu", "passthrough", "--host", SHARED)
    assert done.code


def test_a_partition_does_not_change_under_a_vm_and_a_resize_takes_another(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED)
    assert "as one partition" in operator.run("attach-gpu", "web", "passthrough", *ACME).err
    assert "as one partition" in operator.run("detach-gpu", "web", "0", *ACME).err
    operator.does("resize-vm", "web", *ACME, "--gpu", "passthrough:H100*4", "--restart", "--shutdown-timeout", "0")
    assert active(fleet, SHARED) == [1]
    operator.does("resize-vm", "web", *ACME, "--gpu", "passthrough:H100", "--restart", "--shutdown-timeout", "0")
    assert len(active(fleet, SHARED)) == 1


@pytest.mark.long("tests/agent/test_partitions.py::test_the_modules_are_known_while_a_vm_has_the_cards")
def test_modules_are_noted_before_a_vm_has_the_cards(operator: Operator, fleet: lab.LabFolder) -> None:
    create(operator, "web", "passthrough:H100*8", "--host", SHARED)
    assert (machine(fleet, SHARED).root / fabric_notes.PATH.lstrip("/")).exists()
    seen = operator.json("inspect-host", SHARED)
    assert [gpu["topology"]["module"] for gpu in seen["gpus"]] == list(range(1, 9))
    assert [one["vm"] is not None for one in seen["fabric_manager"]["partitions"] if one["is_active"]] == [True]


def test_a_controller_sets_partitions_without_a_word_and_touches_no_vm(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED)
    create(operator, "db", "passthrough", "--host", SHARED)
    before = machine(fleet, SHARED).state().domains
    with controller(operator):
        lab.faults.begin(SHARED, "fabric-restarted", folder=fleet)
        soon(lambda: machine(fleet, SHARED).state().fabric.window_ends is None)
        assert active(fleet, SHARED) == [3, 8]
        lab.faults.begin(SHARED, "fabric-starting", 1, folder=fleet)  # it has lost all partitions
        soon(lambda: active(fleet, SHARED) == [3, 8])
        assert machine(fleet, SHARED).state().domains == before
        with libvirt_of(operator.inventory, SHARED) as there:
            there.connection.lookupByName("acme.db").destroy()
        soon(lambda: active(fleet, SHARED) == [3])
    assert machine(fleet, SHARED).state().fabric.window_ends is None


@pytest.mark.parametrize(("host", "gpu"), [(SHARED, "passthrough:H100*2"), (VGPU, "H100XM-80C*2")])
@pytest.mark.long(
    "tests/e2e/vm/test_partitions.py::test_a_controller_sets_partitions_without_a_word_and_touches_no_vm",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_command_that_is_killed_leaves_no_partition_without_its_vm(
    operator: Operator, fleet: lab.LabFolder, host: str, gpu: str
) -> None:
    make = ("create-vm", "web", *ACME, *SIZE, "--gpu", gpu, "--host", host)
    drop = ("delete-vm", "web", *ACME, "--yes", *FORCED)
    for made, dropped in paired_points(operator, make, drop, most=3):
        kill_after(operator, made, *make)
        operator.does("repair")
        assert_as_promised(operator, fleet, host, f"created until side effect {made}")
        if not operator.json("list-vms"):
            operator.does(*make)
        kill_after(operator, dropped, *drop)
        operator.does("repair")
        assert_as_promised(operator, fleet, host, f"deleted until side effect {dropped}")
        operator.delete_all_vms()


def assert_as_promised(operator: Operator, fleet: lab.LabFolder, host: str, text: str) -> None:
    """The VM runs with its partition, or there is neither."""
    runs = [one["vm"]["state"] for one in operator.json("list-vms")]
    assert active(fleet, host) == ([3] if runs else []), f"{text}: {runs}"


@pytest.mark.long(
    "tests/e2e/vm/test_partitions.py::test_a_reservation_whose_partition_lost_links_is_refused_with_what_to_do",
    "tests/e2e/vm/test_partitions.py::test_a_fabric_manager_that_cannot_be_read_is_not_one_that_is_missing",
)
def test_links_that_failed_since_the_host_was_read_keep_a_vm_from_their_partition(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED, "--partition", "3")
    operator.does("stop-vm", "web", *ACME, *FORCED)
    lab.faults.begin(SHARED, "nvlink-failed", 2, folder=fleet)
    done = operator.run("start-vm", "web", *ACME)
    assert done.code and "have lost NVLinks: module 1 (0000:41:00.0)" in done.err and active(fleet, SHARED) == []
    operator.does("stop-vm", "web", *ACME, *FORCED, "--hold", "release")
    create(operator, "db", "passthrough:H100*2", "--host", SHARED)
    assert active(fleet, SHARED) == [4]
    refused = operator.run("create-vm", "all", *ACME, *SIZE, "--gpu", "passthrough:H100*8", "--host", SHARED)
    assert refused.code and "lost NVLinks: module 1 (0000:41:00.0)" in refused.err


@pytest.mark.long(
    "tests/e2e/vm/test_uses.py::test_every_command_of_the_page_runs",
    "tests/unit/scheduler/test_partitions.py::test_a_partition_is_named_by_hand",
)
def test_commands_name_the_partition_of_gpus_before_and_after_they_are_given(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    pair = ("--gpu", "passthrough:H100*2", "--host", SHARED)
    named = "partition 3 of modules 1, 3"
    assert f"; {named} (policy " in operator.does("explain-vm", "web", *ACME, *SIZE, *pair).out
    assert operator.json("explain-vm", "web", *ACME, *SIZE, *pair)[0]["partition_number"] == 3
    wanted = ("create-vm", "web", *ACME, *SIZE, *pair)
    assert f"; {named}\n" in operator.does(*wanted, "--dry-run").out
    assert f"; {named}" in operator.does(*wanted).out
    assert [(one["changed"], one["partition_number"]) for one in operator.json(*wanted)] == [(False, 3)]
    alone = operator.json("create-vm", "db", *ACME, *SIZE, "--gpu", "none")
    assert [one["partition_number"] for one in alone] == [None]


def test_a_reservation_whose_partition_lost_links_is_refused_with_what_to_do(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    operator.does("reserve", "soon", *ACME, "--gpu", "passthrough:H100*2", "--from", "now", "--until", "2099-01-01")
    try:
        assert "partition 3 of modules 1, 3" in operator.does("show-reservation", "soon", *ACME).out
        assert operator.json("show-reservation", "soon", *ACME)["partition"]["number"] == 3
        lab.faults.begin(SHARED, "nvlink-failed", 2, folder=fleet)
        refused = operator.run("create-vm", "web", *ACME, *SIZE, "--reservation", "soon")
        assert refused.code and "have lost NVLinks: module 1 (0000:41:00.0)" in refused.err
        assert "cancel the reservation and reserve anew" in refused.err
        assert refused.err.count("placing again") == 1  # as its hosts were read before, it fitted
        assert active(fleet, SHARED) == []
        assert "modules 1, 3, module 1 has lost 2 of 18 NVLinks" in operator.does("show-reservation", "soon", *ACME).out
    finally:
        operator.does("cancel-reservation", "soon", *ACME, "--yes")


HIDDEN = ("<features><kvm><hidden state='on'/></kvm></features>", "<cpu mode='host-passthrough'>{}</cpu>")
NO_HYPERVISOR = HIDDEN[1].format("<feature policy='disable' name='hypervisor'/>")
ADOPT = ("--vm", "hpc=acme/hpc")


def domain(cards: Iterable[str], settings: str = "") -> str:
    """A domain of somebody else's with whole cards."""
    return (
        f"<domain type='kvm'><name>hpc</name><memory unit='MiB'>512</memory><vcpu>1</vcpu>"
        f"<os><type arch='x86_64' machine='q35'>hvm</type></os>{settings}"
        f"<devices>{''.join(pci(one, 'yes') for one in cards)}</devices></domain>"
    )


def test_an_adopted_domain_gets_its_partition_and_must_not_hide_kvm(operator: Operator, fleet: lab.LabFolder) -> None:
    create(operator, "first", "passthrough:H100*2", "--host", SHARED)  # the agent notes where each module is
    shown = operator.json("show-vm", "first", *ACME)
    cards, number = [one["share"]["gpu"] for one in shown["leases"]], shown["partition"]["number"]
    operator.delete_all_vms()
    with libvirt_of(operator.inventory, SHARED) as there:
        for settings in (HIDDEN[0], NO_HYPERVISOR):
            there.define(domain(cards, settings))
            (why,) = operator.is_refused("adopt-host", SHARED, *ADOPT)["context"]
            assert "hpc: it hides KVM" in why and "virsh edit" in why
            there.undefine("hpc")
        there.define(domain(cards, HIDDEN[1].format("")))
        there.start("hpc")
    assert active(fleet, SHARED) == []
    operator.does("adopt-host", SHARED, *ADOPT)
    (found,) = [one["found"] for one in operator.json("repair") if "NVSwitch" in one["found"]]
    assert (found, active(fleet, SHARED)) == ("its partition of the NVSwitch fabric is not active", [number])


def test_an_adopted_domain_with_all_gpus_of_a_host_in_fabric_mode_0_needs_no_partition(operator: Operator) -> None:
    cards = [one["address"] for one in operator.json("inspect-host", BARE)["gpus"]]
    with libvirt_of(operator.inventory, BARE) as there:
        there.define(domain(cards))
        there.start("hpc")
    operator.does("adopt-host", BARE, *ADOPT)
    assert not {one["row"] for one in operator.json("check-vm", "hpc", *ACME)["findings"]} & {"partition", "gpu-peers"}
    operator.does("restart-vm", "hpc", *ACME, *FORCED)


def test_a_fabric_manager_that_cannot_be_read_is_not_one_that_is_missing(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create(operator, "web", "passthrough:H100*2", "--host", SHARED)
    operator.does("stop-vm", "web", *ACME, *FORCED)
    config = machine(fleet, SHARED).root / CONFIG.lstrip("/")
    kept = config.read_text()
    config.unlink()
    config.mkdir()
    try:
        done = operator.run("start-vm", "web", *ACME)
        assert done.code and "nobody knows what Fabric Manager has active" in done.err
        assert "nobody knows" in operator.run("repair").out
    finally:
        config.rmdir()
        config.write_text(kept)
    operator.does("start-vm", "web", *ACME)
    assert active(fleet, SHARED) == [3]
