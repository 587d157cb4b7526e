# SPDX-License-Identifier: Apache-2.0
"""Each test that `make test` leaves out names shorter ones of the same rule, which are there and are not left out."""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def names_of_marks(tree: ast.Module) -> Iterator[list[str]]:
    """The tests that each mark names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_mark(node, ()):
            values = [one.value for one in node.args if isinstance(one, ast.Constant)]
            yield [value for value in values if isinstance(value, str)]


def left_out_of(tree: ast.Module) -> set[str]:
    """The functions that are left out with all their cases: they have the mark, or all of the file has."""
    given = [(ast.unparse(one.targets[0]), one.value) for one in tree.body if isinstance(one, ast.Assign)]
    names = [name for name, value in given if _is_mark(value, ())]
    is_whole = any(_is_mark(one, names) for name, value in given if name == "pytestmark" for one in ast.walk(value))
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    return {one.name for one in functions if is_whole or any(_is_mark(each, names) for each in one.decorator_list)}


def _is_mark(node: ast.AST, names: Collection[str]) -> bool:
    """True for the mark itself, and for a name of it."""
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.long"


def test_a_shorter_test_of_the_same_rule_stays() -> None:
    trees = {
        path.relative_to(TESTS.parent).as_posix(): ast.parse(path.read_text())
        for path in sorted(TESTS.rglob("test_*.py"))
        if "mark.long" in path.read_text()
    }
    marks = [(path, names) for path, tree in trees.items() for names in names_of_marks(tree)]
    left_out = {f"{path}::{name}" for path, tree in trees.items() for name in left_out_of(tree)}
    assert marks
    for path, shorter in marks:
        assert shorter, f"a mark in {path} names no shorter test"
        for name in shorter:
            file, _, wanted = name.partition("::")
            assert f"def {wanted}(" in (TESTS.parent / file).read_text(), f"{name}, named in {path}, is no test"
            assert name not in left_out, f"{name}, named in {path}, is left out itself"


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ('@pytest.mark.long("c.py::test_c", "d.py::test_d")\ndef test_it(): ...', {"test_it"}),
        ('_LATER = pytest.mark.long("a.py::test_a")\n@_LATER\ndef test_it(): ...\ndef test_that(): ...', {"test_it"}),
        ('pytestmark = [pytest.mark.long("a.py::test_a")]\ndef test_it(): ...', {"test_it"}),
        ('_LATER = pytest.mark.long("a.py::test_a")\npytestmark = [_LATER]\ndef test_it(): ...', {"test_it"}),
        ('@pytest.mark.parametrize("one", [pytest.param(1, marks=pytest.mark.long("b"))])\ndef test_it(): ...', set()),
    ],
)
def test_functions_and_files_are_left_out_and_cases_alone_are_not(text: str, left_out: set[str]) -> None:
    assert left_out_of(ast.parse(text)) == left_out
    assert list(names_of_marks(ast.parse(text)))


LONG, SHORT = "test_what_is_killed_is_repaired_on_a_real_kernel", "test_an_impatient_operator_loses_nothing"


@pytest.mark.parametrize(("options", "chosen", "left_out"), [((), SHORT, LONG), (("--long",), LONG, SHORT)])
def test_long_tests_run_alone_or_not_at_all(options: tuple[str, ...], chosen: str, left_out: str) -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/e2e/operate/test_interrupted.py", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=TESTS.parent)
    assert f"::{chosen}" in done.stdout
    assert f"::{left_out}" not in done.stdout
