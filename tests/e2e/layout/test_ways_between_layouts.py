# SPDX-License-Identifier: Apache-2.0
"""A few generated ways from a layout to another; `python -m tests.proof.layouts` shows a thousand."""

from pathlib import Path

import pytest

from tests.proof.layout_cases import make_case
from tests.proof.layouts import Trial

_MORE = pytest.mark.long(
    "tests/e2e/layout/test_ways_between_layouts.py::test_plan_check_and_run_are_one_thing",
    "tests/unit/planner/layout/test_every_way.py::test_every_layout_leads_to_every_other_and_the_undo_leads_back",
)


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=_MORE) for number in range(1, 4))])
def test_plan_check_and_run_are_one_thing(number: int, tmp_path: Path) -> None:
    case = make_case(36, number)
    Trial(case, tmp_path / "host").run()
    assert case.wrong == [], "\n".join((str(case), *case.lines))


def test_a_number_stands_for_one_case() -> None:
    assert str(make_case(1, 7)) == str(make_case(1, 7)) != str(make_case(2, 7))
