# SPDX-License-Identifier: Apache-2.0
"""Small mistakes that can be put into a Python file: the places for them, and the text with one of them in it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_LOGS = ("_LOGGER.", "logging.", "logger.")


@dataclass(frozen=True)
class Mutation:
    """One mistake. It is found again by function, source text and count, also after lines moved.

    function: its qualified name, empty at the module's level. before, after: the text that is replaced, and its
    replacement. count: how many equal ones of the same kind stand before it in the function.
    line: in the file in which it was chosen.
    """

    kind: str
    function: str
    before: str
    after: str
    count: int
    line: int


@dataclass(frozen=True)
class _Place:
    kind: str
    function: str
    node: ast.AST
    after: str


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """The kind of each mistake that this node offers, the node that is replaced, and by what."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _COMPARISONS:
            changed = ast.Compare(node.left, [_COMPARISONS[type(operator)](), *node.ops[1:]], node.comparators)
            yield "comparison", node, ast.unparse(changed)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "boolean operator", node, ast.unparse(ast.BoolOp(other, node.values))
        case ast.UnaryOp(op=ast.Not()):
            yield "negation dropped", node, ast.unparse(node.operand)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
            changed_sum = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
            yield "arithmetic", node, ast.unparse(changed_sum)
        case ast.Constant(value=bool() as flag):
            yield "boolean constant", node, str(not flag)
        case ast.Constant(value=int() as number):
            yield "constant + 1", node, str(number + 1)
            yield "constant - 1", node, str(number - 1)
        case ast.If() | ast.IfExp():
            yield "condition negated", node.test, f"not ({ast.unparse(node.test)})"
        case ast.comprehension(ifs=[condition, *_]):
            yield "condition negated", condition, f"(not ({ast.unparse(condition)}))"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "returns None", node, "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            yield "statement deleted", node, "pass"
        case ast.Call(args=[first, second, *rest]) if not any(isinstance(one, ast.Starred) for one in (first, second)):
            if ast.unparse(first) != ast.unparse(second):
                yield "arguments swapped", node, ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(one, ast.JoinedStr | ast.List | ast.Tuple) for one in sides) or any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) for one in sides
    )


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that are code: neither types nor decorators, and no texts for people."""
    left_out = ("annotation", "returns", "decorator_list", "type_params")
    for name, value in ast.iter_fields(node):
        if name in left_out:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if not _is_for_people(child):
                yield child


def _is_for_people(node: ast.AST) -> bool:
    """True for a docstring, a line of the log and a block for type checkers."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr():
            return ast.unparse(node).startswith(_LOGS)
        case ast.If():
            return "TYPE_CHECKING" in ast.unparse(node.test)
    return False


def _places(node: ast.AST, function: str = "") -> Iterator[_Place]:
    for child in _children(node):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}".lstrip(".")
        else:
            for kind, replaced, after in _changes(child):
                yield _Place(kind, function, replaced, after)
        yield from _places(child, inner)


def _span(text: bytes, node: ast.AST) -> tuple[int, int]:
    """The bytes of a node from its first one to the one after its last."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _found(text: str) -> Iterator[tuple[Mutation, int, int]]:
    data = text.encode()
    counts: dict[tuple[str, ...], int] = {}
    for place in _places(ast.parse(text)):
        start, end = _span(data, place.node)
        before = data[start:end].decode()
        key = (place.kind, place.function, before)
        counts[key] = counts.get(key, -1) + 1
        line = data[:start].count(b"\n") + 1
        yield Mutation(place.kind, place.function, before, place.after, counts[key], line), start, end


def mutations(text: str) -> list[Mutation]:
    """Every mistake that can be put into this file."""
    return [one for one, _, _ in _found(text)]


def mutated(text: str, wanted: Mutation) -> str | None:
    """The file's text with the mistake in it; None when its place is gone."""
    key = (wanted.kind, wanted.function, wanted.before, wanted.count)
    for one, start, end in _found(text):
        if (one.kind, one.function, one.before, one.count) == key:
            data = text.encode()
            replaced = f"({wanted.after})".encode() if _needs_brackets(wanted) else wanted.after.encode()
            return (data[:start] + replaced + data[end:]).decode()
    return None


def _needs_brackets(one: Mutation) -> bool:
    return one.kind not in ("returns None", "statement deleted", "boolean constant", "arguments swapped")
