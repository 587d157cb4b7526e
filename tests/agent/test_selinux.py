# SPDX-License-Identifier: Apache-2.0
"""SELinux's mode and the labels of pools, read from real extended attributes."""

import os
from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.facts import selinux
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.diagnostics import PoolLabel

ENFORCE = "/sys/fs/selinux/enforce"


def pool(name: str, path: str, kind: str = "dir") -> str:
    return f"<pool type='{kind}'><name>{name}</name><target><path>{path}</path></target></pool>"


def make(tmp_path: Path, mode: str | None, labels: dict[str, str | None], **definitions: str) -> Host:
    files: machine.Tree = {f"/etc/libvirt/storage/{name}.xml": text for name, text in definitions.items()}
    files |= dict.fromkeys(labels)
    if mode is not None:
        files[ENFORCE] = mode
    root = machine.build(tmp_path / "root", machine.BASE, files)
    for path, label in labels.items():
        if label is not None:
            try:
                os.setxattr(root / path.lstrip("/"), "security.selinux", f"{label}\0".encode())
            except PermissionError:
                pytest.skip("labels need root")
    return Host(str(root))


@pytest.mark.parametrize(("text", "mode"), [("1", "enforcing"), ("0\n", "permissive"), (None, None)])
def test_the_mode_is_what_the_kernel_says(text: str | None, mode: str | None, tmp_path: Path) -> None:
    assert selinux.read_mode(make(tmp_path, text, {})) == mode


def test_the_labels_of_pools_that_are_folders_are_read(tmp_path: Path) -> None:
    labels = {
        "/var/lib/libvirt/images": "system_u:object_r:virt_image_t:s0",
        "/srv/vms": "system_u:object_r:default_t:s0:c1,c2",
        "/bare": None,
    }
    definitions = {
        "images": pool("images", "/var/lib/libvirt/images"),
        "vms": pool("vms", "/srv/vms", "netfs"),
        "bare": pool("bare", "/bare"),
        "lvm": pool("lvm", "/dev/vg", "logical"),
        "gone": pool("gone", "/gone"),
    }
    unread: list[str] = []
    found = selinux.read_pools(make(tmp_path, "1", labels, **definitions), unread)
    assert (found, unread) == (
        (
            PoolLabel("bare", "/bare", None),
            PoolLabel("images", "/var/lib/libvirt/images", "virt_image_t"),
            PoolLabel("vms", "/srv/vms", "default_t"),
        ),
        [],
    )


def test_nothing_is_read_where_selinux_is_off(tmp_path: Path) -> None:
    host = make(tmp_path, None, {"/srv/vms": None}, vms=pool("vms", "/srv/vms"))
    assert selinux.read_pools(host, []) == ()


def test_a_definition_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    unread: list[str] = []
    assert selinux.read_pools(make(tmp_path, "1", {}, broken="<pool"), unread) == ()
    assert "broken.xml cannot be read" in unread[0]
