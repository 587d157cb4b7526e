# SPDX-License-Identifier: Apache-2.0
"""Shared functions of the scripts that make pages of the documentation."""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def between(page: str, what: str, end: str, lines: Iterable[str]) -> str:
    """The page with the lines of a table between its two marks. Raises ValueError for a page that lacks them."""
    begin, end = f"<!-- {what}: made by scripts/generate_docs.py -->", f"<!-- end of {end} -->"
    table = "\n".join(lines)
    return f"{page[: page.index(begin)]}{begin}\n{table}\n{page[page.index(end) :]}"
