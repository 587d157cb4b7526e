# SPDX-License-Identifier: Apache-2.0
"""Data to stdout: a table for people or JSON for scripts; progress and remarks to stderr.

This is the only module that writes text: every function passes it through `vgpuctl.model.printable`, so that nothing
which comes from a host, a guest or a file acts on the terminal.
"""

import contextlib
import csv
import dataclasses
import functools
import io
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TextIO

import click

from vgpuctl.cli.frame.command_line import OutputFormat, running
from vgpuctl.local_files import writing
from vgpuctl.model.printable import printable, printable_document, printable_json


class Styled(NamedTuple):
    """A part of a line in a colour, which only a terminal without NO_COLOR shows."""

    text: str
    colour: str
    is_bold: bool = False


def print_line(*parts: str | Styled, err: bool = False) -> None:
    """Print one line on stdout, or on stderr. A line feed inside it is shown, not obeyed."""
    stream = sys.stderr if err else sys.stdout
    in_colour = not os.environ.get("NO_COLOR") and stream.isatty()
    _write("".join(_rendered(part, in_colour=in_colour) for part in parts), err=err)


def print_document(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text of several lines on stdout, or on stderr: XML, a layout, a log."""
    _write(printable_document(text), nl=nl, err=err)


def show_document(text: str) -> None:
    """Show text of several lines on a terminal, in the user's pager where it is longer than the screen."""
    is_long = text.count("\n") >= shutil.get_terminal_size().lines
    if not (is_long and sys.stdout.isatty()):
        print_document(text, err=True)
        return
    with status_held():
        click.echo_via_pager(printable_document(text))


def print_raw(data: bytes) -> None:
    """Print bytes on stdout as they are. Only where the user asked for it by an option."""
    _write(data, nl=False)


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print a value as JSON, indented or on one line, or as YAML where `-o yaml` was given.

    Dataclasses become objects, enums their value. Objects of a rehearsal say `"dry_run": true` too, and an object has
    the `steps` that hosts were spared.
    """
    rehearsal = running().rehearsal
    if rehearsal is not None:
        value = plain(value)
        if isinstance(value, dict):
            value = {"steps": plain(rehearsal.take()), **value, "dry_run": True}
        elif isinstance(value, list):
            value = [one | {"dry_run": True} if isinstance(one, dict) else one for one in value]
    if running().form is OutputFormat.YAML:
        from vgpuctl.yaml_text import yaml_text

        _write(("" if indent else "---\n") + yaml_text(plain(value), is_ascii=True), nl=False)
        return
    _write(_json(plain(value), indent))


def _json(value: Any, indent: int | None) -> str:
    """The text of a plain value. Python's own encoder is ten times slower with an indent than without."""
    text = printable_json(json.dumps(value, ensure_ascii=False))
    if indent is None:
        return text
    import msgspec

    try:
        return msgspec.json.format(text, indent=indent)
    except msgspec.DecodeError:  # half a character, as in a file's name that is no UTF-8
        return printable_json(json.dumps(value, indent=indent, ensure_ascii=False))


def print_json_error(value: object) -> None:
    """Print an error as one line of JSON on stderr."""
    _write(json.dumps(plain(value)), err=True)


def plain(value: object) -> Any:
    """Turn dataclasses, enums and tuples into what JSON knows."""
    kind: Any = type(value)
    if kind in (str, int, bool, float, type(None)):
        return value
    names = _fields(kind)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value


@functools.cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for another class."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def finish_rehearsal() -> None:
    """Print the data of a command whose dry run ended at a change of a host."""
    say("nothing was changed; the checks before this step passed")
    if running().form.is_for_programs():
        print_json({"changed": True})


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, drops: Mapping[str, int] | None = None
) -> None:
    """Print rows under headings; `empty` goes to stderr when there are none.

    drops: the columns that fit the table into a terminal: 0 for a text that may be cut, else as in `TableColumn`.
    """
    if not rows:
        say(empty)
        return
    from vgpuctl.cli.shown.table_text import TableColumn, table_text
    from vgpuctl.cli.shown.terminal import terminal_width

    width = terminal_width() if drops and sys.stdout.isatty() else None
    headings = [TableColumn(one, (drops or {}).get(one, 0), (drops or {}).get(one) == 0) for one in columns]
    made = table_text(headings, rows, width)
    for row, line in made.lines:
        print_line(Styled(line, "", is_bold=True) if row is None else line)
    if made.left_out:
        say(f"no room for {', '.join(made.left_out)}: a wider terminal, a pipe and --json show them")


