# SPDX-License-Identifier: Apache-2.0
"""The lines of top: any width, hostile names, 2,000 shares, and what is not known last."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from vgpuctl.cli.telemetry.top import _SORTS
from vgpuctl.cli.telemetry.top_lines import COLUMNS, TopTable, head_lines, rows_of, table_lines
from vgpuctl.usecases.telemetry.top import TopGpu, TopHost, TopShare, TopTenant, TopView

_GIB = float(1 << 30)


def share(vm: str, used: float | None = 0.5, *, tenant: str = "acme", missing: str | None = None) -> TopShare:
    licence = None if missing else "licensed"
    return TopShare(
        tenant, vm, "gpu1", "0000:41:00.0", "A40-8Q", "0000:41:00.4", used, 1 / 6, used, _GIB, 8 * _GIB, 0.1, licence,
        None if missing else "dls", "580.95.05", missing,
    )  # fmt: skip


def view(*shares: TopShare) -> TopView:
    gpu = TopGpu("gpu1", "0000:41:00.0", "NVIDIA A40", len(shares), 0.9, 24 * _GIB, 45 * _GIB, 300.0, 79.0, None, None)
    tenant = TopTenant("acme", len(shares), len(shares), 0.5, 0.25, _GIB, 8 * _GIB)
    hosts = (
        TopHost("gpu1", 2.0, None),
        TopHost("gpu2", 65.0, "the port is closed\x1b[2J"),
        TopHost("gpu3", None, "no"),
    )
    return TopView(1_790_000_000.0, hosts, shares, (gpu,), (tenant,))


HOSTILE = view(
    share("\x1b]0;title\x07\n" * 9, tenant="\u202eacme"),
    share("網路" * 30, None, missing="no answer 45s"),
    share("", 7.5, tenant="x" * 200),
)


@pytest.mark.parametrize("width", [1, 2, 5, 10, 39, 80, 132, 400])
@pytest.mark.parametrize("table", list(TopTable))
def test_no_line_is_wider_than_the_terminal(table: TopTable, width: int) -> None:
    lines = [*head_lines(HOSTILE, width, note=" keys"), *table_lines(rows_of(HOSTILE, table), table, "share", width)]
    assert all(cell_len(one.text) <= width and (one.text.isprintable()) for one in lines)


def test_figures_fall_names_rise_and_the_unknown_is_last() -> None:
    some = view(share("b", 0.1), share("c", None, missing="VM off"), share("a", 3.0))

    def order(sort: str, *, reverse: bool = False) -> list[str]:
        return [
            line.text.split()[1]
            for line in table_lines(rows_of(some, TopTable.SHARE), TopTable.SHARE, sort, 80, reverse=reverse)[1:]
        ]

    assert order("share") == ["a", "b", "c"] and order("share", reverse=True) == ["b", "a", "c"]
    assert order("vm") == ["a", "b", "c"] and order("vm", reverse=True) == ["c", "b", "a"]
    assert order("power") == ["a", "b", "c"]


def test_only_the_rows_that_are_seen_are_made() -> None:
    many = view(*(share(f"vm-{number:04}", number / 1000) for number in range(2000)))
    lines = table_lines(rows_of(many, TopTable.SHARE), TopTable.SHARE, "share", 80, shown=slice(10, 12))
    assert [line.text.split()[1] for line in lines[1:]] == ["vm-1989", "vm-1988"]


def _headings(rows: Sequence[Any], table: TopTable, width: int | None) -> list[str]:
    return table_lines(rows, table, "share", width)[0].text.replace("*", "").replace("GPUS USED", "USED").split()


LONG = share("a-virtual-machine-of-the-second-floor-7", tenant="a-tenant-with-quite-a-long-name")


def test_columns_go_in_their_order_and_names_are_cut_in_the_middle() -> None:
    widths = {
        90: ["TENANT", "VM", "HOST", "GPU", "PROFILE", "SHARE%", "UTIL", "FB", "STEAL", "STATE"],
        80: ["TENANT", "VM", "HOST", "GPU", "PROFILE", "SHARE%", "UTIL", "FB", "STATE"],
        70: ["TENANT", "VM", "HOST", "GPU", "SHARE%", "UTIL", "FB", "STATE"],
        40: ["VM", "HOST", "GPU", "SHARE%"],
    }
    assert {width: _headings([LONG], TopTable.SHARE, width) for width in widths} == widths
    assert table_lines([LONG], TopTable.SHARE, "share", 80)[1].text.split()[:2] == ["a-tena+-name", "a-virt+oor-7"]
    [_, whole] = table_lines([LONG], TopTable.SHARE, "share", None)
    assert whole.text.split()[:2] == [LONG.tenant, LONG.vm]


def test_every_gpu_has_its_address_its_state_and_why_it_is_closed() -> None:
    [gpu] = view().gpus
    closed = replace(gpu, missing="not seen", closed="quarantine")
    lines = table_lines([gpu, closed], TopTable.GPU, "state", 80)
    assert [line.text.split()[:2] for line in lines[1:]] == [["gpu1", "41:00.0"]] * 2
    assert lines[1].text.endswith(" not seen, quarantine") and lines[2].text.endswith(" -")
    assert {"HOST", "GPU", "MODEL", "UTIL", "FB", "STATE"} <= {*_headings([gpu, closed], TopTable.GPU, 60)}


def test_names_are_in_natural_order() -> None:
    lines = table_lines([share("web-10"), share("web-9")], TopTable.SHARE, "vm", 80)
    assert [line.text.split()[1] for line in lines[1:]] == ["web-9", "web-10"]


def test_a_filter_finds_a_text_in_any_cell_that_is_shown() -> None:
    some = view(share("web"), share("db", tenant="Globex"), share("off", None, missing="VM off"))
    found = {text: [one.vm for one in rows_of(some, TopTable.SHARE, text)] for text in ("", "globe", "vm OFF", "41:00")}
    assert found == {"": ["web", "db", "off"], "globe": ["db"], "vm OFF": ["off"], "41:00": ["web", "db", "off"]}
    assert not rows_of(some, TopTable.SHARE, "00.4", 80)
    assert len(rows_of(some, TopTable.SHARE, "00.4", 160)) == 3


def test_many_silent_hosts_leave_room_for_the_rows_and_are_counted() -> None:
    hosts = tuple(TopHost(f"gpu{number}", None, "no") for number in range(9))
    lines = [one.text for one in head_lines(replace(view(), hosts=hosts), 80, note="", most=3)]
    assert lines[1:] == [
        "gpu0: no answer, nothing was read: no",
        "gpu1: no answer, nothing was read: no",
        "7 more hosts without an answer",
    ]


def test_an_empty_view_has_headings_alone() -> None:
    assert [len(table_lines(rows_of(TopView(0.0), table), table, "share", 80)) for table in TopTable] == [1, 1, 1]


def test_silent_hosts_are_named_with_their_age() -> None:
    _, second, third = head_lines(view(), 80, note="")
    assert second.text.startswith("gpu2: no answer, last read 65 s ago: the port is closed\\x1b")
    assert third.text == "gpu3: no answer, nothing was read: no"


def test_colour_marks_what_needs_a_look() -> None:
    lines = table_lines(
        rows_of(view(share("a"), share("b", None, missing="no answer")), TopTable.SHARE), TopTable.SHARE, "vm", 80
    )
    assert [one.colour for one in lines[1:]] == ["yellow", "bright_black"]


def test_every_column_can_be_sorted_by() -> None:
    assert {one.sort for columns in COLUMNS.values() for one in columns} == set(_SORTS)
