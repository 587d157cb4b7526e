# SPDX-License-Identifier: Apache-2.0
"""JSON from the other side, read strictly: bounded in depth and numbers, no key twice, no half characters.

Python 3.9, standard library only. Python's own reader takes NaN, lone surrogates, numbers of any length and keys
written twice (the last one counts), and ends deep nesting with RecursionError.
"""

import json
import math
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

DEEPEST = 100
LONGEST_NUMBER = 40
_SHOWN = 40
_ESCAPED_SURROGATE = re.compile(r"\\u[dD]")


class JsonRefused(ValueError):
    """A text that is not read. line, column: from 1, None where they are not known."""

    def __init__(self, what: str, line: Optional[int] = None, column: Optional[int] = None) -> None:
        super().__init__(what)
        self.line = line
        self.column = column


class NotJson(JsonRefused):
    """A text that is no JSON at all, or has a key twice."""


def read_strict_json(text: str, hook: Optional[Callable[[Dict[str, Any]], Any]] = None) -> Any:
    """Read one JSON value. hook: turns an object into its value. Raises JsonRefused."""

    def build(pairs: List[Tuple[str, Any]]) -> Any:
        value = dict(pairs)
        if len(value) != len(pairs):
            twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
            raise NotJson(f"key {twice[:_SHOWN]!a} is written twice in one object")
        return value if hook is None else hook(value)

    try:
        value = json.loads(
            text, object_pairs_hook=build, parse_constant=_refuse, parse_int=_whole_number, parse_float=_number
        )
    except json.JSONDecodeError as exc:
        raise NotJson(f"not valid JSON: {exc.msg}", exc.lineno, exc.colno) from exc
    except RecursionError as exc:
        raise JsonRefused(f"nested too deeply: more than {DEEPEST} levels") from exc
    _refuse_depth(value)
    if _may_hold_half_characters(text):
        _refuse_half_characters(value)
    return value


def _refuse(text: str) -> Any:
    raise JsonRefused(f"{text} is no value of JSON")


def _whole_number(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise JsonRefused(f"a number of {len(text)} characters")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonRefused(f"the number {text[:_SHOWN]} is too large")
    return value


def _refuse_depth(value: object) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        if not level:
            return
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    raise JsonRefused(f"nested too deeply: more than {DEEPEST} levels")


def _may_hold_half_characters(text: str) -> bool:
    if _ESCAPED_SURROGATE.search(text):
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_half_characters(value: object) -> None:
    """Refuse a text with a surrogate without its partner, which no database and no file can hold."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise JsonRefused(f"the text {value[:_SHOWN]!a} holds half a character (a lone surrogate)") from exc
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_half_characters(key)
            _refuse_half_characters(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_half_characters(item)