def print_csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as comma-separated values under a line of headings."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    print_document(written.getvalue(), nl=False)


def say(text: str) -> None:
    """Print one remark for people on stderr, unless -q was given; that of a rehearsal begins with `dry run: `."""
    if not (running().is_quiet or running().is_summing_up):
        print_line(text if running().rehearsal is None else f"dry run: {text}", err=True)


_status = ""
_is_status_held = False
_shown_at_s = 0.0
_status_lock = threading.RLock()


def show_status(text: str) -> None:
    """Show one line on stderr in place of the one before, until anything else is printed; none for an empty text.

    Only on a terminal, without -q and outside of `status_held`. text: one that fits into a line of the terminal. It is
    erased with blanks, so that a terminal of any kind, and NO_COLOR, see no escape code.
    """
    global _shown_at_s
    with _status_lock:
        _shown_at_s = time.monotonic()
        _put_status(text)


def show_if_silent(text: str, silence_s: float) -> None:
    """Show one line as `show_status` does, unless anything was shown during the last `silence_s` seconds."""
    with _status_lock:
        if time.monotonic() - _shown_at_s >= silence_s:
            _put_status(text)


def _put_status(text: str) -> None:
    global _status
    with _status_lock:
        if running().is_quiet or _is_status_held or text == _status or not _has_terminal():
            return
        shown = printable(text)
        blanks = " " * (len(_status) - len(shown))
        _echo(f"\r{shown}{blanks}" + "\r" * (not shown), nl=False, err=True)
        _status = shown


def _has_terminal() -> bool:
    """True if stderr is a terminal that this process may write to: not that of a shell whose job it is behind."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the terminal of this session, or none that has a number
        return True


@contextlib.contextmanager
def status_held() -> Iterator[None]:
    """Show no status during the block, which has the whole screen."""
    global _is_status_held
    show_status("")
    _is_status_held = True
    try:
        yield
    finally:
        _is_status_held = False


class Declined(click.Abort):
    """The answer to a question was no."""


def confirm(question: str) -> None:
    """Ask on stderr and go on after a yes. Raises Declined after a no, click.Abort where nobody can answer.

    Nobody is asked in a rehearsal.
    """
    if running().rehearsal is not None:
        return
    try:
        with status_held():
            is_accepted = click.confirm(printable(question), err=True)
    except click.Abort:
        _write("", err=True)  # ends the line of the question
        raise
    if not is_accepted:
        raise Declined


def choose(question: str, choices: Sequence[str], *, default: str) -> str:
    """Ask on stderr for one of these; an empty answer is the default. Raises click.Abort where nobody can answer."""
    kind = click.Choice(list(choices))
    with status_held():
        return str(click.prompt(printable(question), default=default, type=kind, show_choices=False, err=True))


def _write(text: str | bytes, *, nl: bool = True, err: bool = False) -> None:
    """Write to stdout or stderr, below no status. Raises FileNotWritten for stdout; what stderr refuses is lost."""
    global _shown_at_s
    with _status_lock:
        _shown_at_s = time.monotonic()
        if _status:
            _put_status("")
        _echo(text, nl=nl, err=err)


def _echo(text: str | bytes, *, nl: bool, err: bool) -> None:
    if not err:
        with writing("the output on stdout", None):
            click.echo(text, nl=nl)
        return
    try:
        click.echo(text, nl=nl, err=True)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO) -> None:
    """Send what a stream holds, and all that follows, nowhere: the interpreter flushes it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _rendered(part: str | Styled, *, in_colour: bool) -> str:
    if isinstance(part, str):
        return printable(part)
    text = printable(part.text)
    return click.style(text, fg=part.colour or None, bold=part.is_bold or None) if in_colour else text
