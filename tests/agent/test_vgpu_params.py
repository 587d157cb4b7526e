# SPDX-License-Identifier: Apache-2.0
"""Parameters of vGPUs: written after the vGPU is made, while nothing has it open, and gone with it (reference 2.3)."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.simulated import PF, VM, Machine
from vgpuctl.agent.wire.boot import SHARES
from vgpuctl.agent.wire.decode import step_from_json, step_to_json
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfProfile
from vgpuctl_lab.simulated.machine.domains import HostDevice, start

UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"
CARDS = ("l40s", "a40/mdev-vf", "t4")
UVM, LIMITER = "enable_uvm=1", "disable_vnc=1,frame_rate_limiter=0"


def share(machine: Machine, params: str | None) -> CreateMdev | SetVfProfile:
    """The step that makes a full-size vGPU on the card, by the interface that it has."""
    gpu = machine.gpu()
    name = next(one.name for one in gpu.types if one.name in ("L40S-48Q", "A40-48Q", "T4-16Q"))
    if "vf-profile" in gpu.sharing:
        return SetVfProfile(gpu.vfs[0].address, machine.type_id(name), params)
    parent = gpu.vfs[0].address if gpu.vfs else PF
    return CreateMdev(parent, f"nvidia-{machine.type_id(name)}", UUID, params)


def found(machine: Machine) -> str | None:
    """The parameters of the one vGPU, as the facts have them."""
    gpu = machine.gpu()
    told = (*(one.vgpu_params for one in gpu.mdevs), *(one.vgpu_params for one in gpu.vfs))
    return next((one for one in told if one is not None), None)


@pytest.mark.parametrize("board", CARDS)
def test_parameters_are_written_with_the_share_changed_kept_and_cleared(board: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board, with_vfs=board != "t4")
    wanted = share(machine, UVM)
    assert machine.take(wanted, dry_run=True).changes == machine.take(wanted).changes
    assert found(machine) == UVM
    assert not machine.done(wanted), "a second run writes nothing"
    changed = machine.take(replace(wanted, params=LIMITER)).changes[0]
    assert changed.before is not None and changed.after is not None
    assert changed.changed and changed.before.endswith(UVM) and changed.after.endswith(LIMITER)
    assert not machine.done(replace(wanted, params=None)), "None leaves what is there"
    assert found(machine) == LIMITER
    assert machine.done(replace(wanted, params=""))
    assert found(machine) == ""


@pytest.mark.parametrize("board", CARDS)
def test_parameters_in_use_are_refused_and_stay(board: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board, with_vfs=board != "t4")
    wanted = share(machine, UVM)
    machine.done(wanted)
    device = HostDevice(uuid=UUID) if isinstance(wanted, CreateMdev) else HostDevice(function=wanted.address)
    start(machine.files, VM, "web", [device])
    assert not machine.done(wanted), "those that it has already are no change"
    refused = machine.refused(replace(wanted, params=LIMITER))
    assert (refused.code, VM in refused.message) == ("held", True)
    assert found(machine) == UVM


@pytest.mark.parametrize("board", CARDS)
def test_a_share_whose_parameters_are_refused_does_not_stay(board: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, board, with_vfs=board != "t4")
    refused = machine.refused(share(machine, "x" * 5000))
    assert (refused.code, refused.errno) == ("vgpu-refused", "EINVAL")
    assert found(machine) is None


def test_the_next_share_of_a_vf_has_nothing_of_the_last_ones_parameters(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "l40s", with_vfs=True)
    wanted = share(machine, UVM)
    machine.done(wanted)
    machine.done(SetVfProfile(wanted.device, "0"))
    machine.done(replace(wanted, params=None))
    assert found(machine) == ""


def test_a_removed_mdev_takes_its_parameters_along(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "t4")
    wanted = share(machine, UVM)
    machine.done(wanted)
    machine.done(DeleteMdev(UUID))
    machine.done(replace(wanted, params=None))
    assert found(machine) == ""


def test_the_list_of_shares_at_boot_has_the_parameters(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "t4")
    machine.host.put_file(SHARES, b'{"version": 1, "steps": []}', 0o600)
    wanted = share(machine, UVM)
    machine.done(wanted)
    assert f'"params": "{UVM}"' in machine.host.read(SHARES)
    machine.done(replace(wanted, params=""))
    assert '"params"' not in machine.host.read(SHARES)


def test_a_step_without_parameters_is_written_as_older_agents_know_it() -> None:
    step = SetVfProfile("0000:41:00.4", "562")
    assert step_to_json(step) == {"op": "vf-profile.set", "address": "0000:41:00.4", "type_id": "562"}
    assert step_from_json(step_to_json(replace(step, params=UVM))) == replace(step, params=UVM)
