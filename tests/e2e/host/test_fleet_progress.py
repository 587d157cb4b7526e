# SPDX-License-Identifier: Apache-2.0
"""The progress of commands that read the fleet, while one host is silent."""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.terminal import on_terminal
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder

_SILENT_S = 6
_LINE = re.compile(r"^\d of 3 hosts, 5 s; waiting for silent", re.MULTILINE)
_IN_PLACE = re.compile(r"\r\d of 3 hosts, \d s; waiting for silent")
_ERASED = re.compile(r"\r\d of 3 hosts[^\r]*\r +\r(?!\d of 3)")


@contextlib.contextmanager
def _a_port_that_says_nothing() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Two hosts that answer, and `silent`, which takes connections and says nothing for six seconds."""
    home: Path = tmp_path_factory.mktemp("progress")
    with simulated_fleet(home, 2, "a40") as fleet, _a_port_that_says_nothing() as port:
        folder = simulated_folder(lab.LabFolder(fleet.path))
        (home / "silent.yml").write_text(
            f"all: {{hosts: {{silent: {{ansible_host: 127.0.0.1, ansible_port: {port}}}}}}}"
        )
        made = Operator(home, folder.inventory, f"sqlite:///{home}/store.db")
        inventories = f"{folder.inventory} {home}/silent.yml"
        yield Operator(
            home, made.inventory, made.database, {"VGPUCTL_INVENTORY": inventories, "VGPUCTL_CONNECT_TIMEOUT": "6"}
        )


_SECOND = pytest.mark.long(
    "tests/e2e/host/test_fleet_progress.py::test_a_file_gets_a_line_with_the_hosts_that_are_awaited",
    "tests/unit/cli/shown/test_progress.py::test_a_file_gets_a_line_every_five_seconds_and_a_last_one",
)


@pytest.mark.parametrize("command", ["list-hosts", pytest.param("check-hosts", marks=_SECOND)])
def test_a_file_gets_a_line_with_the_hosts_that_are_awaited(command: str, operator: Operator) -> None:
    with operator.start(command, "-q") as quiet:  # beside the other: both wait for the silent host
        done = operator.run(command)
        quiet_err = quiet.communicate(timeout=120)[1]
    assert _LINE.search(done.err), done.err
    assert any(line.startswith("3 of 3 hosts, 1 failed, ") for line in done.err.splitlines()), "and one at the end"
    assert quiet.returncode == done.code and "hosts, 5 s" not in quiet_err, quiet_err


@pytest.mark.long(
    "tests/unit/cli/shown/test_progress.py::"
    "test_a_terminal_shows_one_line_that_is_erased_before_other_lines_and_at_the_end",
    "tests/e2e/host/test_fleet_progress.py::test_a_file_gets_a_line_with_the_hosts_that_are_awaited",
)
def test_a_terminal_shows_the_line_in_place_and_erases_it(operator: Operator) -> None:
    with on_terminal(operator, "list-hosts") as terminal:
        terminal.wait_for("waiting for silent")
        terminal.ends_with(10)
    shown = terminal.seen.decode()
    assert "\x1b" not in shown, "NO_COLOR: no escape codes"
    assert _IN_PLACE.search(shown) and _ERASED.search(shown), shown
    assert shown.rstrip().splitlines()[-2].endswith("1 of 3 hosts did not answer")
