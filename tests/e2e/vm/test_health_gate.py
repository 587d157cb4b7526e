# SPDX-License-Identifier: Apache-2.0
"""The way of a GPU back to the pool: reset, health, evidence; what is not proven is in quarantine and refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator, forgetful
from tests.lab.simulated_fixtures import machine, simulated_fleet
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import State

HOST, SHARED, WHOLE, OLD, PLAIN = "sim-001", "0000:41:00.0", "0000:43:00.0", "0000:45:00.0", "0000:47:00.0"
SIZE = ("--memory", "96MiB", "--vcpus", "1")
OF_VM = ("web-1", "--tenant", "acme")
DELETE = ("delete-vm", *OF_VM, "--yes", "--timeout", "0")
REQUESTS = {SHARED: "A40-8Q", WHOLE: "passthrough:A40", OLD: "T4-4Q", PLAIN: "vf"}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """A host with an A40 for vGPUs, one for passthrough, a T4, and a card with plain VFs."""
    with simulated_fleet(tmp_path_factory.mktemp("gate"), 1, "a40+a40/passthrough+t4+flex-170") as made:
        yield made


@pytest.fixture
def operator(hosts: lab.LabFolder, tmp_path: Path) -> Iterator[Operator]:
    """An operator with a new store, on a host whose log has no Xids. Afterwards the host has no VM and no fault."""
    (simulated_folder(hosts).host(HOST) / "root/dev/kmsg").write_text("")
    made = Operator(tmp_path, simulated_folder(hosts).inventory, f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    before = machine(hosts, HOST).state().lasting()
    yield made
    lab.faults.clear(HOST, folder=hosts)
    after = machine(hosts, HOST).state().lasting()
    assert (after.vgpus, bound(after), after.domains) == (before.vgpus, bound(before), before.domains)


def bound(state: State) -> dict[str, str]:
    """The functions that are on a driver."""
    return {function: driver for function, driver in state.drivers.items() if driver is not None}


def create(card: str, name: str = "web-1") -> tuple[str, ...]:
    return ("create-vm", name, "--tenant", "acme", "--gpu", REQUESTS[card], *SIZE)


def checked(operator: Operator) -> dict[str, Any]:
    """The only event of a share that came back."""
    (event,) = [one for one in operator.json("list-events") if one["kind"] == "share-checked"]
    assert (event["subject"], event["tenant"], event["host"]) == ("acme/web-1", "acme", HOST)
    return dict(event)


def leases(operator: Operator) -> list[str]:
    """The leases that still count for a quota."""
    with open_store(operator.database) as store, store.reading() as session:
        return [one.share.function for one in session.leases()]


def quarantined(operator: Operator) -> dict[str, str | None]:
    with open_store(operator.database) as store, store.reading() as session:
        return {one.device: one.finding for one in session.restrictions()}


_WHOLE = pytest.mark.long(
    "tests/e2e/vm/test_health_gate.py::test_a_healthy_gpu_returns_with_evidence_of_its_reset",
    "tests/e2e/vm/test_health_gate.py::test_gc_proves_the_devices_that_it_frees",
)


@pytest.mark.parametrize(("card", "reset"), [(SHARED, "by the driver"), pytest.param(WHOLE, "flr", marks=_WHOLE)])
def test_a_healthy_gpu_returns_with_evidence_of_its_reset(card: str, reset: str, operator: Operator) -> None:
    operator.does(*create(card))
    operator.does(*DELETE)
    event = checked(operator)
    assert event["detail"].endswith("healthy")
    expected = {
        "gpu": card,
        "reset": reset,
        "findings": [],
        "quarantined": False,
        "driver": "nvidia",
        "config_space": "10de:2235",
        "bars_assigned": True,
        "new_xids": [],
        "log_is_complete": True,
        "unread": [],
        "memory_test": None,
    }
    assert {key: event["evidence"][key] for key in expected} == expected
    assert event["evidence"]["vbios"] == event["evidence"]["vbios_before"] is not None
    assert quarantined(operator) == {}
    assert (event["evidence"]["rom_sha256"] is None) == (card == SHARED)
    operator.does(*create(card))
    operator.does(*DELETE)


def test_the_rom_of_a_whole_card_is_hashed_and_another_hash_is_found(operator: Operator, hosts: lab.LabFolder) -> None:
    operator.does(*create(WHOLE))
    operator.does(*DELETE)
    operator.does(*create(WHOLE))
    lab.faults.begin(HOST, "vbios-changed", card=WHOLE, folder=hosts)
    operator.does(*DELETE)
    first, second = (one for one in operator.json("list-events") if one["kind"] == "share-checked")
    assert first["evidence"]["rom_sha256"] != second["evidence"]["rom_sha256"]
    said = [one["detail"] for one in operator.json("list-events") if one["kind"] == "gpu-health"]
    assert len(said) == 2
    assert any("its ROM has another SHA-256" in text for text in said)
    assert quarantined(operator) == {WHOLE: "vbios-changed"}


@pytest.mark.long("tests/e2e/vm/test_health_gate.py::test_the_rom_of_a_whole_card_is_hashed_and_another_hash_is_found")
def test_a_look_while_a_vm_has_the_card_does_not_hide_another_vbios(operator: Operator, hosts: lab.LabFolder) -> None:
    """On vfio-pci the card does not tell its VBIOS."""
    operator.does("list-gpus", "--refresh")
    operator.does(*create(WHOLE))
    operator.does("list-gpus", "--refresh")
    lab.faults.begin(HOST, "vbios-changed", card=WHOLE, folder=hosts)
    operator.does(*DELETE)
    evidence = checked(operator)["evidence"]
    assert None not in (evidence["vbios"], evidence["vbios_before"])
    assert (evidence["vbios"] != evidence["vbios_before"], evidence["findings"]) == (True, ["vbios-changed"])
    assert quarantined(operator) == {WHOLE: "vbios-changed"}


_LATER = pytest.mark.long(
    "tests/e2e/vm/test_health_gate.py::test_a_gpu_that_is_not_proven_is_in_quarantine_and_refused",
    "tests/unit/sharing/test_health.py::test_each_value_has_its_finding",
)
OTHER_FINDINGS = (
    (SHARED, "xid", 79, "xid-restart-bm"),
    (SHARED, "ecc", 2, "ecc-uncorrected"),
    *((SHARED, one, None, one) for one in ("row-remap-pending", "row-remap-failed", "bar-unassigned", "vbios-changed")),
    *((WHOLE, one, None, one) for one in ("config-differs", "bar-unassigned", "vbios-changed", "no-reset")),
)
STAYING = {"row-remap-pending", "row-remap-failed", "page-retirement-pending", "bar-unassigned", "off-the-bus"}
"""States of a card, which are found again as long as they last; the others are things that happened."""


@pytest.mark.parametrize(
    ("card", "fault", "value", "finding"),
    [
        (SHARED, "xid", 95, "xid-reset-gpu"),
        (OLD, "pages-retired", 2, "page-retirement-pending"),
        (SHARED, "fallen", None, "off-the-bus"),
        (WHOLE, "reset-fails", None, "reset-failed"),
        pytest.param(WHOLE, "fallen", None, "off-the-bus", marks=_LATER),
        *(pytest.param(*one, marks=_LATER) for one in OTHER_FINDINGS),
    ],
)
def test_a_gpu_that_is_not_proven_is_in_quarantine_and_refused(
    card: str, fault: str, value: int | None, finding: str, operator: Operator, hosts: lab.LabFolder
) -> None:
    operator.does(*create(card))
    lab.faults.begin(HOST, fault, value, card=card, folder=hosts)
    said = operator.does(*DELETE).err
    assert f"{HOST}: in quarantine: {card}" in said
    evidence = checked(operator)["evidence"]
    assert finding in evidence["findings"]
    assert evidence["quarantined"]
    assert (evidence["reset"] is None) == (not {"reset-failed", "no-reset"}.isdisjoint(evidence["findings"]))
    assert list(quarantined(operator)) == [card]
    assert operator.json("list-vms") == leases(operator) == []
    refused = operator.is_refused(*create(card, "web-2"))
    assert any(card in line and "quarantine" in line for line in refused["context"]), refused
    if finding in STAYING:
        sick = operator.is_refused("unquarantine-gpu", HOST, card, "--reason", "it looks fine")
        assert (sick["reference"], finding in sick["message"]) == ("state", True)
    lab.faults.clear(HOST, folder=hosts)
    operator.does("list-gpus", "--refresh")
    operator.does("unquarantine-gpu", HOST, card, "--reason", "replaced")
    (planned,) = operator.json(*create(card, "web-2"), "--dry-run")
    assert planned["leases"][0]["share"]["gpu"] == card


def test_a_card_that_sickened_while_it_was_free_is_not_handed_out(operator: Operator, hosts: lab.LabFolder) -> None:
    operator.does("list-gpus", "--refresh")
    lab.faults.begin(HOST, "xid", 95, card=SHARED, folder=hosts)
    refused = operator.is_refused(*create(SHARED))
    assert any("xid-reset-gpu" in line for line in refused["context"]), refused
    assert quarantined(operator) == {SHARED: "xid-reset-gpu"}
    assert operator.json("list-vms") == []


def test_the_release_of_a_card_that_sickened_while_a_vm_had_it_says_that_it_stays_in_quarantine(
    operator: Operator, hosts: lab.LabFolder
) -> None:
    operator.does(*create(SHARED))
    lab.faults.begin(HOST, "xid", 95, card=SHARED, folder=hosts)
    operator.does("list-gpus", "--refresh")
    operator.does(*DELETE)
    event = checked(operator)
    assert (event["evidence"]["quarantined"], event["evidence"]["findings"]) == (True, [])
    assert "still in quarantine: Xid 95" in event["detail"]


def test_a_stopped_vm_does_not_start_on_a_card_that_sickened(operator: Operator, hosts: lab.LabFolder) -> None:
    operator.does(*create(SHARED))
    operator.does("stop-vm", *OF_VM, "--timeout", "0")
    lab.faults.begin(HOST, "row-remap-failed", card=SHARED, folder=hosts)
    assert "row-remap-failed" in operator.is_refused("start-vm", *OF_VM)["message"]
    assert operator.is_refused("start-vm", *OF_VM)["exit_code"] != 0
    operator.does(*DELETE)


def test_a_creation_that_is_rolled_back_after_the_guests_start_leaves_evidence_too(
    operator: Operator, hosts: lab.LabFolder
) -> None:
    wedged = wedge_next(operator, hosts)
    operator.is_refused(*create(SHARED))
    assert checked(operator)["evidence"]["reset"] == "by the driver"
    assert operator.json("list-vms") == leases(operator) == []
    assert quarantined(operator) == {wedged: "vf-wedged"}


STEPS = {
    "end of use": {"busy", "removal-delay"},
    "clearing read back": {"removal-ignored"},
    "reset": {"reset-fails", "flr-fails", "no-reset"},
    "config space": {"fallen", "config-differs"},
    "BARs": {"bar-unassigned"},
    "driver": {"driver-lost"},
    "ECC": {"ecc"},
    "row remapping": {"row-remap-pending", "row-remap-failed"},
    "retired pages": {"pages-retired"},
    "pending Xids": {"xid"},
    "VBIOS hash": {"vbios-changed"},
}
"""The steps of the gate and the lab's faults that provoke each; NVML's own word and the operator's command beside."""


