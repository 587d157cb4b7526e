# SPDX-License-Identifier: Apache-2.0
"""A whole card is attached to a guest that runs, and the guest lets go of it: on an emulated host of its own.

`make test-boot` runs it. The card of the shared host has an audio function, and libvirt attaches one PCI function at
a time, so that card waits for the next start.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.guest_console import wait_for_words
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.lab_fixtures import lab_folder
from vgpuctl_lab import LabFolder
from vgpuctl_lab.cards import parse_host

__all__ = ["lab_folder"]

pytestmark = [pytest.mark.kernel_lab, pytest.mark.timeout(900)]

PLUG = ("plug", *ACME)
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--spare-ports", "1")
GUEST = "vgpuctl lab guest:"


@pytest.fixture
def operator(lab_folder: LabFolder, tmp_path: Path) -> Iterator[Operator]:
    """An operator of an emulated host whose only card is for passthrough and alone in its slot."""
    own = replace(lab_folder, path=lab_folder.path.with_name(f"{lab_folder.path.name}-card"))
    own.claim()
    if not own.cache.exists():
        own.cache.symlink_to(lab_folder.cache.resolve())
    (started,) = lab.up([parse_host("gpu1=t4:passthrough")], folder=own)
    try:
        yield Operator(tmp_path, started.inventory, f"sqlite:///{tmp_path}/store.db")
    finally:
        lab.down(folder=own)


def test_a_whole_card_comes_to_a_guest_that_runs_and_goes(operator: Operator) -> None:
    operator.does("create-tenant", "acme")
    image = ("--path", "/run/lab/guest/idle.img", "--kind", "kernel", "--format", "raw", "--host", "gpu1")
    operator.does("register-image", "tiny", *image)
    operator.does("create-vm", *PLUG, *SIZE, "--kernel", "tiny", "--kernel-args", "eject")
    wait_for_words(operator, "plug", f"{GUEST} halting")
    attached = operator.json("attach-gpu", "plug", "passthrough:T4", *ACME)
    assert (attached["when"], attached["lease"]["state"]) == ("now", "running")
    assert operator.json("detach-gpu", "plug", "0", *ACME)["state"] == "detached"
    wait_for_words(operator, "plug", f"{GUEST} released a device")
    assert operator.json("repair") == []
    (card,) = operator.json("list-gpus", "--refresh")
    assert card["gpu"]["driver"] == "nvidia", "it has its first driver again"
    operator.does("delete-vm", *PLUG, "--yes", "--timeout", "0")
