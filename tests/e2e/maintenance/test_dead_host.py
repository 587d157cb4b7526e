# SPDX-License-Identifier: Apache-2.0
"""A host that died: fenced, its VMs elsewhere or said to be lost, forgotten, and trusted again only when clean."""

import json
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.libvirtd.storage import Storage

__all__ = ["operator"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--gpu", "A40-8Q")
PARTIAL = 10
HOST, OTHER, THIRD = "sim-001", "sim-002", "sim-003"
DEAD = ("--fenced", "--reason", "no power", "--yes")


def _vms(operator: Operator) -> dict[str, tuple[str, str]]:
    listed = [one["vm"] for one in operator.json("list-vms")]
    return {one["request"]["name"]: (one["host"], one["state"]) for one in listed}


def _domains(operator: Operator, host: str) -> set[str]:
    with libvirt_of(operator.inventory, host) as there:
        return {one.name for one in there.domains()}


def test_a_dead_host_is_fenced_evacuated_forgotten_and_trusted_again(
    operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    for host in (OTHER, THIRD):
        operator.does("cordon-host", host, "--reason", "the test wants the first")
    operator.does("create-vm", "web", *ACME, *SIZE, "--priority", "high")
    operator.does("create-vm", "data", *ACME, *SIZE, "--disk", "64MiB")
    operator.does("create-vm", "bound", *ACME, *SIZE, "--host", HOST)
    operator.does("uncordon-host", OTHER)

    alive = operator.is_refused("evacuate-host", HOST, *DEAD)
    assert (alive["reference"], "answers, so it is not dead" in alive["message"]) == ("state", True)
    unsaid = operator.is_refused("evacuate-host", HOST, "--reason", "no power", "--yes")
    assert (unsaid["reference"], "vgpu_fencing" in unsaid["hint"]) == ("usage", True)
    for refused, options in ((alive, DEAD), (unsaid, DEAD[1:])):
        assert operator.is_refused("evacuate-host", HOST, *options, "--dry-run") == refused, "as the run in this state"

    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        planned = operator.ends(PARTIAL, "evacuate-host", HOST, *DEAD, "--plan")["vms"]
        assert {one["subject"]: one["verdict"] for one in planned} == {
            "acme/web": "move", "acme/data": "lost", "acme/bound": "stay",
        }  # fmt: skip
        assert set(_vms(operator).values()) == {(HOST, "running")}

        partial = operator.is_refused("evacuate-host", HOST, *DEAD)
        assert partial["reference"] == "partial-failure"
        assert ["created for host sim-001" in line for line in partial["context"]] == [True]
        assert _vms(operator) == {"web": (OTHER, "running"), "data": (HOST, "stopped"), "bound": (HOST, "running")}
        (data,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "data"]
        assert data["vm"]["problem"].startswith("lost: its disk was on sim-001 itself")
        assert data["leases"] == []
        assert "declared dead" in str(operator.is_refused("start-vm", "data", *ACME))
        operator.does("delete-vm", "data", *ACME, "--yes")
        assert [one["outcome"] for one in operator.json("repair")] == []

        assert operator.json("forget-host", HOST, *DEAD)["changed"]
        assert not operator.json("forget-host", HOST, *DEAD)["changed"]
        assert len(operator.json("list-events", "--kind", "host-forgotten")) == 1
        assert _vms(operator) == {"web": (OTHER, "running")}
        (tenant,) = operator.json("list-tenants")
        assert "24576" not in str(tenant), "the quota of the dead host's VMs is free"
        upgrade = operator.run("plan-upgrade", "--driver", "590.44.01")
        assert f"fenced, so nothing is planned there: {HOST}\n" in upgrade.err and HOST not in upgrade.out
    finally:
        lab.faults.clear(HOST, folder=fleet)

    (explained,) = operator.json("explain-vm", "new", *ACME, *SIZE, "--host", HOST)
    assert "host-fenced" in {one["code"] for one in explained["answers"]}
    assert _domains(operator, HOST) == {"acme.web", "acme.data", "acme.bound"}, "it only looked dead"
    left = {one["name"]: one["left"] for one in operator.json("gc", "--dry-run", "--limit", HOST)}
    assert left["acme.web"].endswith("`vgpuctl uncordon-host sim-001` ends it"), left
    remains = operator.is_refused("uncordon-host", HOST)
    assert remains["reference"] == "state"
    assert _domains(operator, HOST) == {"acme.data", "acme.bound"}, "the VM that runs elsewhere is ended at once"
    assert _domains(operator, OTHER) == {"acme.web"}
    with libvirt_of(operator.inventory, HOST) as there:
        for name in ("acme.data", "acme.bound"):
            there.destroy(name)
    operator.does("gc", "--limit", HOST, "--kind", "domain", "--kind", "volume", "--yes")
    operator.run("gc", "--limit", HOST, "--kind", "vgpu", "--yes")
    remains = operator.is_refused("uncordon-host", HOST)
    assert "1 volume of no VM" in remains["message"], "forget-host dropped its record, so gc does not delete it"
    with libvirt_of(operator.inventory, HOST) as there:
        (volume,) = Storage(there).volumes("default")
        assert volume.name in remains["context"][0]
        Storage(there).delete_volume("default", volume.name)
    assert operator.json("uncordon-host", HOST, "--reason", "it was the switch")["changed"]
    kinds = {one["kind"] for one in operator.json("list-events")}
    assert {"host-fenced", "vm-lost", "vm-moved", "host-forgotten", "vm-stale-ended", "host-trusted"} <= kinds
    operator.does("create-vm", "again", *ACME, *SIZE, "--host", HOST)
    for name in ("again", "web"):
        operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


def test_a_lost_vm_keeps_its_host_fenced_while_it_runs_there_and_starts_again_with_its_data(
    operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    for host in (OTHER, THIRD):
        operator.does("cordon-host", host, "--reason", "the test wants the first")
    operator.does("create-vm", "data", *ACME, *SIZE, "--disk", "64MiB")
    for host in (OTHER, THIRD):
        operator.does("uncordon-host", host)
    lost = len(operator.json("list-events", "--kind", "vm-lost"))
    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        for _again in range(2):
            (done,) = operator.json("evacuate-host", HOST, *DEAD)["vms"]
            assert done["outcome"] == "lost"
    finally:
        lab.faults.clear(HOST, folder=fleet)
    assert len(operator.json("list-events", "--kind", "vm-lost")) == lost + 1, "the second run changes nothing"

    assert _domains(operator, HOST) == {"acme.data"}, "the host only looked dead"
    for options in (("--dry-run",), (), ("--force",)):
        running = operator.is_refused("uncordon-host", HOST, *options)
        assert (running["reference"], "virsh shutdown acme.data" in running["hint"]) == ("state", True)
    assert operator.json("repair") == []
    with libvirt_of(operator.inventory, HOST) as there:
        there.destroy("acme.data")
    assert "vgpu" in str(operator.is_refused("uncordon-host", HOST)["context"])
    operator.does("gc", "--limit", HOST, "--kind", "vgpu", "--yes")
    operator.does("uncordon-host", HOST)
    (data,) = operator.json("list-vms")
    assert (data["vm"]["state"], data["vm"]["problem"], data["leases"]) == ("stopped", None, [])
    assert operator.json("list-events", "--kind", "vm-found")[-1]["subject"] == "acme/data"
    operator.does("start-vm", "data", *ACME)
    (data,) = operator.json("list-vms", "--refresh")
    assert (data["observed"], [one["state"] for one in data["leases"]]) == ("running", ["running"])
    operator.does("delete-vm", "data", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


@pytest.mark.long(
    "tests/e2e/maintenance/test_drain_host.py::test_a_drain_that_is_killed_goes_on_and_what_ran_runs",
    "tests/e2e/maintenance/test_dead_host.py::test_a_dead_host_is_fenced_evacuated_forgotten_and_trusted_again",
)
def test_an_evacuation_that_is_killed_goes_on_with_the_vm_that_it_had_not_started(
    operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    for host in (OTHER, THIRD):
        operator.does("cordon-host", host, "--reason", "the test wants the first")
    operator.does("create-vm", "web", *ACME, *SIZE)
    operator.does("uncordon-host", OTHER)
    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        kill_after(operator, "define", "evacuate-host", HOST, *DEAD)
        assert _vms(operator) == {"web": (OTHER, "stopped")}
        (planned,) = operator.json("evacuate-host", HOST, *DEAD, "--plan")["vms"]
        assert (planned["verdict"], planned["to"]) == ("move", OTHER)
        (done,) = operator.json("evacuate-host", HOST, *DEAD)["vms"]
        assert (done["outcome"], _vms(operator)) == ("moved", {"web": (OTHER, "running")})
        assert operator.json("evacuate-host", HOST, *DEAD)["vms"] == []
    finally:
        lab.faults.clear(HOST, folder=fleet)
    operator.does("uncordon-host", THIRD)
    operator.is_refused("uncordon-host", HOST)
    operator.does("gc", "--limit", HOST, "--kind", "vgpu", "--yes")
    operator.does("uncordon-host", HOST)
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


def test_the_fencing_command_of_the_inventory_is_believed_and_kept_as_evidence(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    def fence_with(command: str) -> tuple[str, ...]:
        (tmp_path / "fencing.yml").write_text(
            f"all: {{hosts: {{{HOST}: {{vgpu_fencing: {{command: {command}, timeout: 20}}}}}}}}\n"
        )
        both = ("-i", str(operator.inventory), "-i", str(tmp_path / "fencing.yml"))
        return ("evacuate-host", HOST, "--reason", "no power", "--yes", *both)

    refused = operator.is_refused(*fence_with("/bin/false"))
    assert "ended with 1" in refused["message"]
    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        script = tmp_path / "power-off"
        script.write_text("#!/bin/sh\necho chassis power is off\n")
        script.chmod(0o755)
        operator.does(*fence_with(str(script)))
    finally:
        lab.faults.clear(HOST, folder=fleet)
    fenced = operator.json("list-events", "--kind", "host-fenced")[-1]
    assert fenced["evidence"] == {
        "by": "the fencing command", "command": str(script), "exit": 0, "said": "chassis power is off",
    }  # fmt: skip
    assert operator.json("uncordon-host", HOST)["changed"]


def test_a_fencing_command_that_does_not_end_is_killed_with_what_it_started(operator: Operator, tmp_path: Path) -> None:
    script, started = tmp_path / "power-off", tmp_path / "started"
    script.write_text(f"#!/bin/sh\nsleep 300 &\necho $! >{started}\ncat\nsleep 300\n")
    script.chmod(0o755)
    (tmp_path / "fencing.yml").write_text(
        f"all: {{hosts: {{{HOST}: {{vgpu_fencing: {{command: {script} -P secret, timeout: 2}}}}}}}}\n"
    )
    both = ("-i", str(operator.inventory), "-i", str(tmp_path / "fencing.yml"))
    fenced = operator.json("list-events", "--kind", "host-fenced")
    refused = operator.is_refused("evacuate-host", HOST, "--reason", "no power", "--yes", *both)
    assert (refused["reference"], "did not end within 2 s" in refused["message"]) == ("state", True)
    assert "secret" not in str(refused)
    status = Path(f"/proc/{int(started.read_text())}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
    assert operator.json("list-events", "--kind", "host-fenced") == fenced


def test_a_host_that_answers_and_cannot_be_used_is_not_dead(operator: Operator, tmp_path: Path) -> None:
    fenced = operator.json("list-events", "--kind", "host-fenced")
    for name, value in (("ansible_python_interpreter", "/nonexistent"), ("ansible_user", "nobody-of-this-name")):
        (tmp_path / "broken.yml").write_text(f"all: {{hosts: {{{HOST}: {{{name}: {value}}}}}}}\n")
        both = ("-i", str(operator.inventory), "-i", str(tmp_path / "broken.yml"))
        refused = operator.is_refused("evacuate-host", HOST, *DEAD, *both)
        assert (refused["reference"], "answers, so it is not dead" in refused["message"]) == ("state", True)
        assert "sim-001" not in refused["context"][0].split(": ")[0]
    assert operator.json("list-events", "--kind", "host-fenced") == fenced


def _share(operator: Operator, uuid: str, host: str) -> None:
    """Give another host a VM's disk too, as it has those of storage that both use.

    A volume of one name in one pool has the same key on all simulated hosts, as on shared storage.
    """
    with libvirt_of(operator.inventory, HOST) as here, libvirt_of(operator.inventory, host) as there:
        volumes = [one for one in Storage(here).volumes("default") if one.name == f"{uuid}.qcow2"]
        assert volumes
        storage = Storage(there)
        storage.ensure_pool("default")
        for one in volumes:
            storage.create_disk("default", one.name, one.capacity_bytes // 2**20)


def test_a_command_that_looks_in_the_wrong_place_finds_nobody_dead(operator: Operator, tmp_path: Path) -> None:
    operator.does("list-hosts")
    fenced = operator.json("list-events", "--kind", "host-fenced")
    for address in ("gpu1.exmaple.invalid", "127.0.0.2"):
        (tmp_path / "wrong.yml").write_text(f"all: {{hosts: {{{HOST}: {{ansible_host: {address}}}}}}}\n")
        both = ("-i", str(operator.inventory), "-i", str(tmp_path / "wrong.yml"))
        refused = operator.is_refused("evacuate-host", HOST, *DEAD, *both)
        assert (refused["reference"], "is dead is not known" in refused["message"]) == ("state", True), refused
    assert operator.json("list-events", "--kind", "host-fenced") == fenced


def test_a_vm_on_shared_storage_starts_where_its_data_is(operator: Operator, fleet: lab.LabFolder) -> None:
    for host in (OTHER, THIRD):
        operator.does("cordon-host", host, "--reason", "the test wants the first")
    for name in ("left", "right"):
        operator.does("create-vm", name, *ACME, *SIZE, "--disk", "64MiB")
    for host in (OTHER, THIRD):
        operator.does("uncordon-host", host)
    uuids = {one["vm"]["request"]["name"]: one["vm"]["uuid"] for one in operator.json("list-vms")}

    _share(operator, uuids["left"], OTHER)
    _share(operator, uuids["right"], THIRD)
    lab.faults.begin(HOST, "sshd", folder=fleet)
    lab.faults.begin(THIRD, "sshd", folder=fleet)
    try:
        planned = operator.ends(PARTIAL, "evacuate-host", HOST, *DEAD, "--plan")["vms"]
        told = {one["subject"]: (one["verdict"], one["to"]) for one in planned}
        assert told == {"acme/left": ("move", OTHER), "acme/right": ("stay", None)}
        (why,) = [one["reason"] for one in planned if one["subject"] == "acme/right"]
        assert "it may not be lost" in why and THIRD in why
        lab.faults.clear(THIRD, folder=fleet)

        done = operator.json("evacuate-host", HOST, *DEAD)["vms"]
        assert {one["subject"]: one["storage"] for one in done} == {"acme/left": "shared", "acme/right": "shared"}
        assert _vms(operator) == {"left": (OTHER, "running"), "right": (THIRD, "running")}
    finally:
        lab.faults.clear(THIRD, folder=fleet)
        lab.faults.clear(HOST, folder=fleet)
    assert {one["vm"]["request"]["name"]: one["vm"]["uuid"] for one in operator.json("list-vms")} == uuids
    operator.is_refused("uncordon-host", HOST)
    assert _domains(operator, HOST) == set(), "a domain of a VM that runs elsewhere by now is ended and undefined"
    operator.does("gc", "--limit", HOST, "--kind", "vgpu", "--kind", "volume", "--yes")
    operator.does("uncordon-host", HOST)
    for name, host in (("left", OTHER), ("right", THIRD)):
        with libvirt_of(operator.inventory, host) as there:
            assert [one for one in Storage(there).volumes("default") if uuids[name] in one.name]
        operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")
    with libvirt_of(operator.inventory, HOST) as there:
        for name in ("left", "right"):  # on storage that both use it is gone by now
            Storage(there).delete_volume("default", f"{uuids[name]}.qcow2")


def test_a_seed_that_was_on_the_dead_host_is_made_again_and_no_disk_is_called_lost_for_it(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    (tmp_path / "user-data").write_text("#cloud-config\n{}\n")
    for host in (OTHER, THIRD):
        operator.does("cordon-host", host, "--reason", "the test wants the first")
    operator.does("create-vm", "named", *ACME, *SIZE, "--disk", "64MiB", "--hostname", "h")
    operator.does("create-vm", "told", *ACME, *SIZE, "--disk", "64MiB", "--user-data", str(tmp_path / "user-data"))
    for host in (OTHER, THIRD):
        operator.does("uncordon-host", host)
    uuids = {one["vm"]["request"]["name"]: one["vm"]["uuid"] for one in operator.json("list-vms")}
    for uuid in uuids.values():
        _share(operator, uuid, OTHER)
    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        partial = operator.is_refused("evacuate-host", HOST, *DEAD)
    finally:
        lab.faults.clear(HOST, folder=fleet)
    (why,) = partial["context"]
    assert "acme/told: its seed was on sim-001 itself, and cannot be made again" in why
    assert _vms(operator) == {"named": (OTHER, "running"), "told": (HOST, "running")}
    with libvirt_of(operator.inventory, OTHER) as there:
        assert f"{uuids['named']}-seed.iso" in [one.name for one in Storage(there).volumes("default")]

    operator.is_refused("uncordon-host", HOST)
    operator.does("gc", "--limit", HOST, "--kind", "vgpu", "--kind", "volume", "--yes")
    operator.does("uncordon-host", HOST)
    for name in ("named", "told"):
        operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")
    with libvirt_of(operator.inventory, OTHER) as there:
        Storage(there).delete_volume("default", f"{uuids['told']}.qcow2")
    with libvirt_of(operator.inventory, HOST) as there:
        left = [one.name for one in Storage(there).volumes("default") if uuids["named"] in one.name]
        assert left == [f"{uuids['named']}.qcow2"], "gc deletes the old seed, and not the disk that is shared"
        Storage(there).delete_volume("default", left[0])
    assert fleet_witness.state() == before


def test_a_restored_store_from_before_an_evacuation_starts_no_vm_twice(
    operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    before = fleet_witness.state()
    operator.does("create-vm", "web", *ACME, *SIZE)
    ((host, _state),) = _vms(operator).values()
    backup = tmp_path / "backup"
    operator.does("backup-store", str(backup))
    lab.faults.begin(host, "sshd", folder=fleet)
    try:
        operator.does("evacuate-host", host, *DEAD)
    finally:
        lab.faults.clear(host, folder=fleet)
    ((new, _state),) = _vms(operator).values()
    operator.does("restore-store", str(backup), "--replace", "--yes")

    def differences() -> dict[str, str]:
        found = json.loads(operator.run("reconcile-store", "--json").out)["discrepancies"]
        return {one["name"]: f"{one['kind']}: {one['todo']}" for one in found if one["is_open"]}

    assert differences()["acme/web"].startswith("moved-vm: it runs twice")
    with libvirt_of(operator.inventory, host) as there:
        there.destroy("acme.web")
    assert differences()["acme/web"].startswith("moved-vm: vgpuctl reconcile-store --forget acme/web")
    assert "1 difference" in operator.is_refused("reconcile-store", "--done")["message"]
    assert operator.is_refused("reconcile-store", "--accept", "acme/web", "--done")["reference"] == "not-found"

    operator.run("reconcile-store", "--forget", "acme/web")
    operator.does("adopt-host", new, "--vm", "acme.web=acme/web")
    assert differences()["acme/web"].startswith("second-domain: ")
    operator.does("reconcile-store", "--accept", "acme/web", "--done")
    assert _vms(operator) == {"web": (new, "running")}
    operator.does("gc", "--limit", host, "--yes")
    operator.run("gc", "--limit", host, "--kind", "vgpu", "--yes")
    assert _domains(operator, host) == set()
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    operator.does("gc", "--limit", new, "--kind", "vgpu", "--yes")
    assert fleet_witness.state() == before


def test_a_vm_that_another_host_runs_too_is_told_everywhere_and_is_not_started_again(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    operator.does("create-vm", "web", *ACME, *SIZE[:-2], "--host", HOST)
    with libvirt_of(operator.inventory, HOST) as there:
        xml = there.xml("acme.web") or ""
    with libvirt_of(operator.inventory, OTHER) as there:
        there.define(xml)
        there.start("acme.web")
    for _look in range(3):
        operator.does("list-gpus", "--refresh")
    observed = operator.json("list-events", "--kind", "vm-observed")[-1]
    assert (observed["host"], observed["subject"], observed["after"]) == (OTHER, "acme/web", {"state": "running"})
    assert observed["detail"] == f"on {OTHER}, and the store has it on {HOST}"

    rows = operator.ends(1, "check-vm", "web", *ACME)["findings"]
    assert (rows[0]["row"], rows[0]["verdict"]) == ("runs-once", "broken")
    (checked,) = operator.ends(1, "check-hosts", "--limit", OTHER)
    (finding,) = [one for one in checked["findings"] if one["check"] == "stray-vm"]
    assert (finding["severity"], f"on {HOST}" in finding["read"]) == ("error", True)
    (left,) = operator.json("gc", "--dry-run", "--limit", OTHER)
    assert "`virsh shutdown acme.web` on sim-002" in left["left"] and "uncordon-host" not in left["left"]

    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    for command in ("start-vm", "restart-vm"):
        refused = operator.is_refused(command, "web", *ACME)
        assert "acme/web would run twice: the store has it on sim-001, and on sim-002" in refused["message"], refused
    with libvirt_of(operator.inventory, OTHER) as there:
        there.destroy("acme.web")
    operator.does("start-vm", "web", *ACME)
    (checked,) = operator.json("check-hosts", "--limit", OTHER)
    (finding,) = [one for one in checked["findings"] if one["check"] == "stray-vm"]
    assert (finding["severity"], "acme.web" in finding["read"]) == ("note", True)
    assert operator.json("list-events", "--kind", "vm-observed")[-1]["after"] == {"state": "gone"}
    assert "leftovers that the store does not know were not looked for" in operator.does("repair").err
    operator.does("gc", "--limit", OTHER, "--yes")
    assert _domains(operator, OTHER) == set()
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before
