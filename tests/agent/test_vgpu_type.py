# SPDX-License-Identifier: Apache-2.0
"""A step means a type by its name: what the agent does where a driver gives the recorded id to another type."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.agent.simulated import PF, Machine, PatientHost
from vgpuctl.agent.changes import boot
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.facts.boot import read_shares
from vgpuctl.agent.restore import Restore
from vgpuctl.agent.wire.boot import ManifestStep
from vgpuctl.agent.wire.decode import from_json, to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import CreateMdev, MakeVgpu, SetVfProfile
from vgpuctl.agent.wire.steps import CreateGpuInstance, SetMigMode, SetVirtualFunctions, Step
from vgpuctl_lab.simulated.driver_update import with_driver
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.tree import VGPU_CONFIG, vgpu_config

UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"
MANIFEST, SHARES = "/etc/vgpuctl/manifest.json", "/etc/vgpuctl/shares.json"
# By kind: the card, the type, the one whose id it has after the update.
KINDS = {
    "profiles": ("a40/vf-profile", "A40-24Q", "A40-12Q"),
    "on VFs": ("a40/mdev-vf", "A40-24Q", "A40-12Q"),
    "on the card": ("t4", "T4-4Q", "T4-8Q"),
    "MIG": ("a100-pcie-40gb", "A100-3-20C", "A100-2-10C"),
    "two words": ("rtx-pro-6000/vf-profile", "DC-24Q", "DC-12Q"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def prepared(folder: Path, kind: str) -> Machine:
    """A machine that is ready for a share of the kind."""
    machine = Machine(folder, KINDS[kind][0], with_vfs=kind != "MIG", host=PatientHost)
    ready(machine, kind)
    return machine


def ready(machine: Machine, kind: str) -> None:
    if kind == "MIG":
        instances = [CreateGpuInstance(PF, "3g.20gb", 0, 1, False), CreateGpuInstance(PF, "2g.10gb", 4, 1, False)]
        machine.done(SetMigMode(PF, True), SetVirtualFunctions(PF, machine.card.total_vfs), *instances)


def swap(machine: Machine, kind: str, *, is_gone: bool = False) -> None:
    """Update the driver: the other type gets the id of the first, which gets the other's or goes."""
    _, name, other = KINDS[kind]
    ids = {other: int(machine.type_id(name)), name: None if is_gone else int(machine.type_id(other))}
    shapes.write(with_driver(machine.files.shape, "590.44.01", ids), machine.files.folder / "machine.json")
    machine.reboot()
    ready(machine, kind)


def step_of(machine: Machine, kind: str, *, profile: bool = True) -> MakeVgpu:
    name = KINDS[kind][1]
    number, wanted = machine.type_id(name), name if profile else None
    if kind == "on the card":
        return CreateMdev(PF, f"nvidia-{number}", UUID, profile=wanted)
    (vf, *_) = machine.files.state().vfs_of(machine.card)
    if kind == "on VFs":
        return CreateMdev(vf, f"nvidia-{number}", UUID, profile=wanted)
    return SetVfProfile(vf, number, profile=wanted)


def types(machine: Machine) -> list[str]:
    """Names of the types of the vGPUs that the machine has."""
    found = [machine.card.type_of(one.type_id) for one in machine.files.state().vgpus]
    return [one.full_name.rpartition(" ")[2] for one in found if one is not None]


def restore(machine: Machine, *shares: Step, content: Any = None) -> Restore:
    """Run the entry of the unit, with this list of shares or that text."""
    card = machine.card
    gpu = {"address": PF, "vendor_id": card.vendor, "device_id": card.device, "subsystem_id": card.subsystem}
    host = machine.host
    host.put_file(MANIFEST, json.dumps({"version": 1, "gpus": [gpu], "steps": []}).encode(), 0o600)
    host.put_file(SHARES, b'{"version": 1, "steps": []}', 0o600)
    for one in shares:
        boot.note_share(host, one)
    if content is not None:
        host.put_file(SHARES, json.dumps(content).encode(), 0o600)
    run = Restore(host)
    run.run(MANIFEST)
    return run


def recorded(machine: Machine) -> Any:
    return json.loads(machine.host.read(SHARES))


