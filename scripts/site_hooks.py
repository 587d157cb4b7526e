# SPDX-License-Identifier: Apache-2.0
"""What `mkdocs` does with each page of the site: the cells of a table with many columns name them, for phones."""

import html
import re

_FEW = 2
_TAG = re.compile(r"<[^>]+>")


def on_page_content(content: str, **_: object) -> str:
    """The page, whose tables of more than two columns have `data-label` in each cell; site.css stacks those."""
    return re.sub(r"<table>.*?</table>", lambda found: _labelled(found[0]), content, flags=re.DOTALL)


def _labelled(table: str) -> str:
    heads = [_TAG.sub("", one).strip() for one in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
    if len(heads) <= _FEW:
        return table
    first, *rows = re.split(r"(?=<tr>)", table)
    return first.replace("<table>", "<table data-wide>") + "".join(_row(one, heads) for one in rows)


def _row(row: str, heads: list[str]) -> str:
    labels = iter(heads)
    return re.sub(r"<td", lambda _: f'<td data-label="{html.escape(html.unescape(next(labels, "")))}"', row)
