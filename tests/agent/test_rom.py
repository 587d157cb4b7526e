# SPDX-License-Identifier: Apache-2.0
"""The hash of a card's ROM: read only while it is switched on, and never a guess."""

import hashlib
from pathlib import Path

from tests.agent.simulated import PF, Machine
from vgpuctl.agent.wire.steps import BindDriver, HashRom


def digest(machine: Machine) -> str | None:
    """The answer of the step; the ROM is off again."""
    reply = machine.take(HashRom(PF))
    assert reply.problem is None
    assert not reply.changes[0].changed
    assert machine.files.state().roms == []
    return reply.changes[0].after


def test_a_rom_has_the_hash_of_its_content(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    expected = hashlib.sha256(b"\x55\xaa VBIOS 94.02.00.00.00 of " + machine.card.model.encode()).hexdigest()
    assert digest(machine) == digest(machine) == expected
    machine.begin("vbios-changed")
    assert digest(machine) != expected


def test_a_rom_that_the_kernel_does_not_show_has_no_hash(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40")
    assert machine.done(BindDriver((PF,), "vfio-pci"))
    assert digest(machine) is None
