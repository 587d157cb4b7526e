# SPDX-License-Identifier: Apache-2.0
"""Answers of a machine as JSON: what a recording writes and a replay reads. Python 3.9, standard library only.

The keys say what was asked: a method of the agent's `Host` with its argument, or a function of NVML with its arguments.
"""

import json
import math
from typing import Any, Dict, List, Optional, Tuple

VALUE, BYTES, PROBLEM = "value", "bytes", "problem"
RESULT, OUT, CODE, TEXT, RAISED = "result", "out", "code", "text", "raised"
HANDLE, STRUCT, TUPLE, NUMBER = "handle", "struct", "tuple", "number"
OUTPUT = "*"
"""In the key of an NVML call: an argument that the call fills."""


def key_of(method: str, argument: object = None) -> str:
    """Return the key of a question to `Host`. argument: text, or what JSON can hold."""
    if argument is None:
        return method
    return f"{method} {argument if isinstance(argument, str) else json.dumps(argument, separators=(',', ':'))}"


def bytes_to_json(data: bytes) -> Dict[str, Any]:
    """Return bytes as text, so that names in them can be replaced."""
    try:
        return {BYTES: data.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {BYTES: data.decode("latin-1"), "encoding": "latin-1"}


def bytes_from_json(value: Dict[str, Any]) -> bytes:
    """Return the bytes of `bytes_to_json`. Raises ValueError, KeyError for another form."""
    return str(value[BYTES]).encode("utf-8" if value["encoding"] == "utf-8" else "latin-1")


def number_to_json(value: float) -> object:
    """Return a number; JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else {NUMBER: repr(value)}


class AnswerLog:
    """Answers by key, each with how often it was given in a row."""

    def __init__(self) -> None:
        self.answers: Dict[str, List[List[Any]]] = {}

    def add(self, key: str, answer: object) -> None:
        """Append one answer."""
        given = self.answers.setdefault(key, [])
        if given and given[-1][1] == answer:
            given[-1][0] += 1
        else:
            given.append([1, answer])


class AnswerPlayer:
    """The same answers again, in their order; the last one stays."""

    def __init__(self, answers: Dict[str, List[List[Any]]]) -> None:
        self._answers = answers
        self._places: Dict[str, Tuple[int, int]] = {}

    def has(self, key: str) -> bool:
        """True if the key was recorded."""
        return bool(self._answers.get(key))

    def next(self, key: str) -> Any:
        """Return the next answer. Raises KeyError for a key that was not recorded."""
        given = self._answers[key]
        run, used = self._places.get(key, (0, 0))
        if used >= given[run][0] and run + 1 < len(given):
            run, used = run + 1, 0
        self._places[key] = run, used + 1
        return given[run][1]

    def is_spent(self, key: str) -> bool:
        """True if every recorded answer of a key was given."""
        given = self._answers[key]
        run, used = self._places.get(key, (0, 0))
        return run + 1 == len(given) and used >= given[run][0]

    def first_key(self, prefix: str) -> Optional[str]:
        """Return the first key that begins so, None without one."""
        return next((key for key in self._answers if key.startswith(prefix)), None)
