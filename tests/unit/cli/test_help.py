# SPDX-License-Identifier: Apache-2.0
"""The front page has the twenty daily commands and the subjects; `help` finds subjects, commands and near misses."""

from pathlib import Path

import click
import pytest

from vgpuctl.cli.contents import COMMANDS, DAILY, SECTIONS
from vgpuctl.cli.frame.command_section import CommandSection
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.main import run

ROOT = Path(__file__).parents[3]


def _out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def test_the_front_page_has_the_daily_commands_and_every_subject(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _out(capsys, "--help")
    assert len(set(DAILY)) == len(DAILY) <= 24
    assert all(f"  {name} " in shown and COMMANDS[name] in shown for name in DAILY)
    assert all(f"  {one.subject} " in shown for one in SECTIONS)
    assert "create-peering" not in shown
    assert _out(capsys, "help") == shown


def test_subjects_and_commands_share_no_name() -> None:
    subjects = [one.subject for one in SECTIONS]
    assert len(set(subjects)) == len(subjects)
    assert not set(subjects) & {*command_line.list_commands(click.Context(command_line)), "all"}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.subject)
def test_a_subject_has_its_commands_and_pages_that_exist(
    section: CommandSection, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _out(capsys, "help", section.subject)
    assert all(f"  {name} " in shown for name in section.commands)
    for page in section.pages:
        assert (ROOT / "docs" / f"{page}.md").is_file() and f"docs/{page}.md" in shown


def test_help_all_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _out(capsys, "help", "all")
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert [line for line in shown.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_sentence_of_its_help(name: str) -> None:
    found = command_line.get_command(click.Context(command_line), name)
    assert found is not None and found.help is not None
    paragraph = " ".join(found.help.partition("\n\n")[0].split())
    first = paragraph.partition(". ")[0].removesuffix(".")
    assert f"{first}." == COMMANDS[name], "vgpuctl/cli/contents.py and the docstring differ"


def test_help_of_a_command_is_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, "help", "show-config") == _out(capsys, "show-config", "--help")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["help", "netwroks"], "did you mean networks"),
        (["list", "vms"], "Did you mean list-vms?"),
        (["vm", "create"], "Did you mean create-vm?"),
        (["tenants"], "Did you mean list-tenants?"),
        (["craete-vm"], "Did you mean create-vm"),
        (["list-vms", "--tennant", "acme"], "'--tenant'"),
    ],
)
def test_a_near_miss_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert told in capsys.readouterr().err
