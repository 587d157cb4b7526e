# SPDX-License-Identifier: Apache-2.0
"""top: what each share uses of what was promised, again and again."""

import contextlib
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
@click.option("--once", is_flag=True, help="Print one reading and end; the default when the output is piped.")
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

    Keys: q ends, s sorts by the next column, r reverses, v shows shares, GPUs or tenants, arrows scroll.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.telemetry.top_lines import TopTable
    from vgpuctl.usecases.telemetry.top import TopFilter

    wanted = TopFilter(tenant, hosts)
    with services(**where) as opened:
        if once or as_json or not sys.stdout.isatty():
            _print_once(opened, wanted, None if table is None else TopTable(table), sort, as_json=as_json)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _Top(opened, wanted, TopTable(table or "share"), sort, interval_s).run()


def _print_once(opened: "Services", wanted: "TopFilter", table: "TopTable | None", sort: str, *, as_json: bool) -> None:
    from vgpuctl.cli.shown.terminal import terminal_width
    from vgpuctl.cli.telemetry.top_lines import TopTable, head_lines, table_lines
    from vgpuctl.usecases.observed.fleet_reader import read_fleet
    from vgpuctl.usecases.telemetry.top import make_top, top_hosts

    snapshots = read_fleet(opened, top_hosts(opened, wanted))
    view = make_top(opened, wanted, snapshots)
    if as_json:
        _JSON.print(view)
    else:
        width = terminal_width()
        lines = head_lines(view, width, note="")
        for one in TopTable if table is None else (table,):
            lines += [Styled("", ""), *table_lines(view, one, sort, width)]
        for line in lines:
            print_line(line)
    failures = [(one.host, one.error) for one in snapshots if one.error is not None]
    report_failures(failures, answered=len(snapshots) - len(failures))


class _Top:
    """The live screen: what is shown, and what the keys have changed."""

    def __init__(
        self, services: "Services", wanted: "TopFilter", table: "TopTable", sort: str, interval_s: float
    ) -> None:
        self._services = services
        self._wanted = wanted
        self._table = table
        self._sort = sort
        self._interval_s = interval_s
        self._reverse = False
        self._first = 0

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
                width, height = screen.size
                screen.draw(self._lines(view, width, height))
                key = screen.key(_TICK_S)
                if key == "q":
                    return
                if key is not None:
                    self._press(key, height)

    def _lines(self, view: "TopView", width: int, height: int) -> list[Styled]:
        from vgpuctl.cli.telemetry.top_lines import count_rows, head_lines, table_lines

        note = f" every {self._interval_s:g}s  q:end s:sort r:reverse v:view"
        head = head_lines(view, width, note=note)[: max(1, height // 3)]
        room = max(0, height - len(head) - 1)
        self._first = max(0, min(self._first, count_rows(view, self._table) - room))
        rows = slice(self._first, self._first + room)
        return [*head, *table_lines(view, self._table, self._sort, width, reverse=self._reverse, rows=rows)][:height]

    def _press(self, key: str, height: int) -> None:
        from vgpuctl.cli.telemetry.top_lines import TopTable, sorts_of

        if key == "s":
            sorts = sorts_of(self._table)
            self._sort = sorts[(sorts.index(self._sort) + 1) % len(sorts)] if self._sort in sorts else sorts[0]
        elif key == "r":
            self._reverse = not self._reverse
        elif key == "v":
            tables = list(TopTable)
            self._table, self._first = tables[(tables.index(self._table) + 1) % len(tables)], 0
        else:
            self._first += {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -height, "page-down": height}.get(key, 0)
