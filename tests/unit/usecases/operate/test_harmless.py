# SPDX-License-Identifier: Apache-2.0
"""A value of an event goes into a support bundle only if nothing in it, at any depth, is free text."""

from typing import Any

import pytest

from vgpuctl.usecases.operate.harmless import Harmless

SEED = "s33d horse"


@pytest.mark.parametrize(
    "value",
    [
        SEED,
        [SEED],
        (SEED,),
        {"note": SEED},
        {"a": {"b": [1, (SEED,)]}},
        [{"a": SEED}],
        {SEED: 1},
        {1: 2},
        {SEED},
        SEED.encode(),
        [["gpu1", [SEED]]],
        object(),
    ],
)
def test_free_text_at_any_depth_is_left_out(value: Any) -> None:
    assert Harmless().values({"key": value}) == {}


def test_numbers_truths_and_known_names_stay_at_any_depth() -> None:
    harmless = Harmless()
    harmless.named("gpu1")
    value = {"host": "gpu1", "sizes": [1, 2.5, None, True], "places": ({"gpu": "0000:41:00.0"},)}
    assert harmless.values({"key": value, "Not A Key": 1}) == {"key": value}
