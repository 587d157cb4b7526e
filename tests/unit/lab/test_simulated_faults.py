# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated machine, as the agent meets them (reference 9)."""

import time
from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import ResetFunction, SetMigMode, SetServiceActive, SetVirtualFunctions
from vgpuctl_lab.cli import fault as lab_fault
from vgpuctl_lab.faults import KINDS
from vgpuctl_lab.simulated.machine import faults
from vgpuctl_lab.simulated.machine.domains import HostDevice, end, start
from vgpuctl_lab.simulated.machine.drivers import Drivers
from vgpuctl_lab.simulated.machine.programs import run_program


def begin(machine: Machine, kind: str, value: int = 1) -> None:
    with machine.files.change() as state:
        if KINDS[kind].of_card:
            faults.set_on_card(machine.files, state, machine.card, kind, value)
        else:
            faults.set_on_host(machine.files, state, kind, value)


def log(machine: Machine) -> str:
    return (machine.files.root / "dev/kmsg").read_text()


def test_the_command_offers_every_kind() -> None:
    assert list(lab_fault.KINDS) == list(KINDS)


def test_creations_are_refused_with_the_chosen_code(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    begin(machine, "refuse", 0x66)
    refused = machine.refused(SetVfProfile(vf, machine.type_id("A40-8Q")))
    assert (refused.code, refused.errno, refused.rm_code) == ("vgpu-refused", "EIO", "0x66")
    begin(machine, "refuse", 0)
    assert machine.done(SetVfProfile(vf, machine.type_id("A40-8Q")))


@pytest.mark.parametrize("with_vfs", [False, True])
def test_vfs_without_types_are_told_with_the_times_that_are_left(tmp_path: Path, *, with_vfs: bool) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=with_vfs)
    begin(machine, "vfs-unregistered", 3)
    told = []
    for _time in range(5):
        state = machine.files.state()
        (value,) = state.faults[PF].values()
        told.append((faults.left_of(state, machine.card, "vfs-unregistered", value), bool(state.unregistered)))
        with machine.files.change() as state:
            for count in (0, machine.card.total_vfs):
                Drivers(machine.files, state).set_vfs(machine.card, count)
    sick = [(3, True), (2, True), (1, True), (0, False), (0, False)]
    assert told == (sick if with_vfs else [(3, False), *sick[:4]])


@pytest.mark.parametrize("kind", ["unbind-lock", "busy"])
def test_the_unbind_lock_is_not_granted(kind: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, kind)
    status, output, errors = run_program(machine.files, ["sriov-manage", "-e", PF])
    assert (status, output, errors) == (1, f"Enabling VFs on {PF}\n", f"Cannot obtain unbindLock for {PF}\n")
    assert "Could not acquire UnbindLock" in log(machine)
    begin(machine, kind, 0)
    assert machine.done(SetVirtualFunctions(PF, machine.card.total_vfs))


