# SPDX-License-Identifier: Apache-2.0
"""Facts of the boot unit: an upgrade of the distribution can remove its interpreter."""

from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.facts import boot as facts
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.guests.boot_unit import render_boot_unit

PYTHON = "/usr/bin/python3.9"


@pytest.mark.parametrize("result", [None, '{"restored_boot_id": "x"}', "{"], ids=["none", "restored", "broken"])
def test_a_unit_whose_python_is_gone_is_noticed(result: str | None, tmp_path: Path) -> None:
    files = {wire.MANIFEST: "{}", wire.UNIT: render_boot_unit(PYTHON, (), cards=1)}
    if result is not None:
        files[wire.RESULT] = result
    root = machine.build(tmp_path / "root", files)
    found = facts.read(Host(str(root)))
    assert found is not None
    assert found.missing_python == PYTHON
    program = root / PYTHON.lstrip("/")
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    found = facts.read(Host(str(root)))
    assert found is not None
    assert found.missing_python is None
