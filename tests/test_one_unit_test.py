# SPDX-License-Identifier: Apache-2.0
"""A newcomer runs one unit test with little installed (CONTRIBUTING.md)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("psycopg", "xdist"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import pytest
sys.exit(pytest.main(["-q", "-p", "no:xdist", "-p", "no:xdist.looponfail", "tests/unit/test_byte_budget.py"]))
"""


def test_a_unit_test_runs_without_psycopg_and_xdist() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
