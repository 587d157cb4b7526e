# SPDX-License-Identifier: Apache-2.0
"""The mistakes of tests/proof/mutants.py: where they go, and that they are found again in a later file."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.mutations import Mutation, mutated, mutations

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("code", "mistakes"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a is None", ["x = (a is not None)"]),
        ("x = a and b or c", ["x = ((a and b) and c)", "x = (a or b) or c"]),
        ("x = not a", ["x = (a)"]),
        ("x = a + b", ["x = (a - b)"]),
        ("x = 'a' + b", []),
        ("x = True", ["x = False"]),
        ("x = 7", ["x = (8)", "x = (6)"]),
        ("x = [y for y in z if y]", ["x = [y for y in z if ((not (y)))]"]),
        ("if a:\n    pass", ["if (not (a)):\n    pass"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("def f():\n    return None", []),
        ("f()", ["pass"]),
        ("x = f(a, b)", ["x = f(b, a)"]),
        ("x = f(a, a)", []),
        ("raise a", ["pass"]),
        ('"""Docstring of 1 < 2."""', []),
        ("x: Literal[1]", []),
        ("_LOGGER.info('%d', 1)", []),
        ("if TYPE_CHECKING:\n    f(1)", []),
        ("x = f'{a + b}'", []),
        ("x = ä < b", ["x = (ä <= b)"]),
    ],
)
def test_each_place_takes_its_mistakes(code: str, mistakes: list[str]) -> None:
    assert [mutated(code, one) for one in mutations(code)] == mistakes


BEFORE = "def f():\n    g(1, 2)\n\nclass A:\n    def f(self):\n        g(1, 2)\n        g(1, 2)\n"
AFTER = "import g\n\n\ndef new():\n    g(1, 2)\n\n\n" + BEFORE


def test_a_mistake_is_found_again_after_lines_moved() -> None:
    (*_, wanted) = [one for one in mutations(BEFORE) if one.kind == "statement deleted"]
    assert (wanted.function, wanted.count, wanted.line) == ("A.f", 1, 7)
    found = mutated(AFTER, wanted)
    assert found is not None
    assert found.endswith("        g(1, 2)\n        pass\n")


def test_a_mistake_whose_place_is_gone_is_not_put_elsewhere() -> None:
    wanted = Mutation("statement deleted", "A.f", "g(1, 2)", "pass", 2, 8)
    assert mutated(BEFORE, wanted) is None
    assert mutated(BEFORE, replace(wanted, function="A.g", count=0)) is None


PROOF = """
import sys
from pathlib import Path
from tests.proof.mutants import Tests
tests = Tests()
with tests.with_text(Path(sys.argv[1]), "mistake"):
    tests.first_failure([sys.argv[2]], 600)
"""
LONG_TEST = """
import os, pathlib, time
def test_it():
    pathlib.Path(__file__).with_name("pid").write_text(f"{os.getpid()}\\n")
    time.sleep(600)
"""


def test_an_ended_proof_puts_the_file_back_and_ends_its_tests(tmp_path: Path) -> None:
    file, test, pid = tmp_path / "place.py", tmp_path / "test_long.py", tmp_path / "pid"
    file.write_text("right")
    test.write_text(LONG_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with subprocess.Popen([sys.executable, "-c", PROOF, str(file), str(test)], cwd=ROOT) as proof:
        while not (pid.exists() and pid.read_text().endswith("\n")):
            assert proof.poll() is None
            time.sleep(0.05)
        assert file.read_text() == "mistake"
        proof.send_signal(signal.SIGTERM)
    assert file.read_text() == "right"
    assert not Path(f"/proc/{int(pid.read_text())}").exists()
