# SPDX-License-Identifier: Apache-2.0
"""The front page has the twenty daily commands and the subjects; `help` finds subjects, commands and near misses."""

from pathlib import Path

import click
import pytest

from vgpuctl.cli.contents import COMMANDS, DAILY, FAMILIES, SECTIONS, SELDOM
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
    assert _out(capsys, "help", "export", "nova") == _out(capsys, "export", "nova", "--help")
    assert _out(capsys, "help", "export") == _out(capsys, "export", "--help")


def test_the_page_of_a_family_has_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(_out(capsys, "serve", "--help").split())
    assert {name.partition(" ")[0] for name in COMMANDS if " " in name} == FAMILIES.keys()
    assert all(f"{name.partition(' ')[2]} {COMMANDS[name]}" in shown for name in COMMANDS if name.startswith("serve "))


def test_what_is_typed_seldom_stands_last_and_is_completed_from_its_first_letter_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _out(capsys, "help", "slurm")
    assert shown.index("export slurm") < shown.index("Seldom typed") < shown.index("slurm-resume")
    root = click.Context(command_line)
    whole = {one.value for one in command_line.shell_complete(root, "")}
    assert COMMANDS.keys() >= SELDOM and not SELDOM & whole
    assert whole & COMMANDS.keys() == {name for name in COMMANDS if " " not in name} - SELDOM
    assert whole >= FAMILIES.keys()
    assert {one.value for one in command_line.shell_complete(root, "slurm-")} == {n for n in SELDOM if "slurm-" in n}
    family = command_line.get_command(root, "export")
    assert family is not None
    assert {one.value for one in family.shell_complete(root, "k")} == {"kubevirt"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["help", "netwroks"], "did you mean networks"),
        (["list", "vms"], "Did you mean list-vms?"),
        (["vm", "create"], "Did you mean create-vm?"),
        (["tenants"], "Did you mean list-tenants?"),
        (["delete-tenant", "acme"], "Did you mean offboard-tenant?"),
        (["remove-host"], "Did you mean forget-host?"),
        (["remove-vm", "web"], "Did you mean delete-vm?"),
        (["craete-vm"], "Did you mean create-vm"),
        (["export-nova"], "Did you mean export nova?"),
        (["nova", "export"], "Did you mean export nova?"),
        (["web"], "Did you mean serve web?"),
        (["export", "nvoa"], "After `export` comes a FORMAT: nova."),
        (["serve", "--listen"], "No such option '--listen'. Options stand behind the SERVICE"),
        (["export", "-i", "hosts.yml", "nova"], "Options stand behind the FORMAT, as in `vgpuctl export layout …`."),
        (["export", "--", "nova"], "Write it right behind `export`: `vgpuctl export nova …`."),
        (["serve"], "Serve read-only pages of the fleet."),
        (["list-vms", "--tennant", "acme"], "'--tenant'"),
        (["attach-gpu", "acme/web-1", "--gpu", "A40-8Q"], "No such option '--gpu'.\n"),
        (["list-hosts", "--refresh"], "No such option '--refresh'.\n"),
        (["check-hosts", "gpu1", "--snapshot"], "(gpu1); hosts are named by -l"),
    ],
)
def test_a_near_miss_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert told in capsys.readouterr().err
