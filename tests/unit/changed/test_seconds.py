# SPDX-License-Identifier: Apache-2.0
"""The seconds of test files are recorded by a run of pytest."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.changed.seconds import Seconds, recorded

ROOT = Path(__file__).parents[3]


def test_a_run_records_its_files_and_forgets_those_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "tests" / "data").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    kernel_lab: on an emulated host\n")
    (tmp_path / "tests" / "test_kept.py").touch()
    before = {"tests/test_kept.py": [3.0, 0.0], "tests/test_gone.py": [4.0, 0.0]}
    (tmp_path / "tests" / "data" / "seconds_of_tests.json").write_text(json.dumps(before))
    (tmp_path / "tests" / "test_new.py").write_text(
        "import pytest, time\n"
        "def test_here(): time.sleep(0.1)\n"
        "@pytest.mark.kernel_lab\n"
        "def test_there(): time.sleep(0.3)\n"
    )
    (tmp_path / "tests" / "test_short.py").write_text("def test_it(): pass\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.changed.seconds",
            "-p",
            "no:cacheprovider",
            "tests/test_new.py",
            "tests/test_short.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = recorded(tmp_path)
    assert found.keys() == {"tests/test_kept.py", "tests/test_new.py", "tests/test_short.py"}
    assert found["tests/test_kept.py"] == Seconds(3)
    assert found["tests/test_short.py"].others > 0
    assert found["tests/test_new.py"].others >= 0.1
    assert found["tests/test_new.py"].on_emulated_host >= 0.3


def test_nothing_is_known_where_nothing_was_recorded(tmp_path: Path) -> None:
    assert recorded(tmp_path) == {}
