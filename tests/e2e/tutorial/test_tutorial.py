# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: every command of it is run in its order, and prints what the page shows.

`pytest --regenerate` writes the outputs into the page.
"""

import contextlib
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated

PAGE = Path(__file__).parents[3] / "docs/tutorial.md"
_BLOCK = re.compile(r"(?<=```console\n)(\$ .*?)(?=```\n)", re.DOTALL)
_EXIT = re.compile(r"  # exit ([0-9]+)$")
_MOST_LINES = 14
_MOST_AGREE = 0.6
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_UUID = "5f0c1d9e-0000-4000-8000-000000000000"
_CHANGING = (
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ])[0-9]{2}:[0-9]{2}(:[0-9]{2})?"), r"2026-11-26\g<1>10:00\g<2>"),
    (re.compile(r"(?<=10:00):[0-9]{2}"), ":00"),
    (
        re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        "5f0c1d9e-0000-4000-8000-000000000000",
    ),
    (re.compile(r"(?:[0-9]+[hms])+ ago"), "2s ago"),
    (re.compile(r"[0-9.]+ s\b"), "1.2 s"),
)


@dataclass
class Shell:
    """The folder of the tutorial, as its user has it."""

    operator: Operator
    folder: Path
    background: "list[subprocess.Popen[str]]"

    def run(self, line: str) -> str:
        """Run a line of the page. Returns what it wrote, without what differs from run to run."""
        wanted = _EXIT.search(line)
        words = shlex.split(_EXIT.sub("", line).removeprefix("$ "))
        assert words.pop(0) == "vgpuctl", line
        if words[-1] == "&":
            self.background.append(self.operator.start(*words[:-1], stderr=subprocess.DEVNULL))
            return ""
        with contextlib.chdir(self.folder):
            done = self.operator.run(*words)
        assert done.code == (int(wanted[1]) if wanted else 0), f"{line}: {done}"
        return _settled((done.err + done.out).replace(str(self.folder), "/home/you/tutorial"))


def _settled(text: str) -> str:
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "…"]) + "\n" * bool(lines)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """`vgpuctl lab tutorial`, and what it made until the test ends."""
    need_simulated()
    folder = tmp_path / "tutorial"
    operator = Operator(
        tmp_path,
        folder,
        "",
        {"VGPUCTL_LAB_FOLDER": str(folder / ".lab")},
        ("VGPUCTL_INVENTORY", "VGPUCTL_DATABASE_URL", "VGPUCTL_CONFIG"),
    )
    made = operator.json("lab", "tutorial", str(folder))
    assert sorted(made["written"]) == ["activate", "layout.yml", "umbrella.yml", "vgpuctl.yaml"]
    assert operator.json("lab", "tutorial", str(folder))["written"] == []
    assert operator.json("allow-config", str(folder), "--yes")["changed"] is True
    opened = Shell(operator, folder, [])
    try:
        yield opened
    finally:
        for one in opened.background:
            one.send_signal(signal.SIGINT)
            one.wait(60)
        with contextlib.chdir(folder):
            operator.run("lab", "down")


def _agree(shown: str, seen: str) -> bool:
    """True if most lines of the page are what the command wrote: hosts and VMs take turns, and readings differ."""
    lines, now = ([_NUMBERS.sub("0", line) for line in text.splitlines() if line.strip()] for text in (shown, seen))
    return sum(line in now for line in lines) >= _MOST_AGREE * len(lines)


def test_every_command_of_the_tutorial_prints_what_the_page_shows(shell: Shell, pytestconfig: pytest.Config) -> None:
    page = PAGE.read_text(encoding="utf-8")
    differing, count = [], 0

    def again(match: re.Match[str]) -> str:
        nonlocal count
        made = []
        for part in re.split(r"^(?=\$ )", match[1], flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            seen = shell.run(line)
            made.append(f"{line}\n{seen}")
            count += 1
            if not _agree(shown, seen):
                differing.append(f"{line}\n--- the page:\n{shown}--- now:\n{seen}")
        return "\n".join(made)

    made = _BLOCK.sub(again, page)
    if pytestconfig.getoption("--regenerate"):
        PAGE.write_text(made, encoding="utf-8")
        differing.clear()
    assert count > 30
    assert not differing, "\n".join(differing) + "\nrun this test with --regenerate"


def test_the_tutorial_is_run_in_the_folder_that_it_names() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "make tutorial" in page and ". ./activate" in page
    makefile = (PAGE.parents[1] / "Makefile").read_text(encoding="utf-8")
    assert "lab tutorial tutorial" in makefile
