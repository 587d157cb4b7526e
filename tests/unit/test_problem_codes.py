# SPDX-License-Identifier: Apache-2.0
"""The codes of the agent's problems stand in one place, each with its meaning, and all of them are used."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.unit.uses_of_names import PACKAGE, files, nodes, tree
from vgpuctl.agent.wire import problem_codes
from vgpuctl.agent.wire.problem_codes import ProblemCode

_OWN = Path(problem_codes.__file__)


def _files() -> list[Path]:
    return [path for path in (*files(), *(PACKAGE.parent / "lab").rglob("*.py")) if path != _OWN]


def _texts_in_a_codes_place(path: Path) -> Iterator[ast.expr]:
    """The codes given to `Problem(…)` or `code=`, and those that caught problems are compared with."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
            yield from node.args[:1]
        elif (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and ast.unparse(node.left) in ("problem.code", "error.code")
        ):
            yield from node.comparators


def test_no_code_is_written_as_text() -> None:
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{place.lineno}"
        for path in _files()
        for place in _texts_in_a_codes_place(path)
        for text in ast.walk(place)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert found == []


def test_every_code_is_used() -> None:
    used = {
        node.attr
        for path in _files()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ProblemCode"
    }
    assert used == {code.name for code in ProblemCode}


def test_every_code_has_its_name_and_a_meaning() -> None:
    (body,) = (node.body for node in tree(_OWN).body if isinstance(node, ast.ClassDef))
    meanings = {
        ast.unparse(line.targets[0]): isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        for line, after in pairwise(body)
        if isinstance(line, ast.Assign)
    }
    assert meanings == {code.name: True for code in ProblemCode}
    assert [code.value for code in ProblemCode] == [code.name.lower().replace("_", "-") for code in ProblemCode]
