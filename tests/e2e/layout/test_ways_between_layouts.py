# SPDX-License-Identifier: Apache-2.0
"""A few generated ways from a layout to another; `python -m tests.proof.layouts` shows a thousand."""

from pathlib import Path

import pytest

from tests.proof.layout_cases import make_case
from tests.proof.layouts import Trial

CASES = 4


@pytest.mark.parametrize("number", range(CASES))
def test_plan_check_and_run_are_one_thing(number: int, tmp_path: Path) -> None:
    case = make_case(36, number)
    Trial(case, tmp_path / "host").run()
    assert case.wrong == [], "\n".join((str(case), *case.lines))


def test_a_number_stands_for_one_case() -> None:
    assert str(make_case(1, 7)) == str(make_case(1, 7)) != str(make_case(2, 7))