def test_a_busy_gpu_keeps_its_mig_mode(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb")
    begin(machine, "busy")
    assert machine.refused(SetMigMode(PF, True)).code == "mig-mode-pending"


def test_a_vgpu_cannot_be_removed_for_a_while(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.done(SetVfProfile(vf, machine.type_id("A40-8Q")))
    start(machine.files, VM, "web", [HostDevice(function=vf)])
    end(machine.files, set())
    begin(machine, "removal-delay", 400)
    began = time.monotonic()
    assert machine.done(SetVfProfile(vf, "0"))
    assert time.monotonic() - began >= 0.3


def test_a_gpu_falls_off_the_bus_and_comes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    begin(machine, "fallen")
    assert "NVRM: Xid (PCI:0000:41:00): 79" in log(machine)
    facts = read_facts(machine.host)
    assert "GPU is lost" in (facts.nvml_problem or "")
    assert any("NVML does not show it" in one for one in facts.gpus[0].unread)
    vf = facts.gpus[0].vfs[0].address
    assert machine.refused(SetVfProfile(vf, machine.type_id("A40-8Q"))).rm_code == "0xf"
    begin(machine, "fallen", 0)
    assert machine.gpu().unread == ()


def test_xid_and_memory_errors_are_logged_and_counted(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "xid", 31)
    begin(machine, "ecc", 3)
    assert "): 31, pid=" in log(machine) and "): 48, pid=" in log(machine)
    library = machine.host.nvml()
    library.nvmlInit()
    assert library.nvmlDeviceGetTotalEccErrors(library.nvmlDeviceGetHandleByIndex(0), 1, 0) == 3


def test_a_pf_left_on_its_stub_is_seen_and_repaired(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    begin(machine, "pf-stub")
    assert "left on pci-pf-stub" in machine.gpu().problems[0]
    assert machine.done(SetVirtualFunctions(PF, machine.card.total_vfs))
    assert machine.gpu().driver == "nvidia"


def test_the_hosts_clock_is_wrong(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "clock-skew", 3600)
    assert read_facts(machine.host).read_at - time.time() == pytest.approx(3600, abs=30)


def test_a_service_that_is_started_again_ends_the_fault(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "libvirtd")
    services = {one.name: one.active for one in read_facts(machine.host).services or ()}
    assert services["libvirtd.service"] is False
    assert machine.done(SetServiceActive("libvirtd.service", True))
    assert machine.files.state().host_faults == {}


def test_a_card_does_not_come_back_from_a_reset(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "reset-fails")
    refused = machine.refused(ResetFunction(PF))
    assert (refused.code, refused.errno) == ("reset-refused", "ENOTTY")
    assert "giving up" in log(machine)
    begin(machine, "reset-fails", 0)
    begin(machine, "no-reset")
    assert machine.refused(ResetFunction(PF)).code == "no-reset"


def test_a_card_with_several_functions_is_not_reset_by_its_bus_although_the_kernel_lists_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "rtx-3090")
    assert machine.card.companions
    assert machine.gpu().reset_methods == ("flr", "bus")
    assert machine.take(ResetFunction(PF)).changes[0].after == "flr"
    assert machine.gpu().reset_methods == ("flr",)


def test_a_reset_ends_counted_errors_and_a_row_that_waits_for_its_spare(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "ecc", 2)
    begin(machine, "row-remap-pending")
    begin(machine, "row-remap-failed")
    assert machine.done(ResetFunction(PF))
    assert machine.files.state().faults == {PF: {"row-remap-failed": 1}}


def test_a_reboot_ends_every_fault(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    for kind in ("busy", "clock-skew"):
        begin(machine, kind)
    machine.files.reboot()
    assert (machine.files.state().faults, machine.files.state().host_faults) == ({}, {})
    assert machine.done(ResetFunction(PF))


def test_a_refused_lock_leaves_every_vf_there_and_without_a_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    begin(machine, "unbind-lock")
    status, output, errors = machine.run("sriov-manage", "-d", PF)
    assert (status, output, errors) == (1, f"Disabling VFs on {PF}\n", f"Cannot obtain unbindLock for {PF}\n")
    gpu = machine.gpu()
    assert len(gpu.vfs) == machine.card.total_vfs and {vf.driver for vf in gpu.vfs} == {None}
    begin(machine, "unbind-lock", 0)
    again = machine.run("sriov-manage", "-e", PF)
    assert again == (0, f"GPU at {PF} already has VFs enabled.\n", "")


def test_vfs_outlive_the_driver_of_their_card_and_come_back_without_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    machine.host.write("/sys/bus/pci/drivers/nvidia/unbind", PF)
    machine.host.write("/sys/bus/pci/drivers/nvidia/bind", PF)
    gpu = machine.gpu()
    assert (gpu.driver, len(gpu.vfs)) == ("nvidia", machine.card.total_vfs)
    assert {vf.driver for vf in gpu.vfs} == {None}
    assert "driver left SR-IOV enabled after remove" in log(machine)


def test_a_new_id_of_the_stub_claims_whatever_has_no_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.host.write("/sys/bus/pci/drivers/nvidia/unbind", vf)
    machine.host.write("/sys/bus/pci/drivers/pci-pf-stub/new_id", f"10de {machine.card.vf_device}")
    assert [one.driver for one in machine.gpu().vfs[:2]] == ["pci-pf-stub", "nvidia"]
    machine.host.write("/sys/bus/pci/drivers/pci-pf-stub/remove_id", f"10de {machine.card.vf_device}")
    assert machine.gpu().vfs[0].driver == "pci-pf-stub"


def test_sriov_manage_ends_with_persistence_for_every_card(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    with machine.files.change() as state:
        state.services["nvidia-persistenced.service"] = True
    machine.run("sriov-manage", "-e", PF)
    assert [user.command for user in machine.gpu().persistence] == ["nvidia-persistenced"]


def test_sriov_manage_passes_over_what_it_does_not_know(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    begin(machine, "board-unknown")
    assert machine.run("sriov-manage", "-e", PF) == (0, "", "")
    begin(machine, "board-unknown", 0)
    begin(machine, "sriov-silent")
    assert machine.run("sriov-manage", "-e", PF) == (0, f"Enabling VFs on {PF}\n", "")
    assert machine.gpu().vfs == ()
    begin(machine, "pf-unbound", 2)
    assert machine.gpu().driver is None
    machine.host.write("/sys/bus/pci/drivers/nvidia/bind", PF)
    status, _, errors = machine.run("sriov-manage", "-e", PF)
    assert (status, machine.gpu().driver) == (1, None)
    assert "File exists" in errors and "No such device" in errors
