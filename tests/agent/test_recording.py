# SPDX-License-Identifier: Apache-2.0
"""A recorded machine, replayed, answers the agent as the machine did; it takes no change."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.captures import CALLS, asked, captured, replayed
from tests.agent.machine import BASE, a40, build, holder, mdev_types
from tests.agent.simulated import PF, Machine, PatientHost
from vgpuctl.agent.dispatch import answer, read_facts, record
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import CreateGpuInstance, HashRom, SetMigMode, SetVirtualFunctions
from vgpuctl.model.capture import read_capture

BOARDS = ("a40", "a40/mdev-vf", "t4", "rtx-3090", "flex-170", "h100-sxm5*2", "a40~bridged*2")


@pytest.fixture(params=BOARDS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", request.param, with_vfs=True)


def test_a_replay_answers_every_call_as_the_machine_did(machine: Machine, tmp_path: Path) -> None:
    capture, anonymiser = captured(machine.host)
    file = tmp_path / "one.capture.json.gz"
    file.write_bytes(capture.as_file())
    host = replayed(read_capture(file), tmp_path / "replay")
    for call in CALLS:
        wanted = anonymiser.replace(asked(machine.host, call))
        assert _steady(asked(host, call)) == _steady(wanted), call


def test_a_replay_answers_in_any_order_and_again(machine: Machine, tmp_path: Path) -> None:
    capture, _ = captured(machine.host)
    host = replayed(capture, tmp_path / "replay")
    first = {call: _steady(asked(host, call)) for call in reversed(CALLS)}
    assert {call: _steady(asked(host, call)) for call in CALLS} == first


def test_gpu_instances_are_replayed_with_their_compute_instances(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", "h100-pcie", host=PatientHost)
    assert machine.done(SetMigMode(PF, True))
    for profile, start, compute in (("1g.10gb", 0, (1,)), ("3g.40gb", 4, (2, 1))):
        assert machine.done(CreateGpuInstance(PF, profile, start, compute=compute))
    capture, anonymiser = captured(machine.host)
    host = replayed(capture, tmp_path / "replay")
    for call in CALLS:
        assert _steady(asked(host, call)) == _steady(anonymiser.replace(asked(machine.host, call))), call
    (gpu,) = read_facts(host).gpus
    assert gpu.mig is not None
    assert [f"{one.profile}@{one.start}" for one in gpu.mig.instances] == machine.layout()
    assert [one.compute for one in gpu.mig.instances] == [(1,), (2, 1)]


def test_a_recording_writes_nothing(machine: Machine) -> None:
    read_facts(machine.host)
    before, writes = machine.files.state(), machine.host.writes
    record(machine.host)
    assert (machine.files.state(), machine.host.writes) == (before, writes)
    assert not (machine.files.root / "run/vgpuctl").exists(), "not even the counts of Xids"


def test_a_folder_of_files_is_recorded_without_nvml(tmp_path: Path) -> None:
    root = build(tmp_path / "root", BASE, a40(), mdev_types("0000:41:00.0", available={"558": 24}))
    capture, anonymiser = captured(Host(str(root)))
    host = replayed(capture, tmp_path / "replay")
    assert asked(host, "facts") == anonymiser.replace(asked(Host(str(root)), "facts"))
    assert capture.manifest.boards[0].board == "nvidia-a40"


def test_processes_that_hold_a_card_are_replayed_and_no_other(tmp_path: Path) -> None:
    vm = "11111111-2222-4333-8444-555555555555"
    root = build(tmp_path / "root", BASE, a40(driver="vfio-pci"), holder(77, "/dev/vfio/14", vm_uuid=vm))
    (root / "proc/88/fd").mkdir(parents=True)
    (root / "proc/88/fd/3").symlink_to("/home/alice/thesis.txt")
    capture, anonymiser = captured(Host(str(root)))
    (gpu,) = read_facts(replayed(capture, tmp_path / "replay")).gpus
    assert [(one.pid, one.command) for one in gpu.holders] == [(77, "qemu-system-x86_64")]
    assert gpu.holders[0].vm_uuid == anonymiser.replace(vm)
    assert "thesis" not in json.dumps(capture.machine)


def test_what_the_capture_lacks_is_named_and_never_taken_for_empty(machine: Machine, tmp_path: Path) -> None:
    capture, _ = captured(machine.host)
    answers = capture.machine["answers"]
    for key in [key for key in answers if key.endswith(f"{PF}/numa_node")]:
        del answers[key]
    host = replayed(capture, tmp_path / "replay")
    facts = read_facts(host)
    unread = [*(one for gpu in facts.gpus for one in gpu.unread), *(one.problem for one in facts.unread_functions)]
    assert any("not in this capture" in one and "numa_node" in one for one in unread), unread


def test_a_call_of_nvml_that_was_not_recorded_is_an_error_and_not_a_missing_function(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", "a40")
    capture, _ = captured(machine.host)
    nvml, problem = Nvml.open(replayed(capture, tmp_path / "replay"))
    assert nvml is not None, problem
    device = nvml.library.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.library.NVMLError, match=r"not in this capture: nvmlDeviceGetSerial"):
        nvml.optional(nvml.library.nvmlDeviceGetSerial, device)


@pytest.mark.parametrize("step", [SetVirtualFunctions(PF, 32), SetMigMode(PF, True), HashRom(PF)])
def test_a_replay_refuses_changes(step: Any, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", "a40")
    capture, _ = captured(machine.host)
    reply = answer(replayed(capture, tmp_path / "replay"), Request("apply", (step,)))
    assert reply.problem is not None
    assert reply.problem.code is ProblemCode.NOT_IN_CAPTURE
    assert "takes no change" in reply.problem.message


def _steady(value: Any) -> Any:
    """An answer without readings that the simulation lets go up and down, and lists by replaced names in one order."""
    if isinstance(value, dict):
        return {key: _steady(one) for key, one in value.items() if key not in ("values",)}
    return [_steady(one) for one in value] if isinstance(value, list) else value
