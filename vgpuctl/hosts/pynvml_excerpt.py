# SPDX-License-Identifier: Apache-2.0
"""The part of pynvml that the agent needs: the installed module without the functions that the agent never calls.

The rest would cost every reading of a host with NVML: it is half a MiB of bytecode to check and load, and hundreds of
classes of ctypes to build, 10 ms of CPU (docs/performance.md). It would also add a quarter to what is pushed.
"""

import ast
import re
from collections.abc import Iterable

# Parsing all sources for them would take half of the time in which the agent is packed.
_NAME = re.compile(r"\b(?:nvml|NVML|c_nvml)\w+")
# pynvml makes a class of every constant that begins so, whoever names it.
_ALWAYS = ("NVML_ERROR_", "NVML_SUCCESS")


def names_used(sources: Iterable[str]) -> set[str]:
    """The names of pynvml's that Python sources speak of, wherever: the excerpt has no use for any others.

    One that ends with `_` is the beginning of names that the program puts together.
    """
    return {name for source in sources for name in _NAME.findall(source)}


def excerpt(source: str, wanted: set[str]) -> str:
    """The module's text with what `wanted` needs, directly or not; statements that define nothing all stay."""
    beginnings = (*_ALWAYS, *(name for name in wanted if name.endswith("_")))
    lines = source.splitlines(keepends=True)
    statements = ast.parse(source).body
    definers: dict[str, list[int]] = {}
    kept: set[int] = set()
    for number, statement in enumerate(statements):
        names = _defined(statement)
        for name in names:
            definers.setdefault(name, []).append(number)
        if not names or any(name in wanted or name.startswith(beginnings) for name in names):
            kept.add(number)
    waiting = list(kept)
    while waiting:
        for node in ast.walk(statements[waiting.pop()]):
            if isinstance(node, ast.Name):
                fresh = set(definers.get(node.id, ())) - kept
                kept |= fresh
                waiting += fresh
    parts = lines[: _first_line(statements[0]) - 1] if statements else lines
    for number in sorted(kept):
        parts += [*lines[_first_line(statements[number]) - 1 : statements[number].end_lineno], "\n"]
    return "".join(parts)


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a statement of the module is there for; none for imports and for what only runs."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _first_line(statement: ast.stmt) -> int:
    decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef | ast.ClassDef) else []
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])
