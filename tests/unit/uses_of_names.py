# SPDX-License-Identifier: Apache-2.0
"""Where the package uses which names, read from its code without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "vgpuctl"
ROOMS_LEFT_OUT = ("agent/", "guests/in_guest/", "lab/")
"""The agent has its own floors, programs for guests run there, and the lab plays the host."""


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file below vgpuctl/ or lab/, parsed once for all tests. Nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of `ast.walk`, which takes as long as parsing does."""
    return tuple(ast.walk(tree(path)))


@cache
def files() -> tuple[Path, ...]:
    """The Python files of vgpuctl/ by name."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@dataclass(frozen=True)
class Use:
    """One place where a name is used: `file:function`, the value before its dot, whether it is called."""

    place: str
    name: str
    value: ast.expr | None
    is_call: bool

    @cached_property
    def on(self) -> str:
        """The expression before the dot, "" without one. Written out for the few that a test looks at."""
        return "" if self.value is None else ast.unparse(self.value)


def _uses_in(path: Path) -> Iterator[Use]:
    file = path.relative_to(PACKAGE).as_posix()

    def walk(node: ast.AST, function: str) -> Iterator[Use]:
        for child in ast.iter_child_nodes(node):
            inner = function
            is_call = isinstance(node, ast.Call) and node.func is child
            if isinstance(child, ast.FunctionDef) and not function:
                inner = child.name
            elif isinstance(child, ast.Attribute):
                yield Use(f"{file}:{function or '-'}", child.attr, child.value, is_call)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                yield Use(f"{file}:{function or '-'}", child.id, None, is_call)
            yield from walk(child, inner)

    yield from walk(tree(path), "")


@cache
def uses() -> tuple[Use, ...]:
    """Every use of a name below vgpuctl/, without agent and lab."""
    left = [path for path in files() if not path.relative_to(PACKAGE).as_posix().startswith(ROOMS_LEFT_OUT)]
    return tuple(use for path in left for use in _uses_in(path))


@dataclass(frozen=True)
class Guarded:
    """One primitive. rule: why it is guarded. name: of the function or method.

    owner: the file that defines it, which may use it freely. callers: `file:function` below vgpuctl/ that may use it.
    on: the expression before the dot must end so, for names that several classes share.
    calls_only: for a class whose name stands in annotations too.
    """

    rule: str
    name: str
    owner: str
    callers: frozenset[str]
    on: str = ""
    calls_only: bool = False


def guarded(rule: str, name: str, owner: str, *callers: str, on: str = "", calls_only: bool = False) -> Guarded:
    """A row of the table."""
    return Guarded(rule, name, owner, frozenset(callers), on, calls_only)
