# SPDX-License-Identifier: Apache-2.0
"""top: what each share uses of what was promised, again and again."""

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import Styled, print_line

if TYPE_CHECKING:
    from vgpuctl.cli.telemetry.top_lines import TopTable
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.telemetry.top import TopFilter, TopView

_TABLES = ("share", "gpu", "tenant")
_SORTS = (
    *(
        "share",
        "util",
        "fb",
        "steal",
        "promised",
        "state",
        "tenant",
        "vm",
        "host",
        "gpu",
        "profile",
        "device",
        "driver",
        "seat",
    ),
    *("model", "shares", "power", "temp", "measured"),
)
_TICK_S = 0.5
_KEYS = ("q quit", "? help", "v view", "s sort", "r reverse", "/ filter", "arrows, Home, End scroll")
"""The last line, of which the last ones are left out where there is no room."""
_SORT_KEYS = {"s": 1, ">": 1, "right": 1, "S": -1, "<": -1, "left": -1}
_EXPLAINED = (
    ("q, Ctrl-C", "end"),
    ("v, Tab", "show shares, GPUs or tenants"),
    ("s, >, right", "sort by the next column, marked *"),
    ("S, <, left", "sort by the column before"),
    ("r", "reverse the order"),
    ("/", "show only rows with a text; Esc shows all again"),
    ("up, down, k, j", "scroll by a line"),
    ("Page Up, Page Down", "scroll by a page, also with the space bar"),
    ("Home, End, g, G", "scroll to the first or the last row"),
    ("", ""),
    ("SHARE%", "used part of the promised compute time"),
    ("UTIL", "used part of the whole GPU"),
    ("STEAL", "at most what neighbours above their promise took"),
    ("STATE", "licence or missing figures; of a GPU also why it is closed"),
)


_JSON: "JsonOutput[TopView]" = JsonOutput()


