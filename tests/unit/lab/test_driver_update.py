# SPDX-License-Identifier: Apache-2.0
"""The lab's update of a driver: other type ids, the same cards."""

from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from vgpuctl.errors import UsageError
from vgpuctl_lab.simulated.driver_update import with_driver
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.shape import Shape
from vgpuctl_lab.simulated.mix import parse_mix, shape_of

A40 = shape_of("gpu1", parse_mix("a40")[0], {}, with_vfs=True)


def ids(shape: Shape) -> dict[str, int]:
    return {one.full_name.removeprefix("NVIDIA "): one.type_id for one in shape.cards[0].types}


def test_types_have_the_ids_of_the_new_driver_and_all_else_stays() -> None:
    updated = with_driver(A40, "590.44.01", {"A40-24Q": 563, "A40-12Q": 565, "A40-48Q": 9000})
    assert updated.nvidia_driver == "590.44.01"
    assert ids(updated) == {**ids(A40), "A40-24Q": 563, "A40-12Q": 565, "A40-48Q": 9000}
    assert [one.type_id for one in updated.cards[0].types] == sorted(ids(updated).values())
    assert with_driver(updated, A40.nvidia_driver, ids(A40)).cards[0].uuid == A40.cards[0].uuid


def test_a_driver_may_have_a_type_no_longer() -> None:
    assert "A40-24Q" not in ids(with_driver(A40, "590.44.01", {"A40-24Q": None, "A40-12Q": 565}))


@pytest.mark.parametrize(
    ("type_ids", "words"),
    [({"A40-25Q": 1}, "no card of gpu1 has a vGPU type A40-25Q"), ({"A40-24Q": 563}, "cannot both be type 563")],
)
def test_ids_that_no_driver_can_have_are_refused(type_ids: dict[str, int | None], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_driver(A40, "590.44.01", type_ids)


def test_sysfs_nvml_and_the_packages_file_tell_the_same_new_ids(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40/vf-profile", with_vfs=True)
    shapes.write(with_driver(machine.files.shape, "590.44.01", {"A40-24Q": 9000}), tmp_path / "machine.json")
    machine.reboot()
    (vf, *_) = machine.files.state().vfs_of(machine.card)
    listed = machine.host.read(f"/sys/bus/pci/devices/{vf}/nvidia/creatable_vgpu_types")
    assert "9000  : NVIDIA A40-24Q" in listed and "565 " not in listed
    assert 'id="9000" name="NVIDIA A40-24Q"' in machine.host.read("/usr/share/nvidia/vgpu/vgpuConfig.xml")
    assert {one.type_id: one.name for one in machine.gpu().types}["9000"] == "A40-24Q"
