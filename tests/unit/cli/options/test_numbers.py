# SPDX-License-Identifier: Apache-2.0
"""Options that are numbers take plain decimal digits within their range, and nothing else that Python reads as one."""

import math
from collections.abc import Iterator

import click
import pytest

from vgpuctl.cli.main import command as vgpuctl
from vgpuctl.cli.main import run
from vgpuctl.cli.options.numbers import DecimalRange, SecondsRange, WholeRange

BAD = ["nan", "inf", "-inf", "1e400", "1e3", "1_0", " 5", "0x10", "\u0661", "5" * 5000, "", "+", ".5", "5."]


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from _commands(one)


def _numbers() -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(vgpuctl)
    for name in vgpuctl.list_commands(context):
        top = vgpuctl.get_command(context, name)
        assert top is not None
        for command in _commands(top):
            for option in command.params:
                is_count = isinstance(option, click.Option) and option.count
                if isinstance(option.type, click.types.FloatParamType | click.types.IntParamType) and not is_count:
                    yield f"{name} {option.opts[-1]}", option


@pytest.mark.parametrize("option", [pytest.param(option, id=where) for where, option in _numbers()])
def test_every_number_is_plain_and_has_two_bounds(option: click.Parameter) -> None:
    assert isinstance(option.type, DecimalRange | WholeRange)
    assert option.type.min is not None
    for text in BAD:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)


def test_a_number_is_read_as_it_stands() -> None:
    assert DecimalRange(0, 600).convert("2.5", None, None) == 2.5
    assert WholeRange(1, 600).convert("007", None, None) == 7
    assert math.copysign(1, DecimalRange(0, 600).convert("-0", None, None)) == 1
    for text in ("1.5", "0", "601"):
        with pytest.raises(click.BadParameter):
            WholeRange(1, 600).convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("1m30s", 90), ("0.5s", 0.5), ("2h", 7200), ("0s", 0), ("2H", 7200)]
)
def test_seconds_are_a_number_or_a_duration(text: str, seconds: float) -> None:
    assert SecondsRange(0, 7200).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["3h", "s", "-1s", "1x", "1s1", "1e1s"])
def test_what_is_no_duration_within_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SecondsRange(0, 7200).convert(text, None, None)


def test_every_option_in_seconds_takes_durations_unless_it_takes_whole_ones_alone() -> None:
    in_seconds = [(where, option) for where, option in _numbers() if str(option.name).endswith("_s")]
    assert [where for where, option in in_seconds if not isinstance(option.type, SecondsRange | WholeRange)] == []
    assert any(where == "wait --timeout" for where, _option in in_seconds)


@pytest.mark.parametrize("text", ["nan", "9" * 5000])
def test_the_refusal_names_the_option_and_is_short(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list-gpus", "--connect-timeout", text]) == 2
    said = capsys.readouterr().err
    assert "'--connect-timeout'" in said and "is no number in decimal digits" in said and len(said) < 500