@click.command("top")
@options.tenant_filter
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Only this host; several times.")
@click.option(
    "--by", "table", type=click.Choice(_TABLES), help="Show shares, GPUs or tenants.  [default: share; --once: all]"
)
@click.option(
    "--sort", type=click.Choice(_SORTS), default="share", show_default=True, help="Column to sort by; figures fall."
)
@options.readings_interval(5.0)
@click.option("--once", is_flag=True, help="Print one reading and end; the default for a pipe, or TERM=dumb.")
@options.many_hosts
@options.as_json
def command(
    tenant: str | None,
    hosts: tuple[str, ...],
    table: str | None,
    sort: str,
    interval_s: float,
    once: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Show what each share uses of what was promised, live. It shows percent of the promised share, framebuffer, steal
    and licence.

    SHARE% is the use of the compute time that profile and scheduler promise; above 100 % a VM uses time that is idle.
    STEAL is at most what neighbours above their promise took. A host that does not answer is named with the age of its
    last readings; its shares have no figures, because they may well be busy.

    Keys: q ends, v shows shares, GPUs or tenants, s sorts by the next column, S by the one before, r reverses, / shows
    only rows with a text, arrows, Page Up, Page Down, Home and End scroll, ? explains the keys and columns.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.shown.terminal import has_screen
    from vgpuctl.cli.telemetry.top_lines import TopTable
    from vgpuctl.usecases.telemetry.top import TopFilter

    wanted = TopFilter(tenant, hosts)
    with services(**where) as opened:
        if once or as_json or not has_screen():
            _print_once(opened, wanted, None if table is None else TopTable(table), sort, as_json=as_json)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _Top(opened, wanted, TopTable(table or "share"), sort, interval_s).run()


def _print_once(opened: "Services", wanted: "TopFilter", table: "TopTable | None", sort: str, *, as_json: bool) -> None:
    from vgpuctl.cli.shown.terminal import terminal_width
    from vgpuctl.cli.telemetry.top_lines import TopTable, head_lines, rows_of, table_lines
    from vgpuctl.usecases.observed.fleet_reader import read_fleet
    from vgpuctl.usecases.telemetry.top import make_top, top_hosts

    snapshots = read_fleet(opened, top_hosts(opened, wanted))
    view = make_top(opened, wanted, snapshots)
    if as_json:
        _JSON.print(view)
    else:
        width = terminal_width() if sys.stdout.isatty() or os.environ.get("COLUMNS") else None
        lines = head_lines(view, width, note="")
        for one in TopTable if table is None else (table,):
            lines += [Styled("", ""), *table_lines(rows_of(view, one), one, sort, width)]
        for line in lines:
            print_line(line)
    failures = [(one.host, one.error) for one in snapshots if one.error is not None]
    report_failures(failures, answered=len(snapshots) - len(failures))


class _Top:
    """The live screen: what is shown, and what the keys have changed."""

    def __init__(
        self, services: "Services", wanted: "TopFilter", table: "TopTable", sort: str, interval_s: float
    ) -> None:
        from vgpuctl.cli.lists.live_screen import Scroll

        self._services = services
        self._wanted = wanted
        self._table = table
        self._sort = sort
        self._interval_s = interval_s
        self._reverse = False
        self._scroll = Scroll()
        self._text = ""
        self._is_typing = False
        self._is_explaining = False
        self._sorts: list[str] = []

    def run(self) -> None:
        """Draw until q is pressed. Raises KeyboardInterrupt."""
        from vgpuctl.cli.lists.live_screen import LiveScreen
        from vgpuctl.usecases.observed.fleet_reader import FleetReader
        from vgpuctl.usecases.telemetry.top import make_top, top_hosts

        top_hosts(self._services, self._wanted)
        reader = FleetReader(
            self._services,
            interval_s=self._interval_s,
            tell=lambda _: None,
            hosts=lambda: top_hosts(self._services, self._wanted),
        )
        self._services.say = lambda _text: None  # a remark would tear the screen
        with reader.reading(), LiveScreen().shown() as screen:
            view, made_at = None, 0.0
            while True:
                if view is None or time.monotonic() - made_at >= _TICK_S:
                    view = make_top(self._services, self._wanted, reader.snapshots().values())
                    made_at = time.monotonic()
                screen.draw(self._lines(view, *screen.size))
                key = screen.key(_TICK_S)
                if key == "q" and not (self._is_typing or self._is_explaining):
                    return
                if key is not None:
                    self._press(key)

    def _lines(self, view: "TopView", width: int, height: int) -> list[Styled]:
        from vgpuctl.cli.telemetry.top_lines import head_lines, rows_of, sort_in_words, sorts_of, table_lines

        if self._is_explaining:
            return [*_explanation(width)[: height - 1], Styled(_fitted("any key goes back", width), "")]
        rows = rows_of(view, self._table, self._text, width)
        self._sorts = sorts_of(self._table, rows, width)
        most = max(0, height // 3 - 1)
        silent = min(most, sum(one.error is not None for one in view.hosts))
        shown = self._scroll.shown(len(rows), height - silent - 3)
        note = f"  {shown.start + 1 if rows else 0}-{shown.stop} of {len(rows)}"
        note += f" {sort_in_words(self._table, self._sort, reverse=self._reverse)}"
        table = table_lines(rows, self._table, self._sort, width, reverse=self._reverse, shown=shown)
        lines = [*head_lines(view, width, note=note, most=most), *table][: max(1, height - 1)]
        blank = [Styled("", "")] * (height - 1 - len(lines))
        return [*lines, *blank, Styled(_fitted(self._last_line(width), width), "")][:height]

    def _last_line(self, width: int) -> str:
        """The text that is typed, the filter, or the keys that there is room for."""
        if self._is_typing:
            return f"/{self._text}_  Enter keeps it, Esc ends it"
        line = f"only rows with {self._text}, Esc ends it" if self._text else _KEYS[0]
        for one in _KEYS[1:]:
            if len(line) + 2 + len(one) <= width:
                line += f"  {one}"
        return line

    def _press(self, key: str) -> None:
        from vgpuctl.cli.telemetry.top_lines import TopTable

        if self._is_explaining:
            self._is_explaining = False
        elif self._is_typing:
            self._type(key)
        elif key in _SORT_KEYS and self._sorts:
            at = self._sorts.index(self._sort) if self._sort in self._sorts else -1
            self._sort = self._sorts[(at + _SORT_KEYS[key]) % len(self._sorts)]
        elif key == "r":
            self._reverse = not self._reverse
        elif key in ("v", "\t"):
            tables = list(TopTable)
            self._table = tables[(tables.index(self._table) + 1) % len(tables)]
            self._scroll.press("home")
        elif key in ("?", "h"):
            self._is_explaining = True
        elif key in ("/", "escape"):
            self._text, self._is_typing = "", key == "/"
        else:
            self._scroll.press(key)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self._is_typing = False
            self._text = self._text if key == "enter" else ""
        elif key == "backspace":
            self._text = self._text[:-1]
        elif len(key) == 1 and key.isprintable():
            self._text += key


def _explanation(width: int) -> list[Styled]:
    lines = [Styled(_fitted(f"{keys:18} {text}", width), "") for keys, text in _EXPLAINED]
    return [Styled(_fitted("top", width), "", is_bold=True), *lines]


def _fitted(text: str, width: int) -> str:
    from vgpuctl.cli.shown.terminal import fitted

    return fitted(text, width).rstrip()
