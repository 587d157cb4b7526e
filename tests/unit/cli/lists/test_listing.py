# SPDX-License-Identifier: Apache-2.0
"""Lists: the same rows as table, CSV, names, JSON and YAML, chosen, sorted and filtered by their columns."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pytest
import yaml

from vgpuctl.cli.frame import command_line
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.shown.table_text import TableColumn, table_text
from vgpuctl.errors import UsageError, VgpuctlError


@dataclass(frozen=True)
class _Host:
    name: str
    memory_mib: int | None
    gpus: tuple[str, ...] = ()
    note: str | None = None


HOSTS = (
    _Host("gpu10", 2048, ("A40", "T4")),
    _Host("gpu2", 1024, ("A40",), "ein \u202eText"),
    _Host("gpu1", None),
)
LISTING: Listing[_Host, dict[str, str | None]] = Listing(
    columns=(
        Column("HOST", lambda one: one.name),
        Column(
            "MEMORY",
            lambda one: one.memory_mib,
            unit=ColumnUnit.MIB,
        ),
        Column("GPU BOARDS", lambda one: one.gpus or None),
        Column("NOTE", lambda one: one.note, is_rare=True),
        Column("KERNEL", lambda _one: "6.1", is_wide=True),
    ),
    name=lambda one: one.name,
    json=lambda one: {"name": one.name, "note": one.note},
    empty="no host yet: write it into the inventory",
)


@pytest.fixture(autouse=True)
def _fresh_form() -> Iterator[None]:
    command_line.begin()
    yield
    command_line.begin()


@click.command()
@LISTING.options
def _list(output: ListOutput) -> None:
    LISTING.show(output, lambda: HOSTS)


def _run(*arguments: str) -> None:
    _list.main(args=list(arguments), standalone_mode=False)


def _out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    _run(*arguments)
    return capsys.readouterr().out


def test_a_table_has_cells_below_one_another_and_no_wide_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys).splitlines() == [
        "HOST   MEMORY  GPU BOARDS  NOTE",
        "gpu1   -       -           -",
        r"gpu2   1 GiB   A40         ein \u202eText",
        "gpu10  2 GiB   A40         -",
        "               T4",
    ]


def test_a_rare_column_is_left_out_while_nothing_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, "--filter", "host=gpu1*").splitlines()[0] == "HOST   MEMORY  GPU BOARDS"


def test_wide_has_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert "KERNEL" in _out(capsys, "-o", "wide")


def test_names_are_sorted_by_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, "-o", "name", "--sort-by", "host").split() == ["gpu1", "gpu2", "gpu10"]
    assert _out(capsys, "-o", "name", "--sort-by", "-host").split() == ["gpu10", "gpu2", "gpu1"]


def test_what_has_no_value_comes_last_in_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, "-o", "name", "--sort-by", "memory").split() == ["gpu2", "gpu10", "gpu1"]
    assert _out(capsys, "-o", "name", "--sort-by", "-memory,host").split() == ["gpu10", "gpu2", "gpu1"]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["memory>=2GiB"], ["gpu10"]),
        (["memory=2 GiB"], ["gpu10"]),
        (["memory_mib=2048"], ["gpu10"]),
        (["memory<2GiB"], ["gpu2"]),
        (["gpu-boards=T4"], ["gpu10"]),
        (["gpu_boards!=t*"], ["gpu1", "gpu2"]),
        (["host=gpu1*", "memory=-"], ["gpu1"]),
        (["kernel=6.1", "note=*text"], ["gpu2"]),
    ],
)
def test_filters_choose_rows(conditions: list[str], names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = [part for one in conditions for part in ("--filter", one)]
    assert _out(capsys, "-o", "name", *options).split() == names
    assert [one["name"] for one in json.loads(_out(capsys, "--json", *options))] == names


def test_a_filter_that_leaves_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _run("--filter", "host=x*", "--filter", "memory>1GiB")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "none of 3 fits --filter host=x* and memory>1GiB\n")


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        ((), LISTING.empty),
        (("--host", "gpu7"), "no host (narrowed by --host)"),
        (("-l", "a=b", "--host", "gpu7"), "no host (narrowed by --selector and --host)"),
    ],
)
def test_an_empty_list_names_the_options_that_narrowed_it(
    options: Sequence[str], remark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.option("-l", "--selector")
    @click.option("--host", "-H", "--hosts")
    @click.option("--forks", default="3")
    @LISTING.options
    def command(output: ListOutput, **_given: str) -> None:
        LISTING.show(output, list)

    command.main([*options, "--forks", "4"], standalone_mode=False)
    assert capsys.readouterr().err == f"{remark}\n"


def test_yaml_is_json_s_data_and_shows_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    written = _out(capsys, "-o", "yaml")
    assert yaml.safe_load(written) == json.loads(_out(capsys, "-o", "json"))
    assert "\u202e" not in written


def test_csv_has_all_columns_or_the_chosen_ones(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _out(capsys, "-o", "csv").splitlines()
    assert (lines[0], lines[-1]) == ("host,memory_mib,gpu_boards,note,kernel", "gpu10,2048,A40; T4,,6.1")
    assert _out(capsys, "-o", "csv", "--columns", "memory_mib,host").splitlines()[:2] == ["memory_mib,host", ",gpu1"]
    assert _out(capsys, "-o", "csv", "--columns", "gpu-boards,host").splitlines()[-1] == "A40; T4,gpu10"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--columns", "hots"), "there is no column 'hots'"),
        (("--sort-by", "-x"), "there is no column 'x'"),
        (("--filter", "host"), "--filter 'host' is no condition"),
        (("--filter", "host<gpu2"), "'gpu2' is no number"),
        (("--filter", "memory>much"), "which is not a size"),
        (("-o", "yaml", "--json"), "exclude each other"),
    ],
)
def test_what_cannot_be_shown_is_named_before_anything_is_read(arguments: Sequence[str], message: str) -> None:
    reads: list[int] = []

    @click.command()
    @LISTING.options
    def listing(output: ListOutput) -> None:
        LISTING.show(output, lambda: reads.append(1) or HOSTS)  # type: ignore[func-returns-value]

    with pytest.raises((VgpuctlError, click.UsageError)) as caught:
        listing.main(args=list(arguments), standalone_mode=False)
    assert message in getattr(caught.value, "message", "")
    assert reads == []


def test_a_misspelt_column_is_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        _run("--columns", "hots")
    assert caught.value.hint == "did you mean host?"


def _narrow(width: int, *, is_text: bool = True) -> list[str]:
    columns = [TableColumn("ADDRESS"), TableColumn("STATE", is_text=is_text), TableColumn("AGE", drops=1)]
    rows = [("0000:41:00.4", "refused by the driver, which is older than 535.104", "2 days ago")]
    return [line for _, line in table_text(columns, rows, width).lines]


def test_a_narrow_terminal_shortens_texts_and_never_addresses() -> None:
    assert _narrow(80)[1] == "0000:41:00.4  refused by the driver, which is older than 535.104  2 days ago"
    assert _narrow(60)[1] == "0000:41:00.4  refused by the driver, which is o…  2 days ago"
    assert _narrow(40) == ["ADDRESS       STATE", "0000:41:00.4  refused by the driver, wh…"]
    assert all("0000:41:00.4" in _narrow(width)[1] for width in range(1, 80))


def test_names_lose_their_middle_where_needed_columns_have_no_room() -> None:
    columns = [TableColumn("VM"), TableColumn("STATE", is_text=True), TableColumn("HOST"), TableColumn("CPUS", drops=1)]
    rows = [(f"trainers-of-the-second-floor-{number}", "running", "gpu1", 8) for number in (9, 10)]
    assert [line for _, line in table_text(columns, rows, 34).lines] == [
        "VM                   STATE    HOST",
        "trainers-…d-floor-9  running  gpu1",
        "trainers-…-floor-10  running  gpu1",
    ]
    assert [line for _, line in table_text(columns, rows, 60).lines][1].startswith("trainers-of-the-second-floor-9  ")


def test_what_was_left_out_is_named() -> None:
    made = table_text([TableColumn("A"), TableColumn("B", drops=1)], [("aaaa", "bbbb")], 6)
    assert made.left_out == ("B",)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_s_width_counts_and_a_pipe_s_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    listing: Listing[Any, Any] = Listing(
        (Column("NAME", str), Column("NOTE", lambda _one: "x" * 30, drops=1)), str, lambda one: one, ""
    )
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    listing.show(ListOutput(), lambda: ["a"])
    assert terminal.getvalue().splitlines() == [
        "NAME",
        "a",
        "(no room for NOTE:",
        "-o wide or --columns",
        "shows them)",
    ]


def test_a_growing_age_is_no_change_of_a_row() -> None:
    ages: Listing[float, float] = Listing(
        (Column("NAME", lambda _one: "a"), Column("AGE", lambda one: one, unit=ColumnUnit.SECONDS, is_age=True)),
        str,
        lambda one: one,
        "",
    )
    assert ages.texts(60, ListOutput()) == ages.texts(120, ListOutput())


@pytest.mark.parametrize(
    ("unit", "value", "shown", "plain", "smaller"),
    [
        (ColumnUnit.MIB, 1536, "1.5 GiB", "1536", "1GiB"),
        (ColumnUnit.SECONDS, 5400.4, "1h30m", "5400", "1h"),
        (ColumnUnit.SECONDS, 5400.4, "1h30m", "5400", "5399"),
        (ColumnUnit.UTC, 1_793_541_607.5, "2026-11-01 14:00", "2026-11-01T14:00:07Z", "2026-11-01T14:00"),
    ],
)
def test_a_number_has_its_unit_in_words_in_tables_and_in_the_heading_in_csv(
    unit: ColumnUnit, value: float, shown: str, plain: str, smaller: str
) -> None:
    column: Column[float] = Column("TIME (UTC)" if unit is ColumnUnit.UTC else "LEFT", lambda one: one, unit=unit)
    assert (column.shown(value), column.plain(value)) == (shown, plain)
    assert column.csv_name == ("time_utc" if unit is ColumnUnit.UTC else f"left_{unit}")
    assert unit.number(smaller) < value < unit.number(smaller) * 2
