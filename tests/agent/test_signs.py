# SPDX-License-Identifier: Apache-2.0
"""Signs of trouble that are no facts, read from a tree of files."""

from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.facts import signs
from vgpuctl.agent.host import Host

VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("firmware", "is_on"),
    [
        ({}, False),
        ({"/sys/firmware/efi/efivars": None}, None),
        ({VARIABLE: "\x06\x00\x00\x00\x01"}, True),
        ({VARIABLE: "\x06\x00\x00\x00\x00"}, False),
    ],
    ids=["started by a BIOS", "no such variable", "on", "off"],
)
def test_secure_boot_is_what_the_firmware_says(
    firmware: machine.ReadableTree, is_on: bool | None, tmp_path: Path
) -> None:
    root = machine.build(tmp_path / "root", machine.BASE, firmware)
    assert signs.read(Host(str(root))).secure_boot is is_on
