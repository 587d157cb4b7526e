# SPDX-License-Identifier: Apache-2.0
"""The order in which VFs were used."""

from pathlib import Path

from tests.agent.simulated import Machine
from vgpuctl.agent.wire.sharing import SetVfProfile


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