@every_kind
def test_the_unit_makes_a_share_by_its_name_and_records_the_new_id(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    swap(machine, kind)
    assert restore(machine, step).problems == []
    assert types(machine) == [KINDS[kind][1]]
    now = recorded(machine)
    (one,) = now["steps"]
    assert one["step"]["type_id"].removeprefix("nvidia-") == machine.type_id(KINDS[kind][1])
    assert now["profiles"] == {step.device: KINDS[kind][1]}
    second = Restore(machine.host)
    assert second.run(MANIFEST) and types(machine) == [KINDS[kind][1]] and recorded(machine) == now


@every_kind
def test_a_share_of_an_earlier_list_is_made_by_its_id(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind, profile=False)
    assert restore(machine, step).problems == []
    assert types(machine) == [KINDS[kind][1]]
    facts = read_facts(machine.host)
    assert facts.boot is not None and facts.boot.unnamed == (step.device,)


@every_kind
def test_a_type_that_is_gone_is_never_replaced_by_the_one_that_has_its_id(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    swap(machine, kind, is_gone=True)
    run = restore(machine, step)
    (problem,) = run.problems
    assert types(machine) == [] and run.shares == []
    number, (_, name, other) = step.type_id, KINDS[kind]
    assert f"type {number} of" in problem and f"{other} now, not {name}, which the driver does not offer" in problem
    refused = machine.refused(step)
    assert (refused.code, machine.files.state().vgpus) == ("type-differs", [])
    assert machine.refused(step, dry_run=True).code == "type-differs"


@every_kind
def test_a_step_with_an_id_of_before_is_refused_with_the_id_of_now(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    swap(machine, kind)
    refused = machine.refused(step)
    assert refused.code == "type-differs" and types(machine) == []
    assert f"{KINDS[kind][1]}, which is type " in refused.message
    assert refused.message.endswith(machine.type_id(KINDS[kind][1]))


@pytest.mark.parametrize("kind", ["profiles", "MIG"])
def test_a_second_run_corrects_what_a_run_without_names_has_set(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    swap(machine, kind)
    machine.done(SetVfProfile(step.device, step.type_id))
    assert types(machine) == [KINDS[kind][2]]
    assert restore(machine, step).problems == []
    assert types(machine) == [KINDS[kind][1]]


@pytest.mark.parametrize("kind", ["on VFs", "on the card"])
def test_an_mdev_of_another_type_is_named_and_left(kind: str, tmp_path: Path) -> None:
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    swap(machine, kind)
    assert isinstance(step, CreateMdev)
    machine.done(CreateMdev(step.parent, step.type_id, step.uuid))
    (problem,) = restore(machine, step).problems
    assert "exists on" in problem and types(machine) == [KINDS[kind][2]]
    assert machine.refused(step).code == "type-differs", "the same id is another type"


@every_kind
def test_an_agent_from_before_names_reads_the_list(kind: str, tmp_path: Path) -> None:
    """It refuses a step with a field that it does not know, and would restore no share at all."""
    machine = prepared(tmp_path, kind)
    step = step_of(machine, kind)
    restore(machine, step)
    (one,) = recorded(machine)["steps"]
    assert "profile" not in one["step"]
    assert from_json(ManifestStep, one).step == step_of(machine, kind, profile=False)
    assert to_json(step)["profile"] == KINDS[kind][1], "between tool and agent the name is a field of the step"


@pytest.mark.parametrize("profiles", [[], "A40-24Q", {UUID: 1}, 7])
def test_a_list_with_other_things_for_names_is_unreadable_and_never_guessed(profiles: Any, tmp_path: Path) -> None:
    machine = prepared(tmp_path, "on the card")
    step = step_of(machine, "on the card", profile=False)
    share = to_json(ManifestStep(step, PF))
    machine.host.put_file(SHARES, json.dumps({"version": 1, "steps": [share], "profiles": profiles}).encode(), 0o600)
    with pytest.raises(Problem, match="cannot be read"):
        read_shares(machine.host)


class WithoutNvml(SimulatedHost):
    """A machine whose NVML is of another version than the module that runs."""

    def nvml(self) -> NoReturn:
        raise Problem(ProblemCode.NVML_MISSING, "Driver/library version mismatch", errno="18")


@pytest.mark.parametrize("is_full", [True, False])
def test_the_file_of_a_driver_that_does_not_run_yet_names_no_type_for_sure(is_full: bool, tmp_path: Path) -> None:
    """The package was updated and the module was not: NVML refuses, and vgpuConfig.xml has the new ids."""
    machine = prepared(tmp_path, "profiles")
    step = step_of(machine, "profiles")
    machine.done(step)
    vfs = machine.files.state().vfs_of(machine.card)
    if is_full:
        machine.done(SetVfProfile(vfs[1], step.type_id))
    updated = with_driver(machine.files.shape, "590.44.01", {"A40-24Q": 563, "A40-12Q": 565})
    with machine.files.change() as state:
        state.files[VGPU_CONFIG] = vgpu_config(updated)
    machine.host = WithoutNvml(str(tmp_path))
    used = {one.type_id: one for one in machine.gpu().types}[step.type_id]
    # A free VF still lists what the module that runs calls it.
    assert (used.name, used.is_guessed, used.is_named) == (
        ("A40-12Q", True, False) if is_full else ("A40-24Q", False, True)
    )
