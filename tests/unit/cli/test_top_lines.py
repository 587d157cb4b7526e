# SPDX-License-Identifier: Apache-2.0
"""The lines of top: any width, hostile names, 2,000 shares, and what is not known last."""

import pytest
from rich.cells import cell_len

from vgpuctl.cli.telemetry.top import _SORTS
from vgpuctl.cli.telemetry.top_lines import TopTable, count_rows, head_lines, sorts_of, table_lines
from vgpuctl.usecases.telemetry.top import TopGpu, TopHost, TopShare, TopTenant, TopView

_GIB = float(1 << 30)


def share(vm: str, used: float | None = 0.5, *, tenant: str = "acme", missing: str | None = None) -> TopShare:
    licence = None if missing else "licensed"
    return TopShare(
        tenant, vm, "gpu1", "0000:41:00.0", "A40-8Q", "0000:41:00.4", used, 1 / 6, used, _GIB, 8 * _GIB, 0.1, licence,
        None if missing else "dls", "580.95.05", missing,
    )  # fmt: skip


def view(*shares: TopShare) -> TopView:
    gpu = TopGpu("gpu1", "0000:41:00.0", "NVIDIA A40", len(shares), 0.9, 24 * _GIB, 45 * _GIB, 300.0, 79.0, None)
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
    lines = [*head_lines(HOSTILE, width, note=" keys"), *table_lines(HOSTILE, table, "share", width)]
    assert all(cell_len(one.text) <= width and (one.text.isprintable()) for one in lines)


def test_figures_fall_names_rise_and_the_unknown_is_last() -> None:
    some = view(share("b", 0.1), share("c", None, missing="VM off"), share("a", 3.0))

    def order(sort: str, *, reverse: bool = False) -> list[str]:
        return [line.text.split()[1] for line in table_lines(some, TopTable.SHARE, sort, 80, reverse=reverse)[1:]]

    assert order("share") == ["a", "b", "c"] and order("share", reverse=True) == ["b", "a", "c"]
    assert order("vm") == ["a", "b", "c"] and order("vm", reverse=True) == ["c", "b", "a"]
    assert order("power") == ["a", "b", "c"]


def test_only_the_rows_that_are_seen_are_made() -> None:
    many = view(*(share(f"vm-{number:04}", number / 1000) for number in range(2000)))
    assert count_rows(many, TopTable.SHARE) == 2000
    lines = table_lines(many, TopTable.SHARE, "share", 80, rows=slice(10, 12))
    assert [line.text.split()[1] for line in lines[1:]] == ["vm-1989", "vm-1988"]


def test_an_empty_view_has_headings_alone() -> None:
    assert [len(table_lines(TopView(0.0), table, "share", 80)) for table in TopTable] == [1, 1, 1]


def test_silent_hosts_are_named_with_their_age() -> None:
    _, second, third = head_lines(view(), 80, note="")
    assert second.text.startswith("gpu2: no answer, last read 65 s ago: the port is closed\\x1b")
    assert third.text == "gpu3: no answer, nothing was read: no"


def test_colour_marks_what_needs_a_look() -> None:
    lines = table_lines(view(share("a"), share("b", None, missing="no answer")), TopTable.SHARE, "vm", 80)
    assert [one.colour for one in lines[1:]] == ["yellow", "bright_black"]


def test_every_column_can_be_sorted_by() -> None:
    assert {name for table in TopTable for name in sorts_of(table)} == set(_SORTS)
