# SPDX-License-Identifier: Apache-2.0
"""The files that count as the change, in a repository of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.changed.commits import change_since, changed_lines, places
from tests.changed.sources import REST, differing_parts

CHANGED = Path(__file__).parents[3] / "tests" / "changed"


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of two commits; the second one changes `fit.py`."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    (tmp_path / "fit.py").write_text("def fit():\n    return 1\n\ndef rank():\n    return 2\n")
    (tmp_path / "old.py").write_text("OLD = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "first")
    (tmp_path / "fit.py").write_text("def fit():\n    return 1\n\ndef rank():\n    return 3  # three\n")
    git(tmp_path, "commit", "--all", "--message", "second")
    return tmp_path


def test_the_last_commit_counts_where_all_is_committed(root: Path) -> None:
    change = change_since(root, "")
    assert (change.base, change.files, change.gone) == ("HEAD~1", {"fit.py"}, frozenset())


def test_what_is_not_committed_counts_first_and_new_and_renamed_files_too(root: Path) -> None:
    git(root, "mv", "old.py", "newer.py")
    (root / "new.py").write_text("NEW = 1\n")
    change = change_since(root, "")
    assert (change.base, change.files, change.gone) == ("HEAD", {"old.py", "newer.py", "new.py"}, {"old.py"})


def test_a_named_commit_counts_with_what_is_not_committed(root: Path) -> None:
    (root / "new.py").write_text("NEW = 1\n")
    assert change_since(root, "main~1").files == {"fit.py", "new.py"}


def test_the_changed_parts_and_lines_are_those_of_the_change(root: Path) -> None:
    assert places(root, "HEAD~1", {"fit.py"}) == {"fit.py", "fit.py::rank"}
    assert changed_lines(root, "HEAD~1", {"fit.py"}).split("\n") == ["    return 2", "    return 3  # three"]
    assert changed_lines(root, "HEAD~1", frozenset()) == ""


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("X = 1  # one", "X = 1", set()),
        ("class A:\n    def b(self): return 1", "class A:\n    def b(self): return 2", {"A.b"}),
        ("class A:\n    x: int", "class A:\n    x: str", {"A"}),
        ("def a(): ...", "", {"a"}),
        ("register(1)", "register(2)", {REST}),
        ("", "Y: int = 1", {"Y"}),
    ],
)
def test_a_part_differs_where_its_code_does(before: str, after: str, parts: set[str]) -> None:
    assert differing_parts(before, after) == parts


@pytest.mark.parametrize("name", ["nothing", "--all", "HEAD:fit.py"])
def test_a_name_that_is_no_commit_is_an_error_that_says_so(root: Path, name: str) -> None:
    with pytest.raises(SystemExit, match=f"git has no commit '{name}'"):
        change_since(root, name)


def run(root: Path, minutes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.changed", "--minutes", minutes]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_a_run_without_a_test_is_no_success(root: Path) -> None:
    shutil.copytree(CHANGED, root / "tests" / "changed", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests" / "unit").mkdir()
    (root / "tests" / "unit" / "test_fit.py").write_text("def test_fit(): pass\n")
    done = run(root, "0.01")
    assert "test files that do not fit into 0.01 minutes: " in done.stdout, done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "five"])
def test_minutes_are_a_number_above_0(root: Path, minutes: str) -> None:
    shutil.copytree(CHANGED, root / "tests" / "changed", ignore=shutil.ignore_patterns("__pycache__"))
    done = run(root, minutes)
    assert (done.returncode, done.stdout) == (2, "")
    assert "argument --minutes: " in done.stderr
