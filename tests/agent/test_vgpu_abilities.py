# SPDX-License-Identifier: Apache-2.0
"""A GPU's rules for its vGPUs by NVML; the simulated driver keeps the rules it tells."""

from pathlib import Path

import pytest

from tests.agent.measured import inject
from tests.agent.simulated import Machine
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities

UNKNOWN, INVALID_ARGUMENT, NOT_FOUND = 999, 2, 13


def _abilities(machine: Machine) -> VgpuAbilities:
    found = machine.gpu().abilities
    assert found is not None
    return found


def test_a_driver_without_rules_says_that_there_are_none(tmp_path: Path) -> None:
    found = _abilities(Machine(tmp_path, "a40", with_vfs=True))
    assert (found.fractional, found.mixed_types, found.mixed_sizes, found.problems) == (True, True, True, ())
    assert (found.alone_in_vm, found.alone_by_type, found.alone_by_size) == ((), (), ())
    assert Machine(tmp_path / "other", "flex-170").gpu().abilities is None


@pytest.mark.parametrize(
    ("value", "rules"),
    [(1, {"alone_by_type"}), (2, {"alone_by_size"}), (4, {"alone_in_vm"}), (5, {"alone_by_type", "alone_in_vm"})],
)
def test_a_rule_names_the_types_that_it_is_of(value: int, rules: set[str], tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    machine.begin("types-alone", value)
    found = _abilities(machine)
    assert {name for name in vars(found) if name.startswith("alone") and getattr(found, name)} == rules
    assert set(getattr(found, min(rules))) == {one.type_id for one in machine.gpu().types}


def test_the_driver_creates_no_type_beside_one_that_is_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    machine.begin("types-alone", 1)
    first, second = (vf.address for vf in machine.gpu().vfs[:2])
    machine.done(SetVfProfile(first, machine.type_id("A40-8Q")))
    assert machine.creatable("A40-8Q", "A40-8C") == [5, 0]
    refused = machine.take(SetVfProfile(second, machine.type_id("A40-8C")))
    assert refused.problem is not None
    machine.done(SetVfProfile(second, machine.type_id("A40-8Q")))


@pytest.mark.parametrize(
    ("function", "code", "missing", "is_told"),
    [
        ("nvmlDeviceGetVgpuCapabilities", UNKNOWN, {"fractional", "mixed_types", "mixed_sizes"}, True),
        ("nvmlDeviceGetVgpuCapabilities", INVALID_ARGUMENT, {"fractional", "mixed_types", "mixed_sizes"}, False),
        ("nvmlVgpuTypeGetCapabilities", UNKNOWN, {"alone_in_vm", "alone_by_type", "alone_by_size"}, True),
        ("nvmlVgpuTypeGetCapabilities", NOT_FOUND, {"alone_in_vm", "alone_by_type", "alone_by_size"}, False),
    ],
)
def test_a_rule_that_is_not_told_is_none_and_keeps_no_vm_away(
    function: str, code: int, missing: set[str], is_told: bool, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, "a40", with_vfs=True)
    inject(machine, **{function: code})
    gpu = machine.gpu()
    assert gpu.abilities is not None and (gpu.problems, gpu.unread) == ((), ())
    assert {name for name in missing if getattr(gpu.abilities, name) is not None} == set()
    assert bool(gpu.abilities.problems) is is_told
