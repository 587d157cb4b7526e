# SPDX-License-Identifier: Apache-2.0
"""Every exit to the terminal shows foreign text and obeys none of it."""

import io
import json
import sys
from typing import Any

import click
import pytest

from vgpuctl.cli import contents, main
from vgpuctl.cli.shown import output
from vgpuctl.cli.shown.failure import report
from vgpuctl.errors import NoCapacity

HOSTILE = "gpu1\x1b]52;c;cm0=\x07\u202e[red]:smile:\ud800\n"
SHOWN = r"gpu1\x1b]52;c;cm0=\x07\u202e[red]:smile:\ud800\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_shows_markup_and_controls_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["NAME", "LINES"], [[HOSTILE, ("a\x9b", None)]], empty="none")
    written = capsys.readouterr().out
    assert SHOWN in written
    assert r"a\x9b" in written


def test_a_table_fits_into_a_terminal_and_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ["acme/web-1", "the VM lacked something", "5 s ago"]
    written = {}
    for name, stream in {"terminal": _Terminal(), "pipe": io.StringIO()}.items():
        monkeypatch.setenv("COLUMNS", "30")
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", said := io.StringIO())
        output.print_table(["VM", "WHY", "SEEN"], [row], empty="", drops={"WHY": 0, "SEEN": 1})
        written[name] = (stream.getvalue(), said.getvalue())
    assert max(map(len, click.unstyle(written["terminal"][0]).splitlines())) <= 30
    assert "no room for SEEN" in written["terminal"][1]
    assert written["pipe"] == ("VM          WHY                      SEEN\n" + "  ".join(row) + "\n", "")


@pytest.mark.parametrize("err", [False, True])
def test_a_line_stays_one_line(err: bool, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line(f"{HOSTILE}error: all disks gone", err=err)
    written = capsys.readouterr()
    assert (written.err if err else written.out) == f"{SHOWN}error: all disks gone\n"


def test_only_our_own_words_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.print_line(output.Styled("failed\x1b[2J", "red"), ": \x1b[8mhidden")
    assert terminal.getvalue() == "\x1b[31mfailed\\x1b[2J\x1b[0m: \\x1b[8mhidden\n"


def test_nothing_is_coloured_with_no_color_or_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.print_line(output.Styled("failed", "red"))
    assert capsys.readouterr().out == "failed\n"
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_line(output.Styled("failed", "red"))
    assert terminal.getvalue() == "failed\n"


def test_json_is_escaped_and_equal(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": HOSTILE})
    written = capsys.readouterr().out
    assert json.loads(written) == {"name": HOSTILE}
    assert not set(written) & {"\x1b", "\x07", "\u202e", "\ud800"}


def test_indented_json_is_as_the_standard_library_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    deep = {"a": [], "b": {}, "c": [[1, -0.5, 1e300, None, True, 10**30], {"d": 'x"\\/'}]}
    values: tuple[Any, ...] = ({}, [], "é\u2603", deep)
    for value in values:
        output.print_json(value)
        assert capsys.readouterr().out == json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def test_csv_and_documents_keep_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_csv(["name"], [["a\x1bc"]])
    output.print_document("x\x1by\nz")
    assert capsys.readouterr().out == "name\na\\x1bc\nx\\x1by\nz\n"


def _run(arguments: list[str], raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail() -> None:
        raise raised

    monkeypatch.setitem(contents.COMMANDS, "fail", "")
    monkeypatch.setitem(contents.FOLDERS, "fail", "vm")
    module = type(sys)("vgpuctl.cli.vm.fail")
    module.command = click.Command("fail", callback=fail)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vgpuctl.cli.vm.fail", module)
    return main.run(["fail", *arguments])


def test_an_error_cannot_forge_a_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = NoCapacity("no GPU\nhint: run this", context=["gpu1: \nhint: or this"], hint="real\x07")
    assert _run([], error, monkeypatch) == 5
    assert capsys.readouterr().err.splitlines() == [
        "error: no GPU",
        "  hint: run this",
        r"  gpu1: \nhint: or this",
        r"hint: real\x07",
    ]


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RecursionError("too deep\nline"), "unexpected RecursionError: too deep line"),
        (MemoryError(), "the memory of this machine does not suffice"),
        (OverflowError("x" * 5000), "unexpected OverflowError: xxx"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "unexpected UnicodeEncodeError"),
        (OSError(5, "Input/output error", "/var/x"), "this machine answered `Input/output error` at /var/x"),
        (KeyError("x\x1b"), "unexpected KeyError"),
    ],
)
def test_an_unforeseen_error_is_one_line(
    raised: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run([], raised, monkeypatch) == 70
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"error: {said}")
    assert len(lines) <= 2
    assert max(map(len, lines)) < 400
    assert "Traceback" not in "".join(lines)


def test_a_word_of_the_command_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["list-vms", "--\x1b[2Jx"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_no_is_an_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(click.Abort) as stopped:
        output.confirm("Delete it?")
    assert report(stopped.value, []) == 130
    assert "error: stopped: the answer was no\n" in capsys.readouterr().err
