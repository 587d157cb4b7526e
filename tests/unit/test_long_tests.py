# SPDX-License-Identifier: Apache-2.0
"""Each test that `make test` leaves out names shorter ones of the same rule, which are there and are not left out."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def marked_long(tree: ast.AST) -> Iterator[tuple[str | None, list[str]]]:
    """Each mark: the function that it is on, None for all of the file or one case, and the tests that it names."""
    owner = {
        id(mark): function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for mark in function.decorator_list
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.long":
            values = [one.value for one in node.args if isinstance(one, ast.Constant)]
            yield owner.get(id(node)), [value for value in values if isinstance(value, str)]


def test_a_shorter_test_of_the_same_rule_stays() -> None:
    trees = {
        path: ast.parse(path.read_text())
        for path in sorted(TESTS.rglob("test_*.py"))
        if "mark.long" in path.read_text()
    }
    marks = [(path, *mark) for path, tree in trees.items() for mark in marked_long(tree)]
    left_out = {f"{path.relative_to(TESTS.parent)}::{function}" for path, function, _shorter in marks if function}
    assert marks
    for path, function, shorter in marks:
        assert shorter, f"{path}::{function} names no shorter test"
        for name in shorter:
            file, _, wanted = name.partition("::")
            assert f"def {wanted}(" in (TESTS.parent / file).read_text(), f"{name}, named in {path}, is no test"
            assert name not in left_out, f"{name}, named in {path}, is left out itself"


def test_the_mark_is_found_on_functions_cases_and_files() -> None:
    text = """
pytestmark = [pytest.mark.long("a.py::test_a")]
@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long("b.py::test_b"))])
@pytest.mark.long("c.py::test_c", "d.py::test_d")
def test_it(): ...
"""
    found = sorted(marked_long(ast.parse(text)), key=lambda one: one[1])
    assert found == [(None, ["a.py::test_a"]), (None, ["b.py::test_b"]), ("test_it", ["c.py::test_c", "d.py::test_d"])]


LONG, SHORT = "test_what_is_killed_is_repaired_on_a_real_kernel", "test_an_impatient_operator_loses_nothing"


@pytest.mark.parametrize(("options", "chosen", "left_out"), [((), SHORT, LONG), (("--long",), LONG, SHORT)])
def test_long_tests_run_alone_or_not_at_all(options: tuple[str, ...], chosen: str, left_out: str) -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/e2e/operate/test_interrupted.py", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=TESTS.parent)
    assert f"::{chosen}" in done.stdout
    assert f"::{left_out}" not in done.stdout
