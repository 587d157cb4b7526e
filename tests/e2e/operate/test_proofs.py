# SPDX-License-Identifier: Apache-2.0
"""The hour-long proofs (`make kill-test`, `make storm`) in small: they run, and they find nothing."""

import json
import subprocess
import sys

import pytest

from tests.lab.simulated_fixtures import need_simulated
from tests.proof.fleet import LAYOUTS

KILL_TEST = ("tests.proof.kill_test", "--commands", "4")
STORM = ("tests.proof.storm", "--rounds", "1", "--commands", "2")
_OTHER_STORE = pytest.mark.long("tests/e2e/operate/test_proofs.py::test_a_small_proof_finds_nothing")
_SWEPT = pytest.mark.long(
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
    "tests/e2e/operate/test_proofs.py::test_a_small_proof_finds_nothing",
)
_MORE = pytest.mark.long("tests/e2e/operate/test_proofs.py::test_a_few_dry_runs_end_as_their_runs")


# On PostgreSQL a storm has more that can go wrong: the hostile role, and statements that wait for each other.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("arguments", "store"),
    [
        pytest.param(KILL_TEST, "sqlite", id="kill_test", marks=_SWEPT),
        pytest.param(STORM, "postgresql", id="storm"),
        pytest.param(KILL_TEST, "postgresql", id="kill_test on postgresql", marks=_OTHER_STORE),
        pytest.param(STORM, "sqlite", id="storm on sqlite", marks=_OTHER_STORE),
    ],
)
def test_a_small_proof_finds_nothing(arguments: tuple[str, ...], store: str) -> None:
    need_simulated()
    words = [sys.executable, "-m", *arguments, "--store", store]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told[store]["faults"] == []
    assert sum(told[store]["counts"].values()) >= 4


@pytest.mark.timeout(400)
@pytest.mark.parametrize("cases", [4, pytest.param(12, marks=_MORE)])
def test_a_few_dry_runs_end_as_their_runs(cases: int) -> None:
    need_simulated()
    program = [sys.executable, "-m", "tests.proof.dry_runs", "--cases", str(cases), "--seed", "5"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=350)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["differences"], sum(told["endings"].values())) == ([], cases)


def test_the_proofs_change_layouts() -> None:
    assert all(len(layouts) >= 3 for layouts in LAYOUTS.values())
