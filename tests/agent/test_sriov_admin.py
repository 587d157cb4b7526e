# SPDX-License-Identifier: Apache-2.0
"""What a VF gets of its card by Intel's driver `xe`: read, set while a VM runs on it, refused (open-gpus, 6.1)."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfParams
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

ALL = "exec_quantum_ms=20,preempt_timeout_us=1000,sched_priority=high"
FIRST = "exec_quantum_ms=0,preempt_timeout_us=0,sched_priority=low,vram_quota=2147483648"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "flex-170", with_vfs=True)


def told(machine: Machine, number: int = 0) -> str | None:
    return machine.gpu().vfs[number].vgpu_params


def vf(machine: Machine, number: int = 0) -> str:
    return machine.gpu().vfs[number].address


def test_a_vf_gets_what_it_is_told_and_the_others_keep_theirs(machine: Machine) -> None:
    assert told(machine) == told(machine, 1) == FIRST
    step = SetVfParams(vf(machine), ALL)
    assert machine.take(step, dry_run=True).changes == machine.take(step).changes
    assert told(machine) == f"{ALL},vram_quota=2147483648"
    assert told(machine, 1) == FIRST
    assert not machine.done(step), "a second run writes nothing"
    assert machine.done(SetVfParams(vf(machine), "sched_priority=normal"))
    assert told(machine) == f"{ALL.replace('high', 'normal')},vram_quota=2147483648", "others stay as they are"


def test_the_vf_of_a_running_vm_changes(machine: Machine) -> None:
    address = vf(machine)
    with machine.files.change() as state:
        state.drivers[address] = "vfio-pci"
    start(machine.files, VM, "web", [HostDevice(function=address)])
    assert machine.done(SetVfParams(address, "exec_quantum_ms=5"))
    assert (told(machine) or "").startswith("exec_quantum_ms=5,")
    assert machine.gpu().vfs[0].holders, "the VM still has it"


def test_a_refusal_says_what_was_refused_and_the_old_values_are_back(machine: Machine) -> None:
    address = vf(machine)
    problem = machine.refused(SetVfParams(address, "exec_quantum_ms=20,sched_priority=urgent"))
    assert (problem.code, problem.errno) == ("vgpu-refused", "EINVAL")
    assert f"setting sched_priority of the VF {address} to urgent" in problem.message
    assert told(machine) == FIRST, "the value before it was written"
    machine.begin("vf-params-refused")
    problem = machine.refused(SetVfParams(address, "exec_quantum_ms=20"))
    assert problem.errno == "EIO" and "firmware" in problem.message
    assert told(machine) == FIRST


def test_a_driver_without_them_is_told_and_read_as_one(machine: Machine) -> None:
    machine.begin("no-sriov-admin")
    assert told(machine) is None
    problem = machine.refused(SetVfParams(vf(machine), "exec_quantum_ms=20,sched_priority=low"))
    assert problem.code == "no-vf-params"
    assert "exec_quantum_ms, sched_priority" in problem.message and "6.19" in (problem.hint or "")


@pytest.mark.parametrize("params", ["", "vram_quota=1", "exec_quantum_ms", "exec_quantum_ms=", "../stop=1"])
def test_what_is_no_parameter_is_refused(machine: Machine, params: str) -> None:
    assert machine.refused(SetVfParams(vf(machine), params)).code == "bad-params"


@pytest.mark.parametrize("address", [PF, "0000:ff:00.1"])
def test_what_is_no_vf_is_refused(machine: Machine, address: str) -> None:
    assert machine.refused(SetVfParams(address, ALL)).code in ("no-vf-params", "not-found")


class TilesDiffer(SimulatedHost):
    """A machine whose card has two tiles with different time slices: the driver answers EUCLEAN."""

    def read_optional(self, path: str) -> str | None:
        if path.endswith("/exec_quantum_ms"):
            raise Problem(ProblemCode.UNREADABLE, "the tiles differ", path=path, errno="EUCLEAN")
        return super().read_optional(path)


def test_tiles_that_differ_are_read_as_that(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "flex-170", with_vfs=True, host=TilesDiffer)
    assert (told(machine) or "").startswith("exec_quantum_ms=differs,")
    assert machine.gpu().problems == ()
