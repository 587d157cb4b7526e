# SPDX-License-Identifier: Apache-2.0
"""Lists: one table of columns, from which tables, CSV, names, `--columns`, `--sort-by` and `--filter` follow."""

import fnmatch
import functools
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from vgpuctl.cli.frame.command_line import OutputFormat
from vgpuctl.cli.frame.ending import stop_on_signals
from vgpuctl.cli.options.output_format import list_format
from vgpuctl.cli.shown.output import Styled, print_csv, print_json, print_line, say
from vgpuctl.cli.shown.terminal import fitted, has_screen, terminal_width, wrapped
from vgpuctl.errors import UsageError
from vgpuctl.model.natural_order import natural, natural_path
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_duration, format_time, format_time_to_second, parse_duration, parse_time
from vgpuctl.model.units import format_mib, parse_mib

Row = TypeVar("Row")
JsonRow = TypeVar("JsonRow")
Command = TypeVar("Command", bound=Callable[..., Any])

_CONDITION = re.compile(r"(?P<name>[\w-]+)(?P<operator>!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
_COMPARES: dict[str, Callable[[float, float], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
_NARROWING = ("host", "vms_limit", "node_pool", "selector", "kind", "limit", "free", "creatable")
"""Parameters of commands that leave rows out before they are read."""
_INTERVAL_S = 2.0
_AGE = re.compile(r"(?:[0-9]{1,9}[smhdw]){1,5} ago")


class ColumnUnit(StrEnum):
    """The unit of a column's numbers: MiB, seconds, or a time in seconds since the epoch, UTC."""

    MIB = "mib"
    SECONDS = "s"
    UTC = "utc"

    def text(self, value: float) -> str:
        """The number as people read it: `8 GiB`, `2h`, `2026-11-01 14:00`."""
        if self is ColumnUnit.MIB:
            return format_mib(round(value))
        return format_duration(value) if self is ColumnUnit.SECONDS else format_time(value)

    def plain(self, value: float) -> str:
        """The whole number as CSV has it; a time as `2026-11-01T14:00:07Z`."""
        return format_time_to_second(value) if self is ColumnUnit.UTC else f"{value:.0f}"

    def number(self, text: str) -> float:
        """Read what a --filter compares with: `8GiB`, `2h` or seconds, `2026-11-01T14:00`. Raises UsageError."""
        if self is ColumnUnit.MIB:
            return parse_mib(text, what="--filter")
        if self is ColumnUnit.UTC:
            return parse_time(text, what="--filter")
        return float(text) if text.strip()[-1:].isdecimal() else parse_duration(text, what="--filter")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a list.

    cell: its text; None is a dash, a tuple is written below one another. key: what --sort-by and --filter compare and
    CSV has, else the cell; it has neither a unit nor an age in words. unit: of the key's number; CSV names it in the
    heading. A cell that is a number too is written in words.
    is_wide: only in `-o wide` and CSV. is_rare: left out of the table while no row has a value.
    is_age: a time up to now; --watch does not mark a row because it grows.
    drops, is_text: what a narrow terminal takes, see `table_text.TableColumn`. colour: of the cell, or None.
    """

    heading: str
    cell: Callable[[Row], object]
    key: Callable[[Row], object] | None = None
    unit: ColumnUnit | None = None
    is_wide: bool = False
    is_rare: bool = False
    is_age: bool = False
    drops: int = 0
    is_text: bool = False
    colour: Callable[[Row], str | None] | None = None

    @property
    def name(self) -> str:
        """The heading as options name it: `gpu-shares`."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")

    @property
    def csv_name(self) -> str:
        """The heading in CSV: `memory_mib`."""
        name = self.name.replace("-", "_")
        return name if self.unit is None or name.endswith(f"_{self.unit}") else f"{name}_{self.unit}"

    def shown(self, row: Row) -> object:
        """The cell of a table."""
        value = self.cell(row)
        return self.unit.text(value) if self.unit is not None and isinstance(value, int | float) else value

    def compared(self, row: Row) -> object:
        """The value that is sorted and filtered by."""
        return (self.key or self.cell)(row)

    def plain(self, row: Row) -> object:
        """The cell of CSV."""
        value = self.compared(row)
        return self.unit.plain(value) if self.unit is not None and isinstance(value, int | float) else value


class _OfColumns(click.types.StringParamType):
    """Names of columns with commas between them; completes the last one. ending: what follows a name."""

    def __init__(self, names: Iterable[str], ending: str = "") -> None:
        self._names, self._ending = tuple(names), ending

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The columns that begin so; `-` stays before one of --sort-by."""
        before, comma, begun = incomplete.rpartition(",")
        sign = begun[: begun.startswith("-")]
        fitting = [one for one in self._names if one.startswith(begun.removeprefix("-"))]
        return [CompletionItem(f"{before}{comma}{sign}{one}{self._ending}") for one in fitting]


@dataclass(frozen=True)
class ListOutput:
    """The options of a list. columns: names, empty for the usual ones."""

    form: OutputFormat = OutputFormat.TABLE
    columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    is_watched: bool = False

    def is_for_people(self) -> bool:
        """True for a table, beneath which more may be printed."""
        return self.form in (OutputFormat.TABLE, OutputFormat.WIDE)


@dataclass(frozen=True)
class Listing(Generic[Row, JsonRow]):
    """A list of the command line; its second type is that of a row for programs, from which its schema is made.

    name: what `-o name` prints, and what other commands take; the rows are in natural order of it, unless in_order:
    then they stay in the order in which they are read. json: a row for programs. empty: the remark without rows.
    """

    columns: tuple[Column[Row], ...]
    name: Callable[[Row], str]
    json: Callable[[Row], JsonRow]
    empty: str
    in_order: bool = False
    _by_name: dict[str, Column[Row]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {one.name: one for one in self.columns})

    def options(self, function: Command) -> Command:
        """Add the options of a list; the command gets `output`."""
        names = ", ".join(self._by_name)

        @functools.wraps(function)
        def command(
            form: OutputFormat,
            columns: str | None,
            sort_by: str | None,
            conditions: tuple[str, ...],
            is_watched: bool,
            **given: Any,
        ) -> Any:
            output = ListOutput(form, _names(columns), _names(sort_by), conditions, is_watched)
            return function(output=output, **given)

        options: tuple[Callable[..., Any], ...] = (
            click.option(
                "-w",
                "--watch",
                "is_watched",
                is_flag=True,
                help="Show the list again as it changes, until interrupted.",
            ),
            click.option(
                "--filter",
                "conditions",
                type=_OfColumns(self._by_name, "="),
                multiple=True,
                metavar="COLUMN=VALUE",
                help="Only rows with this value: =GLOB, !=GLOB, and < <= > >= for numbers; several times.",
            ),
            click.option(
                "--sort-by",
                type=_OfColumns(self._by_name),
                metavar="COLUMNS",
                help="Sort by these columns; -COLUMN for the largest first.",
            ),
            click.option(
                "--columns",
                type=_OfColumns(self._by_name),
                metavar="COLUMNS",
                help=f"Columns of the table, with commas: {names}.",
            ),
            list_format,
        )
        for option in options:
            command = option(command)
        return cast(Command, command)

    def show(
        self,
        output: ListOutput,
        read: Callable[[], Sequence[Row]],
        print_rows: Callable[[list[JsonRow]], None] = print_json,
    ) -> Sequence[Row]:
        """Read the rows and print them in the form and order that the options ask for.

        print_rows: prints all rows for programs, where their document has more than the rows. With --watch it goes on
        reading until it is interrupted. Returns what was read last, unfiltered.
        Raises UsageError for unknown columns, before it reads.
        """
        if not output.is_watched:
            self._check(output)
            rows = read()
            fitting = self.wanted(rows, output)
            self._print(fitting, output, print_rows)
            if output.is_for_people() and not fitting:
                say(self.nothing(rows, output))
            return rows
        self._check(output)
        return _watch(self, output, read)

    def _check(self, output: ListOutput) -> None:
        self.wanted([], output)
        for one in output.columns:
            self._column(one, "--columns")

    def wanted(self, rows: Sequence[Row], output: ListOutput) -> Sequence[Row]:
        """The rows that fit --filter, in the order of --sort-by, and where that says nothing in the list's own."""
        own = rows if self.in_order else sorted(rows, key=lambda row: natural_path(self.name(row)))
        return self._sorted(self._filtered(own, output.conditions), output.sort_by)

    def nothing(self, rows: Sequence[Row], output: ListOutput) -> str:
        """The remark when none of the rows, or no row at all, is left to show, with the options that left rows out."""
        if rows:
            return f"none of {len(rows)} fits --filter {' and '.join(output.conditions)}"
        narrowing = _narrowing_options()
        if not narrowing:
            return self.empty
        nothing = self.empty.partition(":")[0].removesuffix(" yet")
        return f"{nothing} (narrowed by {' and '.join(narrowing)})"

    def _print(self, rows: Sequence[Row], output: ListOutput, print_rows: Callable[[list[JsonRow]], None]) -> None:
        if output.form.is_for_programs():
            print_rows([self.json(row) for row in rows])
        elif output.form is OutputFormat.NAME:
            for row in rows:
                print_line(self.name(row))
        elif output.form is OutputFormat.CSV:
            columns = self._columns(rows, output)
            cells = [[_joined(one.plain(row)) for one in columns] for row in rows]
            print_csv([one.csv_name for one in columns], cells)
        else:
            is_whole = output.form is OutputFormat.WIDE or not sys.stdout.isatty()
            for line in self.table(rows, output, None if is_whole else terminal_width()) if rows else ():
                print_line(line)

    def table(self, rows: Sequence[Row], output: ListOutput, width: int | None) -> list[Styled]:
        """The lines of the table, with a remark when columns were left out."""
        from vgpuctl.cli.shown.table_text import TableColumn, table_text

        columns = self._columns(rows, output)
        headings = [TableColumn(one.heading, one.drops, one.is_text) for one in columns]
        made = table_text(headings, [[one.shown(row) for one in columns] for row in rows], width)
        lines = [
            Styled(line, "", is_bold=True) if number is None else Styled(line, _colour(rows[number], columns))
            for number, line in made.lines
        ]
        if made.left_out:
            note = f"(no room for {', '.join(made.left_out)}: -o wide or --columns shows them)"
            lines += [Styled(line, "") for line in wrapped(note.split(), width or len(note))]
        return lines

    def texts(self, row: Row, output: ListOutput) -> list[str]:
        """The cells of a row as texts, for comparing; without ages."""
        return ["" if one.is_age else _joined(one.shown(row)) for one in self._columns([row], output)]

    def _columns(self, rows: Sequence[Row], output: ListOutput) -> list[Column[Row]]:
        if output.columns:
            return [self._column(one, "--columns") for one in output.columns]
        if output.form is OutputFormat.CSV:
            return list(self.columns)
        usual = [one for one in self.columns if output.form is OutputFormat.WIDE or not one.is_wide]
        return [one for one in usual if not one.is_rare or any(one.cell(row) is not None for row in rows)]

    def _column(self, name: str, option: str) -> Column[Row]:
        wanted = name.lower().replace("-", "_")
        found = next((one for one in self.columns if wanted in (one.name.replace("-", "_"), one.csv_name)), None)
        if found is None:
            import difflib

            near = difflib.get_close_matches(name.lower(), self._by_name, n=1)
            hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(self._by_name)}"
            raise UsageError(f"{option}: there is no column {name!r}", hint=hint)
        return found

    def _sorted(self, rows: Sequence[Row], names: Sequence[str]) -> Sequence[Row]:
        for written in reversed(names):
            column = self._column(written.removeprefix("-"), "--sort-by")
            is_falling = written.startswith("-")
            known = [row for row in rows if column.compared(row) is not None]
            unknown = [row for row in rows if column.compared(row) is None]
            known.sort(key=lambda row: _ordered(column.compared(row)), reverse=is_falling)
            rows = known + unknown
        return rows

    def _filtered(self, rows: Sequence[Row], conditions: Sequence[str]) -> Sequence[Row]:
        for text in conditions:
            fits = self._condition(text)
            rows = [row for row in rows if fits(row)]
        return rows

    def _condition(self, text: str) -> Callable[[Row], bool]:
        match = _CONDITION.fullmatch(text)
        if match is None:
            hint = "write for example state=running*, host!=gpu1 or memory>=8GiB"
            raise UsageError(f"--filter {text!r} is no condition", hint=hint)
        column, operator, wanted = self._column(match["name"], "--filter"), match["operator"], match["value"]
        if operator in _COMPARES:
            bound = _number(column, wanted, text)
            compare = _COMPARES[operator]
            return lambda row: (value := _as_number(column.compared(row))) is not None and compare(value, bound)

        def fits(row: Row) -> bool:
            texts = [*_texts(column.shown(row)), *_texts(column.plain(row))]
            return any(fnmatch.fnmatchcase(one.lower(), wanted.lower()) for one in texts)

        return fits if operator == "=" else lambda row: not fits(row)


def _watch(listing: Listing[Row, Any], output: ListOutput, read: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    """Show the list every two seconds until it is interrupted, or `q` is pressed. Returns what was read last."""
    if output.is_for_people() and has_screen():
        return _on_screen(listing, output, read)
    return _as_lines(listing, output, read)


def _on_screen(listing: Listing[Row, Any], output: ListOutput, read: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    from vgpuctl.cli.lists.live_screen import LiveScreen, Scroll

    scroll = Scroll()
    with LiveScreen().shown() as screen:
        while True:
            rows, until = read(), time.monotonic() + _INTERVAL_S
            wanted = listing.wanted(rows, output)
            while (rest_s := until - time.monotonic()) > 0:
                width, height = screen.size
                lines = listing.table(wanted, output, width) if wanted else [Styled(listing.nothing(rows, output), "")]
                part = scroll.shown(len(lines) - 1, height - 2)
                keys = f"{counted(len(wanted), 'row')}, q ends, arrows scroll"
                screen.draw([lines[0], *lines[1:][part], Styled(fitted(keys, width).rstrip(), "")])
                key = screen.key(rest_s)
                if key == "q":
                    return rows
                scroll.press(key or "")


def _as_lines(listing: Listing[Row, Any], output: ListOutput, read: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    """Print new and changed rows, compared by name, without deleted ones. A new age alone does not count."""
    stop = stop_on_signals()
    shown: dict[str, list[str]] = {}
    heading = 0
    while True:
        rows = read()
        now = {listing.name(row): (row, listing.texts(row, output)) for row in listing.wanted(rows, output)}
        changed = [row for name, (row, texts) in now.items() if _without_ages(texts) != shown.get(name)]
        shown = {name: _without_ages(texts) for name, (_, texts) in now.items()}
        if output.form.is_for_programs():
            for row in changed:
                print_json(listing.json(row), indent=None)
        elif changed:
            for line in listing.table(changed, output, None)[heading:]:
                print_line(line)
            heading = 1
        sys.stdout.flush()
        if stop.wait(_INTERVAL_S):
            return rows


def _without_ages(texts: Sequence[str]) -> list[str]:
    return [_AGE.sub("", one) for one in texts]


def _ordered(value: object) -> tuple[Any, ...]:
    """Numbers by size, before texts in natural order."""
    return (0, value) if isinstance(value, int | float) else (1, natural(_joined(value)))


def _narrowing_options() -> list[str]:
    """The options given to the running command that left rows out before they were read."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    return [
        next(name for name in one.opts if name.startswith("--"))
        for one in context.command.params
        if one.name in _NARROWING and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    ]


def _names(written: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (one.strip() for one in (written or "").split(","))))


def _colour(row: Row, columns: Sequence[Column[Row]]) -> str:
    return next((found for one in columns if one.colour is not None and (found := one.colour(row))), "")


def _number(column: Column[Any], written: str, text: str) -> float:
    try:
        return float(written) if column.unit is None else column.unit.number(written)
    except ValueError:
        raise UsageError(f"--filter {text!r}: {written!r} is no number") from None


def _as_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _texts(cell: object) -> list[str]:
    if isinstance(cell, tuple):
        return [text for one in cell for text in _texts(one)]
    return ["-" if cell is None else str(cell)]


def _joined(cell: object) -> str:
    return "" if cell is None else "; ".join(_texts(cell))
