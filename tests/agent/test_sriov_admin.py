# SPDX-License-Identifier: Apache-2.0
"""What a VF gets of its card by Intel's driver `xe`: read, set while a VM runs on it, refused (open-gpus, 6.1)."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.facts.sriov_admin import FIRST as FIRST_VALUES
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetFunctionParams, SetVfParams, StopFunction
from vgpuctl.agent.wire.steps import ResetFunction, SetVirtualFunctions
from vgpuctl_lab.simulated.machine.domains import HostDevice, start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

ALL = "exec_quantum_ms=20,preempt_timeout_us=1000"
REST = "sched_priority=low,vram_quota=2147483648"
FIRST = f"exec_quantum_ms=0,preempt_timeout_us=0,{REST}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "flex-170", with_vfs=True)


def told(machine: Machine, number: int = 0) -> str | None:
    return machine.gpu().vfs[number].vgpu_params


def vf(machine: Machine, number: int = 0) -> str:
    return machine.gpu().vfs[number].address


def first(machine: Machine) -> str | None:
    """What the driver had before the agent set parameters of the first VF."""
    return machine.gpu().vfs[0].first_params


def test_a_vf_gets_what_it_is_told_and_its_first_values_back(machine: Machine) -> None:
    assert told(machine) == told(machine, 1) == FIRST
    step = SetVfParams(vf(machine), ALL)
    assert machine.take(step, dry_run=True).changes == machine.take(step).changes
    assert (told(machine), told(machine, 1)) == (f"{ALL},{REST}", FIRST)
    assert first(machine) == "exec_quantum_ms=0,preempt_timeout_us=0"
    assert not machine.done(step), "a second run writes nothing"
    assert machine.done(SetVfParams(vf(machine), "preempt_timeout_us=7"))
    assert told(machine) == f"exec_quantum_ms=0,preempt_timeout_us=7,{REST}", "one that is not named goes back"
    assert first(machine) == "preempt_timeout_us=0"
    assert machine.done(SetVfParams(vf(machine), ""))
    assert (told(machine), first(machine)) == (FIRST, None)
    assert not machine.done(SetVfParams(vf(machine), ""))


def test_what_others_set_is_what_goes_back_and_what_is_equal_is_kept(machine: Machine) -> None:
    address = vf(machine)
    machine.host.write(f"/sys/bus/pci/devices/{PF}/sriov_admin/vf1/profile/exec_quantum_ms", "10")
    assert machine.done(SetVfParams(address, "exec_quantum_ms=10"))
    assert first(machine) == "exec_quantum_ms=10"
    assert machine.done(SetVfParams(address, "exec_quantum_ms=30"))
    assert machine.done(SetVfParams(address, ""))
    assert told(machine) == f"exec_quantum_ms=10,preempt_timeout_us=0,{REST}"


def test_values_go_with_the_vfs_and_with_the_boot(machine: Machine) -> None:
    machine.done(SetVfParams(vf(machine), ALL))
    machine.done(SetVirtualFunctions(PF, 0), SetVirtualFunctions(PF, 4))
    assert (told(machine) or "").startswith("exec_quantum_ms=0,") and first(machine) is None
    machine.done(SetVfParams(vf(machine), ALL))
    machine.reboot()
    machine.done(SetVirtualFunctions(PF, 4))
    assert (told(machine) or "").startswith("exec_quantum_ms=0,") and first(machine) is None


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
    machine.done(SetVfParams(address, "exec_quantum_ms=5"))
    problem = machine.refused(SetVfParams(address, "exec_quantum_ms=20,preempt_timeout_us=many"))
    assert (problem.code, problem.errno) == ("vgpu-refused", "EINVAL")
    assert f"setting preempt_timeout_us of the VF {address} to many" in problem.message
    problem = machine.refused(SetVfParams(address, "exec_quantum_ms=100001"))
    assert problem.code == "read-back-differs" and "reads exec_quantum_ms=100000" in problem.message
    assert told(machine) == f"exec_quantum_ms=5,preempt_timeout_us=0,{REST}", "the value before it was written"
    assert first(machine) == "exec_quantum_ms=0"
    machine.begin("vf-params-refused")
    problem = machine.refused(SetVfParams(address, "exec_quantum_ms=20"))
    assert problem.errno == "EIO" and "firmware" in problem.message
    assert told(machine) == f"exec_quantum_ms=5,preempt_timeout_us=0,{REST}"
    assert machine.refused(SetVfParams(address, "")).errno == "EIO"
    assert first(machine) == "exec_quantum_ms=0", "it has to go back still"


def test_a_driver_without_them_is_told_and_read_as_one(machine: Machine) -> None:
    machine.begin("no-sriov-admin")
    assert told(machine) is None
    problem = machine.refused(SetVfParams(vf(machine), "exec_quantum_ms=20,preempt_timeout_us=0"))
    assert problem.code == "no-vf-params"
    assert "exec_quantum_ms, preempt_timeout_us" in problem.message and "6.19" in (problem.hint or "")


@pytest.mark.parametrize(
    "params", ["sched_priority=high", "vram_quota=1", "exec_quantum_ms", "exec_quantum_ms=", "../stop=1"]
)
def test_what_is_no_parameter_is_refused(machine: Machine, params: str) -> None:
    assert machine.refused(SetVfParams(vf(machine), params)).code == "bad-params"


@pytest.mark.parametrize("address", [PF, "0000:ff:00.1"])
def test_what_is_no_vf_is_refused(machine: Machine, address: str) -> None:
    assert machine.refused(SetVfParams(address, ALL)).code in ("no-vf-params", "not-found")


class PfUnreadable(SimulatedHost):
    """A machine whose kernel does not let the PF's parameters be read."""

    def read_optional(self, path: str) -> str | None:
        if "/sriov_admin/pf/" in path:
            raise Problem(ProblemCode.UNREADABLE, f"{path} cannot be read: EIO", path=path, errno="EIO")
        return super().read_optional(path)


