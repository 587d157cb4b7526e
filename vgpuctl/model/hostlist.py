# SPDX-License-Identifier: Apache-2.0
"""Slurm's hostlist expressions: `gpu-[001-003,010]` names four nodes (reference clusters, section 6.2)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from vgpuctl.errors import UsageError
from vgpuctl.model.printable import printable

MOST_NAMES = 4096
"""That one expression may name, counted before it is expanded. Slurm's own limit is 262,144 per range."""
LONGEST_EXPRESSION = 65_536
"""In characters: 4,096 names of 15 characters without a common beginning."""

_SHOWN = 80
_TEXT = re.compile(r"[!-+\--Z\\^-~]+")  # printable ASCII without space, comma and brackets
_RANGE = re.compile(r"(?P<first>[0-9]{1,15})(?:-(?P<last>[0-9]{1,15}))?")
_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<number>[0-9]{1,15})")


@dataclass(frozen=True)
class _Range:
    """Numbers from first to last, each written with at least `width` digits."""

    first: int
    last: int
    width: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def names(self) -> Iterator[str]:
        return (f"{number:0{self.width}d}" for number in range(self.first, self.last + 1))


_Part = str | list[_Range]


def expand(expression: str) -> list[str]:
    """The names of an expression in its order, each once; an empty expression has none.

    Stricter than Slurm: a bracket that is not closed, an open range (`a[1-]`) and spaces are refused, where
    Slurm makes names of them. Text after the last bracket (`gpu[1-2]-ib`) is read as Slurm 23.11 does.
    Raises UsageError also for more than MOST_NAMES names.
    """
    if len(expression) > LONGEST_EXPRESSION:
        raise _refused(expression, f"it has {len(expression)} characters, more than {LONGEST_EXPRESSION}")
    items = [_parts(item, expression) for item in _items(expression) if item]
    number = sum(prod(sum(map(len, part)) for part in parts if not isinstance(part, str)) for parts in items)
    if number > MOST_NAMES:
        raise _refused(expression, f"it names {number} nodes, more than {MOST_NAMES}")
    return list(dict.fromkeys(name for parts in items for name in _names(parts)))


def compress(names: Iterable[str]) -> str:
    """An expression with these names in their order, each once; neighbours that count up become a range.

    Numbers of another width are other names: `gpu1, gpu2, gpu10, gpu010` is `gpu[1-2,10,010]`.
    Raises UsageError for a name that no expression can hold.
    """
    groups: list[tuple[str, list[_Range]]] = []
    for name in dict.fromkeys(names):
        if _TEXT.fullmatch(name) is None:
            raise _refused(name, "a name has printable characters without space, comma and brackets")
        found = _NUMBERED.fullmatch(name)
        prefix, number = (found["prefix"], found["number"]) if found is not None else (name, "")
        if not groups or groups[-1][0] != prefix or not number or not groups[-1][1]:
            groups.append((prefix, []))
        if number:
            _append(groups[-1][1], number)
    return ",".join(_written(prefix, ranges) for prefix, ranges in groups)


def _append(ranges: list[_Range], number: str) -> None:
    value = int(number)
    if ranges:
        last = ranges[-1]
        if value == last.last + 1 and number == f"{value:0{last.width}d}":
            ranges[-1] = _Range(last.first, value, last.width)
            return
    ranges.append(_Range(value, value, len(number)))


def _written(prefix: str, ranges: Sequence[_Range]) -> str:
    if not ranges:
        return prefix
    texts = [
        f"{one.first:0{one.width}d}" + (f"-{one.last:0{one.width}d}" if one.last > one.first else "") for one in ranges
    ]
    return f"{prefix}{texts[0]}" if len(ranges) == 1 and len(ranges[0]) == 1 else f"{prefix}[{','.join(texts)}]"


def _items(expression: str) -> list[str]:
    """Split at the commas outside brackets. Raises UsageError for brackets that do not match."""
    items = [""]
    is_inside = False
    for character in expression:
        if character in "[]":
            if (character == "[") == is_inside:
                raise _refused(expression, "its brackets do not match")
            is_inside = not is_inside
        if character == "," and not is_inside:
            items.append("")
        else:
            items[-1] += character
    if is_inside:
        raise _refused(expression, "a bracket is not closed")
    return items


def _parts(item: str, expression: str) -> list[_Part]:
    """Texts and ranges of one item in turn. Brackets match already."""
    parts: list[_Part] = []
    for number, piece in enumerate(re.split(r"[\[\]]", item)):
        if number % 2:
            parts.append([_range(text, expression) for text in piece.split(",")])
        elif piece:
            if _TEXT.fullmatch(piece) is None:
                raise _refused(expression, "names have printable ASCII characters without spaces")
            parts.append(piece)
    return parts


def _range(text: str, expression: str) -> _Range:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _refused(expression, f"'{printable(text[:_SHOWN])}' is no range of numbers")
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if last < first:
        raise _refused(expression, f"the range {text} counts down")
    return _Range(first, last, len(found["first"]))


def _names(parts: Sequence[_Part]) -> Iterator[str]:
    choices = [[part] if isinstance(part, str) else [name for one in part for name in one.names()] for part in parts]
    return ("".join(chosen) for chosen in product(*choices))


def _refused(expression: str, why: str) -> UsageError:
    shown = printable(expression[:_SHOWN]) + ("…" if len(expression) > _SHOWN else "")
    return UsageError(f"'{shown}' is no hostlist: {why}", hint="write names as Slurm does: gpu-[001-003,010],big-001")
