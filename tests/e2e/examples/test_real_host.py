# SPDX-License-Identifier: Apache-2.0
"""The examples of commands that libvirt's test driver refuses, on this machine's QEMU."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, play, scene
from tests.e2e.examples.stage import SMALL
from tests.e2e.operator import Operator
from tests.e2e.real_host import real_host

WEB_1 = f"create-vm acme/web-1 {SMALL}"
BEFORE = ("create-snapshot acme/web-1 before",)
SNAPSHOTS = "list-snapshots acme/web-1"
SHOW = "show-vm acme/web-1"


SCENES: dict[str, Scene] = {
    "console": scene(Run("Ctrl-] leaves", keys=b"\x1d"), Run(""), first=(WEB_1,)),
    "resize-disk": scene(
        Run("20 GiB", then={SHOW: "20 GiB"}),
        Run("12 GiB", then={SHOW: "12 GiB"}),
        first=(f"{WEB_1} --data-disk data,size=10GiB",),
    ),
    "delete-snapshot": scene(
        Run("before", first=BEFORE, then={SNAPSHOTS: "!before"}),
        Run("before", first=BEFORE, then={SNAPSHOTS: "!before"}),
        first=(WEB_1,),
    ),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of this machine as gpu1, whose store has the tenant acme."""
    home: Path = tmp_path_factory.mktemp("here")
    with real_host(home) as operator:
        operator.does("create-tenant", "acme")
        yield operator


@pytest.fixture
def stage(here: Operator, tmp_path: Path) -> Iterator[Stage]:
    shutil.copy(here.home / "store.db", tmp_path / "store.db")
    made = replace(here, home=tmp_path, database=f"sqlite:///{tmp_path}/store.db")
    yield Stage(made, tmp_path)
    made.does("offboard-tenant", "acme", "--yes", "--delete-disks", "--timeout", "0")


@pytest.mark.parametrize("name", SCENES)
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])