def test_every_step_of_the_gate_is_provoked_by_a_fault_in_this_file() -> None:
    text = Path(__file__).read_text()
    for step, faults in STEPS.items():
        assert faults <= lab.faults.KINDS.keys()
        assert any(text.count(f'"{fault}"') > 1 for fault in faults), step


def test_the_reset_that_worked_is_in_the_evidence(operator: Operator, hosts: lab.LabFolder) -> None:
    """FLR fails; the kernel has another way."""
    operator.does(*create(WHOLE))
    lab.faults.begin(HOST, "flr-fails", card=WHOLE, folder=hosts)
    operator.does(*DELETE)
    evidence = checked(operator)["evidence"]
    assert (evidence["reset"], evidence["findings"]) == ("bus", [])
    assert quarantined(operator) == {}


def test_a_vf_whose_reset_fails_is_in_quarantine_by_itself(operator: Operator, hosts: lab.LabFolder) -> None:
    operator.does(*create(PLAIN))
    (function,) = leases(operator)
    lab.faults.begin(HOST, "reset-fails", card=PLAIN, folder=hosts)
    operator.does(*DELETE)
    evidence = checked(operator)["evidence"]
    assert (evidence["reset"], evidence["findings"], evidence["device"]) == (None, ["reset-failed"], function)
    assert quarantined(operator) == {function: "reset-failed"}
    lab.faults.clear(HOST, folder=hosts)
    operator.does(*create(PLAIN, "web-2"))
    assert leases(operator) != [function]
    operator.does("delete-vm", "web-2", "--tenant", "acme", "--yes", "--timeout", "0")
    assert operator.json("unquarantine-gpu", HOST, function, "--reason", "power-cycled")["changed"]
    assert quarantined(operator) == {}


