# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu_health` becomes a host's policy, or an error that names file, line and key."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthPolicy
from vgpuctl.model.secret import ProgramLine


def read(folder: Path, text: str) -> HealthPolicy:
    (folder / "hosts.yml").write_text(f"g:\n  hosts: {{h1: }}\n  vars:\n    vgpu_health: {text}\n")
    return load_inventory([folder / "hosts.yml"]).health_policy("h1")


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    text = "{tolerate: [xid-ignore, health-unread], memory_test: /opt/test --all, memory_test_timeout: 60}"
    test = ProgramLine("/opt/test --all")
    assert read(tmp_path, text) == HealthPolicy((HealthCode.XID_IGNORE, HealthCode.UNREAD), test, 60)


def test_nothing_said_is_the_safe_default(tmp_path: Path) -> None:
    (tmp_path / "bare.yml").write_text("g: {hosts: {h1: }}\n")
    assert load_inventory([tmp_path / "bare.yml"]).health_policy("h1") is DEFAULT_HEALTH_POLICY
    assert read(tmp_path, "{tolerate: []}").tolerate == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{tolerate: [xid-79]}", "'xid-79'"),
        ("{tolerates: []}", "is not a key of vgpu_health"),
        ("{memory_test: memtest}", "does not begin with the path of a program"),
        ('{memory_test: "/bin/x \'a"}', "not a command"),
        ("{memory_test_timeout: 0}", "is 0"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, text)
    assert words in caught.value.message
    assert "hosts.yml:4" in caught.value.message
