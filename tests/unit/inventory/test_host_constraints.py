# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu_placing` becomes a host's constraints, or an error that names file, line and key."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, CpuRatio, GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuMatch


def read(folder: Path, text: str) -> HostConstraints:
    lines = "".join(f"      {line}\n" for line in text.splitlines())
    (folder / "hosts.yml").write_text(f"g:\n  hosts: {{h1: }}\n  vars:\n    vgpu_placing:\n{lines}")
    return load_inventory([folder / "hosts.yml"]).constraints("h1")


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    assert read(
        tmp_path,
        """\
labels: {rack: r1, tier: gold}
policy: least-utilised@50
maintenance: new fans on Monday
cpus: {pinned: false, shared: 8}
gpus:
- {match: {board: A40}, speed: 0.5}
- {match: {address: "0000:41:00.0"}, quarantine: true, labels: {link: a}}
""",
    ) == HostConstraints(
        labels=frozenset({("rack", "r1"), ("tier", "gold")}),
        maintenance="new fans on Monday",
        policy="least-utilised@50",
        cpu_ratio=CpuRatio(None, 8),
        gpus=(
            GpuConstraints(GpuMatch(board="A40"), speed=0.5),
            GpuConstraints(GpuMatch(address="0000:41:00.0"), frozenset({("link", "a")}), "it is in quarantine"),
        ),
    )


def test_nothing_said_and_false_mean_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "maintenance: false\ncpus: {}") == NO_HOST_CONSTRAINTS
    (tmp_path / "bare.yml").write_text("g: {hosts: {h1: }}\n")
    assert load_inventory([tmp_path / "bare.yml"]).constraints("h1") is NO_HOST_CONSTRAINTS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lables: {a: b}", "is not a key of vgpu_placing"),
        ("labels: {a: 1}", "not text"),
        ("labels: {a b: c}", "labels.a b of host 'h1' is 'a b', not a part of a label"),
        ("labels: {a: b c}", "labels.a of host 'h1' is 'b c', not a part of a label"),
        ("policy: best", "vgpu_placing.policy of host 'h1': 'best' is no policy"),
        ("cpus: {pinned: 0}", "cpus.pinned of host 'h1' is 0"),
        ("cpus: {pinned: true}", "not a whole number"),
        ("cpus: {pinned: }", "is empty, not a whole number"),
        ("gpus: [{match: {address: }}]", "match.address of host 'h1' is empty, not text"),
        ("gpus: [{speed: 0.5}]", "has no 'match'"),
        ("gpus: [{match: all, speed: 2}]", "is 2"),
        ("maintenance: 3", "not text"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, text)
    assert words in caught.value.message
    assert "hosts.yml:5" in caught.value.message
