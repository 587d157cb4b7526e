# SPDX-License-Identifier: Apache-2.0
"""The types of options that are numbers, written in plain decimal digits.

click reads what Python reads: `nan`, `inf`, `1_000` and the digits of every script; `nan` is within each of its ranges.
"""

import re
from typing import Any

import click

_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_SHOWN = 40


class _Plain:
    """Refuses text other than a plain number before click reads it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number as click's range does."""
        if isinstance(value, str) and not _DECIMAL.fullmatch(value):
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}… ({len(value)} characters)"
            raise click.BadParameter(f"{shown!a} is no number in decimal digits.", ctx, param)
        return super().convert(value, param, ctx) + 0  # type: ignore[misc]  # of click's type; + 0 makes -0.0 0.0


class DecimalRange(_Plain, click.FloatRange):
    """A number between two bounds, such as seconds."""


class WholeRange(_Plain, click.IntRange):
    """A whole number between two bounds."""
