# SPDX-License-Identifier: Apache-2.0
"""Data to stdout: a table for people or JSON for scripts; progress and remarks to stderr."""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import click


def print_json(value: object) -> None:
    """Print a value as indented JSON; dataclasses become objects, enums their value."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: object) -> Any:
    """Turn dataclasses, enums and tuples into what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows under headings; `empty` goes to stderr when there are none. Piped output is never cut."""
    if not rows:
        say(empty)
        return
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else 10_000, no_color=bool(os.environ.get("NO_COLOR")), soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not is_terminal)
    for row in rows:
        table.add_row(*("-" if cell is None else _escape(str(cell)) for cell in row))
    console.print(table)


def say(text: str) -> None:
    """One remark for people, on stderr."""
    click.echo(text, err=True)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
