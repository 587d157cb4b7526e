# SPDX-License-Identifier: Apache-2.0
"""The examples of `vgpuctl lab`, on simulated hosts."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, play, scene
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.cli.examples import EXAMPLES
from vgpuctl_lab.cli.lab import command

STATUS = "lab status"
SCENES: dict[str, Scene] = {
    "up": scene(Run("inventory.yml", then={STATUS: "sim-003"}), Run("inventory.yml", then={STATUS: "sim-005"})),
    "status": scene(Run("sim-001"), Run('"sim-001"')),
    "fault": scene(Run("power-off", then={STATUS: "off"}), Run("", then={STATUS: "!off"})),
    "play": scene(Run("temperature_celsius"), Run("")),
    "reboot": scene(Run(""), Run("")),
    "log": scene(
        Run("Xid", first=("lab fault sim-001 xid",)),
        Run("Xid", first=("lab fault sim-002 xid",)),
    ),
    "shell": scene(Run("uid=0"), Run("Python 3")),
    "licence-token": scene(Run("client.tok"), Run("both.tok")),
    "tutorial": scene(Run("tutorial"), Run("rehearsal")),
    "down": scene(Run("sim-003", then={STATUS: "!sim-003"}), Run("sim-001", then={STATUS: "!sim-001"})),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A lab of three simulated hosts."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("lab")
    operator = Operator(home, home / "none.yml", "", {"VGPUCTL_LAB_FOLDER": str(home / "lab")})
    made = Stage(operator, home)
    made.does("lab up --simulated 3")
    yield made
    for folder in (home / "lab", *home.glob("*/.lab")):
        made.does(f"lab --folder {folder} down")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_do_what_they_say(up: Stage, name: str) -> None:
    play(up, f"lab {name}", SCENES[name], EXAMPLES[name])


def test_each_command_has_examples() -> None:
    names = {name for name, one in command.commands.items() if not isinstance(one, click.Group)}
    assert EXAMPLES.keys() == names