def test_a_card_that_its_driver_does_not_take_back_is_in_quarantine(operator: Operator, hosts: lab.LabFolder) -> None:
    operator.does(*create(WHOLE))
    lab.faults.begin(HOST, "driver-lost", card=WHOLE, folder=hosts)
    operator.does(*DELETE)
    evidence = checked(operator)["evidence"]
    assert (evidence["reset"], evidence["driver"]) == ("flr", None)
    assert "driver-differs" in evidence["findings"]
    assert WHOLE in quarantined(operator)
    assert operator.json("list-vms") == leases(operator) == []
    lab.faults.clear(HOST, folder=hosts)
    with machine(hosts, HOST).change() as state:
        state.drivers[WHOLE] = "nvidia"


def test_a_vgpu_that_stays_keeps_its_lease_until_it_is_gone(operator: Operator, hosts: lab.LabFolder) -> None:
    """The driver accepts the removal, and the agent reads the vGPU back until it gives up."""
    operator.does(*create(SHARED))
    lab.faults.begin(HOST, "removal-ignored", card=SHARED, folder=hosts)
    refused = operator.is_refused(*DELETE)
    assert "reads" in refused["message"]
    with open_store(operator.database) as store, store.reading() as session:
        assert [str(one.state) for one in session.leases()] == ["broken"]
    assert not [one for one in operator.json("list-events") if one["kind"] == "share-checked"]
    lab.faults.clear(HOST, folder=hosts)
    operator.does(*DELETE)
    assert checked(operator)["evidence"]["findings"] == []
    assert operator.json("list-vms") == leases(operator) == []


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("/etc/vgpulab/nvml_codes", "nvmlDeviceGetTotalEccErrors 16\n", "reset-required"),
        pytest.param("/etc/vgpulab/nvml_codes", "nvmlDeviceGetTotalEccErrors 999\n", "health-unread", marks=_LATER),
        ("/proc/driver/nvidia/params", 'RegistryDwords: "RMDisableScrubOnFree=1"\n', "scrub-off"),
    ],
)
def test_what_the_driver_says_of_the_card_or_of_itself_counts(
    path: str, text: str, finding: str, operator: Operator, hosts: lab.LabFolder
) -> None:
    operator.does(*create(SHARED))
    there = simulated_folder(hosts).host(HOST) / f"root{path}"
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text(text)
    try:
        operator.does(*DELETE)
    finally:
        there.unlink()
    assert finding in checked(operator)["evidence"]["findings"]
    assert quarantined(operator)[SHARED] == finding


