# SPDX-License-Identifier: Apache-2.0
"""The order in which VFs were used, and those in quarantine: kept while the VFs are there."""

from pathlib import Path

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import QuarantineFunction, SetVirtualFunctions


def uses(machine: Machine) -> list[int]:
    return [vf.last_use for vf in machine.gpu().vfs[:3]]


def test_every_new_vgpu_counts_as_the_last_use_of_its_vf(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    first, second, _ = (vf.address for vf in machine.gpu().vfs[:3])
    assert uses(machine) == [0, 0, 0]
    type_id = machine.type_id("A40-8Q")
    machine.done(SetVfProfile(second, type_id), SetVfProfile(first, type_id), SetVfProfile(first, "0"))
    assert uses(machine) == [2, 1, 0]
    machine.done(SetVfProfile(second, "0"), SetVfProfile(second, type_id))
    assert uses(machine) == [2, 3, 0]


def test_a_quarantine_lasts_until_the_vfs_are_made_anew(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    vf = machine.gpu().vfs[1].address
    step = QuarantineFunction(vf, "QEMU of web was\nkilled")
    assert machine.take(step, dry_run=True).changes[0].changed
    assert machine.done(step)
    assert not machine.done(QuarantineFunction(vf, "another reason"))
    assert [one.quarantine for one in machine.gpu().vfs[:2]] == [None, "QEMU of web was killed"]
    machine.done(SetVirtualFunctions(PF, 0), SetVirtualFunctions(PF, machine.card.total_vfs))
    assert all(one.quarantine is None for one in machine.gpu().vfs)


def test_an_operator_lifts_a_quarantine_by_removing_its_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    machine.done(QuarantineFunction(vf, "killed"))
    (machine.files.root / f"run/vgpuctl/quarantine/{PF}/{vf}").unlink()
    assert machine.gpu().vfs[0].quarantine is None


def test_only_a_vf_can_be_in_quarantine(tmp_path: Path) -> None:
    assert Machine(tmp_path, "a40").refused(QuarantineFunction(PF, "killed")).code == "not-found"