def test_parameters_of_the_pf_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    gpu = Machine(tmp_path, "flex-170", with_vfs=True, host=PfUnreadable).gpu()
    assert gpu.pf_params is None and any("/sriov_admin/pf/" in one for one in gpu.unread)


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
    assert machine.refused(SetVfParams(vf(machine), "exec_quantum_ms=20")).code == "unexpected-value"
    assert machine.done(SetVfParams(vf(machine), "preempt_timeout_us=20"))


def test_a_note_that_cannot_be_read_stops_changes_and_is_told(machine: Machine) -> None:
    machine.done(SetVfParams(vf(machine), ALL))
    machine.host.put_file(FIRST_VALUES, b"[1]", 0o644)
    assert machine.refused(SetVfParams(vf(machine), "")).code == "unexpected-value"
    assert FIRST_VALUES in (machine.gpu().vfs[0].problem or "")


GIB = 1 << 30
OWN = "exec_quantum_ms=8,preempt_timeout_us=500,sched_priority=normal"


def test_the_pf_and_a_vf_get_what_the_layout_says(machine: Machine) -> None:
    for step in (SetFunctionParams(PF, None, OWN), SetFunctionParams(PF, 1, f"{OWN},vram_quota={GIB}")):
        assert machine.take(step, dry_run=True).changes == machine.take(step).changes
        assert not machine.done(step), "a second run writes nothing"
    assert machine.gpu().pf_params == OWN
    assert told(machine, 1) == f"{OWN},vram_quota={GIB}"
    priorities = {(told(machine, number) or "").split(",")[2] for number in range(4)}
    assert priorities == {"sched_priority=normal"}, "the driver takes the priority of VFs for all at once"
    assert (told(machine) or "").startswith("exec_quantum_ms=0,"), "another VF's time is its own"