def wedge_next(operator: Operator, hosts: lab.LabFolder) -> str:
    """Wedge the VF that the next VM would get. Returns its address."""
    (planned,) = operator.json(*create(SHARED, "next"), "--dry-run")
    function = str(planned["leases"][0]["share"]["function"])
    there = machine(hosts, HOST)
    vfs = there.state().vfs_of(next(one for one in there.shape.cards if one.address == SHARED))
    lab.faults.begin(HOST, "vf-wedged", vfs.index(function) + 1, card=SHARED, folder=hosts)
    return function


@pytest.mark.long(
    "tests/e2e/vm/test_health_gate.py::test_a_creation_that_is_rolled_back_after_the_guests_start_leaves_evidence_too",
)
def test_a_start_with_new_shares_that_is_rolled_back_leaves_evidence_too(
    operator: Operator, hosts: lab.LabFolder
) -> None:
    operator.does(*create(SHARED))
    operator.does("stop-vm", *OF_VM, "--hold", "release", "--timeout", "0")
    wedged = wedge_next(operator, hosts)
    assert wedged in operator.is_refused("start-vm", *OF_VM)["message"]
    events = [one for one in operator.json("list-events") if one["kind"] == "share-checked"]
    assert [one["evidence"]["reset"] for one in events] == ["by the driver"] * 2
    assert wedged in [one["evidence"]["device"] for one in events]
    assert leases(operator) == []
    assert quarantined(operator) == {wedged: "vf-wedged"}
    operator.does(*DELETE)


@pytest.mark.parametrize(
    ("card", "kinds", "reset"),
    [(SHARED, ("domain", "vgpu"), "by the driver"), pytest.param(WHOLE, ("domain",), "flr", marks=_WHOLE)],
)
def test_gc_proves_the_devices_that_it_frees(
    card: str, kinds: tuple[str, ...], reset: str, operator: Operator, hosts: lab.LabFolder, tmp_path: Path
) -> None:
    """A store that has forgotten the VM, and a domain that is off: its devices were a tenant's."""
    operator.does(*create(card))
    operator.does("stop-vm", *OF_VM, "--timeout", "0")
    other = forgetful(operator, tmp_path, "acme")
    lab.faults.begin(HOST, "bar-unassigned", card=card, folder=hosts)
    for kind in kinds:
        assert {one["outcome"] for one in other.json("gc", "--kind", kind, "--yes")} == {"deleted"}
    (event,) = [one for one in other.json("list-events") if one["kind"] == "share-checked"]
    assert (event["tenant"], event["subject"]) == (None, f"{HOST} {event['evidence']['device']}")
    assert event["evidence"]["gpu"] == card
    assert (event["evidence"]["reset"], event["evidence"]["lease"]) == (reset, None)
    assert event["evidence"]["findings"] == ["bar-unassigned"]
    assert quarantined(other) == {card: "bar-unassigned"}
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/vm/test_health_gate.py::test_a_healthy_gpu_returns_with_evidence_of_its_reset",
    "tests/e2e/vm/test_attach_gpu.py::test_a_stopped_vm_gets_a_whole_card_and_gives_it_back",
)
def test_a_stop_that_releases_the_shares_leaves_evidence_too(operator: Operator) -> None:
    operator.does(*create(WHOLE))
    operator.does("stop-vm", *OF_VM, "--hold", "release", "--timeout", "0")
    assert checked(operator)["evidence"]["reset"] == "flr"
    operator.does(*DELETE)


