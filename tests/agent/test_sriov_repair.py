# SPDX-License-Identifier: Apache-2.0
"""SR-IOV in every state that a real script and a real driver can leave: repaired without an operator, or named."""

from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine, PatientHost
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, SetVirtualFunctions
from vgpuctl_lab.simulated.machine.domains import HostDevice, start

A40 = "a40/vf-profile"
EITHER = pytest.mark.parametrize("board", [A40, "a40/mdev-vf"])


def everything(machine: Machine) -> SetVirtualFunctions:
    return SetVirtualFunctions(PF, machine.card.total_vfs)


class LateHost(PatientHost):
    """A machine whose driver registers its VFs after 20 s."""

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        if self.waited_s >= 20:
            with self.machine.change() as state:
                state.unregistered.clear()


def is_healthy(machine: Machine) -> bool:
    gpu = machine.gpu()
    return (
        gpu.driver == "nvidia"
        and len(gpu.vfs) == machine.card.total_vfs
        and all(vf.driver == "nvidia" and vf.offers_types for vf in gpu.vfs)
    )


@EITHER
@pytest.mark.parametrize("kind", ["pf-stub", "pf-unbound", "vfs-on-stub", "vfs-unregistered"])
def test_each_sick_state_is_repaired_by_setting_the_vfs_again(board: str, kind: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board, with_vfs=True, host=PatientHost)
    machine.begin(kind)
    assert not is_healthy(machine)
    assert machine.done(everything(machine))
    assert is_healthy(machine)
    assert not machine.done(everything(machine)), "and healthy is what it is afterwards"


@EITHER
def test_vfs_that_a_refused_lock_left_without_a_driver_are_repaired(board: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board, with_vfs=True, host=PatientHost)
    machine.begin("unbind-lock")
    machine.run("sriov-manage", "-d", PF)
    machine.begin("unbind-lock", 0)
    assert machine.done(everything(machine))
    assert is_healthy(machine)


def test_vfs_that_a_reload_of_the_driver_left_are_repaired(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, with_vfs=True, host=PatientHost)
    machine.host.write("/sys/bus/pci/drivers/nvidia/unbind", PF)
    machine.host.write("/sys/bus/pci/drivers/nvidia/bind", PF)
    assert machine.done(everything(machine))
    assert is_healthy(machine)


@EITHER
def test_a_refused_lock_costs_no_vf(board: str, tmp_path: Path) -> None:
    """The agent asks for the lock before sriov-manage unbinds the VFs."""
    machine = Machine(tmp_path, board, with_vfs=True, host=PatientHost)
    machine.begin("unbind-lock")
    assert machine.refused(SetVirtualFunctions(PF, 0)).code == "unbind-lock"
    assert is_healthy(machine)


def test_a_script_that_does_nothing_twice_is_run_three_times(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, host=PatientHost)
    machine.begin("sriov-silent", 2)
    assert machine.done(everything(machine))
    assert is_healthy(machine)


def test_a_script_that_leaves_the_card_unbound_twice_is_run_three_times(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, host=PatientHost)
    machine.begin("pf-unbound", 3)
    assert machine.done(everything(machine))
    assert is_healthy(machine)
    assert machine.files.state().stub_ids == [], "what would claim the VFs of the next run"


@pytest.mark.parametrize("kind", ["sriov-silent", "pf-unbound"])
def test_what_does_not_end_is_named_and_leaves_the_card_on_its_driver(kind: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, host=PatientHost)
    machine.begin(kind, 100)
    refused = machine.refused(everything(machine))
    assert refused.code == "sriov-failed"
    assert "left 0000:41:00.0 with 0 VFs" in refused.message and f"wanted {machine.card.total_vfs}" in refused.message
    assert ("File exists" if kind == "pf-unbound" else "Enabling VFs on") in refused.message
    assert machine.gpu().driver == "nvidia"


def test_vfs_that_never_register_are_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, with_vfs=True, host=PatientHost)
    machine.begin("vfs-unregistered", 100)
    refused = machine.refused(everything(machine))
    assert refused.code == "sriov-failed"
    total = machine.card.total_vfs
    assert f"{total} of {total} VFs on nvidia without vGPU types" in refused.message
    assert "nvidia-vgpu-mgr" in (refused.hint or "")


def test_vfs_that_register_late_are_waited_for_and_not_cycled(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, with_vfs=True, host=LateHost)
    machine.begin("vfs-unregistered")
    machine.done(everything(machine))
    assert is_healthy(machine)
    assert machine.host.writes == 0


def test_sick_vfs_are_left_alone_while_one_of_the_card_is_held(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, with_vfs=True, host=PatientHost)
    first, second = machine.gpu().vfs[:2]
    machine.done(SetVfProfile(first.address, machine.type_id("A40-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=first.address)])
    machine.host.write("/sys/bus/pci/drivers/nvidia/unbind", second.address)
    assert machine.refused(everything(machine)).code == "held"
    assert machine.gpu().vfs[0].driver == "nvidia"


def test_an_unknown_board_is_named_with_those_that_the_script_knows(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, host=PatientHost)
    machine.begin("board-unknown")
    refused = machine.refused(everything(machine))
    assert refused.code == "board-unknown"
    assert f"10de:{machine.card.device}" in refused.message
    assert "knows no board" in refused.message
    assert "driver" in (refused.hint or "")


def test_a_card_goes_to_vfio_pci_only_with_its_lock(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, host=PatientHost)
    assert isinstance(machine.host, PatientHost)
    machine.begin("unbind-lock")
    refused = machine.refused(BindDriver((PF,), "vfio-pci"))
    assert refused.code == "unbind-lock"
    assert machine.gpu().driver == "nvidia" and machine.files.state().overrides == {}
    assert "failed too" not in refused.message and machine.host.waited_s == 4, "what was not changed is not given back"
    machine.begin("unbind-lock", 0)
    assert machine.done(BindDriver((PF,), "vfio-pci"))
    assert machine.gpu().driver == "vfio-pci"
    assert "UnbindLock acquired" in (machine.files.root / "dev/kmsg").read_text()
    assert not machine.done(SetVirtualFunctions(PF, 0)), "a whole card that is away has no VFs to take"


def test_a_dry_run_tells_of_the_repair_and_changes_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, A40, with_vfs=True, host=PatientHost)
    machine.begin("vfs-on-stub")
    [change] = machine.take(everything(machine), dry_run=True).changes
    assert change.changed and "on pci-pf-stub" in (change.before or "")
    assert not is_healthy(machine) and machine.host.writes == 0