def test_a_vms_own_value_stays_and_the_layouts_is_what_goes_back(machine: Machine) -> None:
    machine.done(SetVfParams(vf(machine), "exec_quantum_ms=5"))
    assert machine.done(SetFunctionParams(PF, 0, "exec_quantum_ms=20,preempt_timeout_us=1000"))
    assert (told(machine), first(machine)) == (
        f"exec_quantum_ms=5,preempt_timeout_us=1000,{REST}",
        "exec_quantum_ms=20",
    )
    assert not machine.done(SetFunctionParams(PF, 0, "exec_quantum_ms=20,preempt_timeout_us=1000"))
    assert machine.done(SetVfParams(vf(machine), ""))
    assert told(machine) == f"{ALL},{REST}"


@pytest.mark.parametrize(
    ("step", "code", "errno"),
    [
        (SetFunctionParams(PF, None, "vram_quota=1"), "no-vf-params", "ENOENT"),
        (SetFunctionParams(PF, 99, "exec_quantum_ms=1"), "not-found", None),
        (SetFunctionParams("0000:ff:00.0", None, "exec_quantum_ms=1"), "not-found", "ENOENT"),
        (SetFunctionParams(PF, 0, "stop=1"), "bad-params", None),
        (SetFunctionParams(PF, 0, "exec_quantum_ms=nan"), "vgpu-refused", "EINVAL"),
        (SetFunctionParams(PF, 0, "exec_quantum_ms=30,preempt_timeout_us=-1"), "vgpu-refused", "EINVAL"),
        (SetFunctionParams(PF, 0, "sched_priority=urgent"), "vgpu-refused", "EINVAL"),
        (SetFunctionParams(PF, 0, f"vram_quota={999 * GIB}"), "vgpu-refused", "EIO"),
        (SetFunctionParams(PF, None, "exec_quantum_ms=100001"), "read-back-differs", None),
    ],
    ids=lambda one: one.params if isinstance(one, SetFunctionParams) else None,
)
def test_what_a_function_cannot_have_leaves_it_as_it_was(
    machine: Machine, step: SetFunctionParams, code: str, errno: str | None
) -> None:
    before = machine.gpu()
    problem = machine.refused(step)
    assert (problem.code, problem.errno) == (code, errno)
    assert machine.gpu() == before


def test_a_driver_without_parameters_has_none_of_the_pf(machine: Machine) -> None:
    machine.begin("no-sriov-admin")
    assert machine.gpu().pf_params is None
    problem = machine.refused(SetFunctionParams(PF, None, "exec_quantum_ms=20"))
    assert problem.code == "no-vf-params" and "6.19" in (problem.hint or "")


def test_memory_that_is_divided_before_the_vfs_are_there_stays_so(machine: Machine) -> None:
    machine.done(SetVirtualFunctions(PF, 0))
    machine.host.write(f"/sys/bus/pci/devices/{PF}/sriov_admin/vf1/profile/vram_quota", str(GIB))
    machine.done(SetVirtualFunctions(PF, 2))
    quotas = [(told(machine, number) or "").rpartition("=")[2] for number in range(2)]
    assert quotas == [str(GIB), "0"], "the driver divides none itself then"
    machine.done(SetVirtualFunctions(PF, 0), SetVirtualFunctions(PF, 2))
    assert {(told(machine, number) or "").rpartition("=")[2] for number in range(2)} == {str(8 * GIB)}


def test_a_vf_is_stopped_until_its_reset(machine: Machine) -> None:
    step = StopFunction(vf(machine, 1))
    assert machine.take(step, dry_run=True).changes == machine.take(step).changes
    assert machine.files.state().stopped_vfs == [vf(machine, 1)]
    assert machine.done(step), "nothing tells whether it is stopped"
    assert machine.done(ResetFunction(vf(machine, 1)))
    assert machine.files.state().stopped_vfs == []
    machine.begin("vf-params-refused")
    assert machine.refused(step).errno == "EIO"


def test_nothing_stops_a_pf_or_a_vf_of_another_driver(machine: Machine) -> None:
    assert machine.refused(StopFunction(PF)).code == "no-vf-params"
    assert machine.refused(StopFunction("0000:ff:00.1")).code == "not-found"
    address = vf(machine)
    machine.begin("no-sriov-admin")
    assert machine.refused(StopFunction(address)).code == "no-vf-params"