def with_policy(operator: Operator, folder: Path, policy: str) -> Operator:
    """The operator with `vgpu_health` in the inventory."""
    (folder / "hosts.yml").write_text(operator.inventory.read_text())
    (folder / "group_vars").mkdir(exist_ok=True)
    (folder / "group_vars/all.yml").write_text(f"vgpu_health: {policy}\n")
    return Operator(folder, folder / "hosts.yml", operator.database)


def test_a_policy_that_cannot_be_read_is_refused_and_what_runs_comes_back_by_the_default(
    operator: Operator, hosts: lab.LabFolder, tmp_path: Path
) -> None:
    operator.does(*create(SHARED))
    own = with_policy(operator, tmp_path, "{tolerate: [row-remap]}")
    for command in (("list-gpus",), ("list-hosts",), ("check-hosts",), create(SHARED, "web-2"), ("start-vm", *OF_VM)):
        done = own.run(*command)
        assert done.code == 3, command
        assert f"all.yml:1: vgpu_health.tolerate[0] of host '{HOST}' is 'row-remap'" in done.err, command
    assert HOST in own.run("list-hosts").out
    lab.faults.begin(HOST, "row-remap-pending", card=SHARED, folder=hosts)
    assert f"warning: {HOST}: the default policy" in own.does(*DELETE).err
    assert checked(operator)["evidence"]["findings"] == ["row-remap-pending"]
    assert quarantined(operator) == {SHARED: "row-remap-pending"}
    assert operator.json("list-vms") == leases(operator) == []


_PASSED = pytest.mark.long(
    "tests/e2e/vm/test_health_gate.py::test_the_operators_memory_test_decides_before_a_whole_gpu_returns"
)


@pytest.mark.parametrize(("command", "passed"), [pytest.param("/bin/true", True, marks=_PASSED), ("/bin/false", False)])
def test_the_operators_memory_test_decides_before_a_whole_gpu_returns(
    command: str, passed: bool, operator: Operator, tmp_path: Path
) -> None:
    own = with_policy(operator, tmp_path, f"{{memory_test: {command}}}")
    own.does(*create(SHARED))
    own.does(*create(SHARED, "web-2"))
    own.does("delete-vm", "web-2", "--tenant", "acme", "--yes", "--timeout", "0")
    assert quarantined(own) == {}, "the card still serves another VM: it was not tested"
    own.does(*DELETE)
    events = [one for one in own.json("list-events") if one["kind"] == "share-checked"]
    assert [one["evidence"]["memory_test"] for one in events] == [None, passed]
    assert quarantined(own) == ({} if passed else {SHARED: "memory-test-failed"})


def test_a_gpu_that_the_host_still_uses_cannot_be_reset_and_its_vm_is_deleted(
    operator: Operator, hosts: lab.LabFolder
) -> None:
    operator.does(*create(WHOLE))
    operator.does("stop-vm", *OF_VM, "--timeout", "0")
    lab.faults.begin(HOST, "busy", card=WHOLE, folder=hosts)
    operator.does(*DELETE)
    assert checked(operator)["evidence"]["findings"] == ["reset-failed"]
    assert quarantined(operator) == {WHOLE: "reset-failed"}


def test_what_a_command_does_to_a_card_is_no_observation(operator: Operator) -> None:
    """A whole card goes to vfio-pci and back, and its UUID is known on its own driver alone."""
    operator.does("list-gpus", "--refresh")
    for name in ("web-1", "web-2"):
        operator.does(*create(WHOLE, name))
        operator.does("list-gpus", "--refresh")
        operator.does("delete-vm", name, "--tenant", "acme", "--yes", "--timeout", "0")
        operator.does("list-gpus", "--refresh")
    assert operator.json("list-events", "--kind", "gpu-observed") == []
