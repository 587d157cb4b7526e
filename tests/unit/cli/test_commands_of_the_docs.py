# SPDX-License-Identifier: Apache-2.0
"""Each `$ vgpuctl …` line of the written pages and of the daily tasks is a command line that the command takes."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from tests.bench.daily_tasks import TASKS, read_until
from vgpuctl.cli.frame.command_line import begin
from vgpuctl.cli.main import command as command_line

ROOT = Path(__file__).parents[3]
_PAGES = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/uses/*.md"))
_PROMPT = re.compile(r"^ *\$ (?:[A-Z_]+=\S+ )*vgpuctl (\S.*)$")
_SUBSTITUTION = re.compile(r"\$\(([^)]*)\)\S*")
_SHELL = ("|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1")


def _lines(page: Path) -> list[tuple[int, str]]:
    """Line number and what follows `$ vgpuctl` of each prompt; a line that ends with a backslash goes on."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if match := _PROMPT.match(line):
            text, rest = match[1], iter(lines[number:])
            while text.endswith("\\"):
                text = text[:-1] + next(rest).strip()
            found.append((number, text))
    return found


def _arguments(text: str) -> list[str]:
    """The arguments of `vgpuctl` on a command line, up to the shell's next operator, without `…` for more of them."""
    words = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    words.commenters = ""
    found = []
    for word in words:
        if word in _SHELL or word.startswith("#"):
            break
        if word != "…":
            found.append(word)
    return found


def _fault(arguments: list[str]) -> str | None:
    """Why a command line is not taken; None for one that is."""
    context = click.Context(command_line, info_name="vgpuctl")
    command: click.Command = command_line
    try:
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            name, found, arguments = command.resolve_command(context, list(arguments))
            assert found is not None
            command = found
            if isinstance(found, click.Group):
                context = click.Context(found, info_name=name, parent=context)
        command.make_context(command.name, list(arguments), parent=context)
    except (click.ClickException, click.exceptions.Exit) as error:
        return None if isinstance(error, click.exceptions.Exit) else error.format_message().partition("\n")[0]
    finally:
        begin()
    return None


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_command_line_of_a_page_is_taken(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VGPUCTL_CONFIG", "")
    faults = []
    for number, text in _lines(page):
        fault = _fault(_arguments(text))
        if fault is not None:
            faults.append(f"{page.name}:{number}: vgpuctl {text}\n    {fault}")
    assert not faults, "\n".join(faults)


def test_there_are_such_lines() -> None:
    assert sum(len(_lines(page)) for page in _PAGES) > 150


def _daily_lines() -> list[tuple[str, str]]:
    """Each task with each line of it for vgpuctl of now, what prepares it too."""
    found = []
    for part in yaml.safe_load(TASKS.read_text(encoding="utf-8")).values():
        found += [("prepare", line) for line in part["prepare"]]
        for task in part["tasks"]:
            found += [(task["task"], line) for line in (*task.get("prepare", ()), *task["now"])]
    return found


@pytest.mark.parametrize(("task", "line"), _daily_lines())
def test_each_line_of_a_daily_task_is_taken(
    task: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VGPUCTL_CONFIG", "")
    answered = _SUBSTITUTION.sub("2031-01-06T08:00", line)
    for text in re.findall(r"vgpuctl ([^;]*)", "; ".join([answered, *_SUBSTITUTION.findall(line)])):
        fault = _fault(_arguments(text))
        assert fault is None, f"{task}: vgpuctl {text}: {fault}"


def test_a_daily_task_has_one_exit_status_for_each_line_and_an_answer() -> None:
    parts = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    assert [len(part["tasks"]) for part in parts.values()] == [20, 20]
    for part in parts.values():
        for task in part["tasks"]:
            assert len(task.get("exits", task["now"])) == len(task["now"]), task["task"]
            assert task["answer"] is None or re.compile(task["answer"]), task["task"]


def test_lines_are_read_up_to_the_answer() -> None:
    printed = "reading 40 hosts\nsim-001: ok\nsim-002: 3 left\nsim-003: 4 left\n"
    assert (read_until(r"\d left", printed), read_until(None, printed)) == (3, None)
    with pytest.raises(LookupError, match="no line has"):
        read_until("^left", printed)
