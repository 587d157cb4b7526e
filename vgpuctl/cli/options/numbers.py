# SPDX-License-Identifier: Apache-2.0
"""The types of options that are numbers, written in plain decimal digits.

click reads what Python reads: `nan`, `inf`, `1_000` and the digits of every script; `nan` is within each of its ranges.
"""

import contextlib
import re
from typing import Any

import click

_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_NONE = re.compile(r"0[wdhms]")
_SHOWN = 40


class _Plain:
    """Refuses text other than a plain number before click reads it. also: what else the type takes."""

    also = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number as click's range does."""
        if isinstance(value, str) and not _DECIMAL.fullmatch(value):
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}… ({len(value)} characters)"
            raise click.BadParameter(f"{shown!a} is no number in decimal digits{self.also}.", ctx, param)
        return super().convert(value, param, ctx) + 0  # type: ignore[misc]  # of click's type; + 0 makes -0.0 0.0


class DecimalRange(_Plain, click.FloatRange):
    """A number between two bounds."""


class SecondsRange(DecimalRange):
    """Seconds between two bounds, as a number or as a duration: `90`, `90s`, `1m30s`."""

    name = "seconds"
    also = ", and no duration such as 90s or 10m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number, or the duration."""
        if isinstance(value, str) and value[-1:].isalpha():
            from vgpuctl.errors import UsageError
            from vgpuctl.model.times import parse_duration

            with contextlib.suppress(UsageError):  # then it is no number either, which is said
                value = "0" if _NONE.fullmatch(value) else f"{parse_duration(value, what='')}"
        return super().convert(value, param, ctx)


class WholeRange(_Plain, click.IntRange):
    """A whole number between two bounds."""
