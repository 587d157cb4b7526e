# SPDX-License-Identifier: Apache-2.0
"""The worth of free parts of GPUs: dual prices of a bin packing, checked by the properties of such prices."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.soft.host_state import WHOLE, Demand
from vgpuctl.scheduler.soft.packing import (
    ENOUGH_CPU,
    ENOUGH_MEMORY,
    MOST_SIZES,
    packing_of,
    share_prices,
    worth_of_free_shares,
)

EXPECTED = st.dictionaries(st.integers(4, 99).map(lambda one: one * 10), st.integers(1, 50), min_size=1, max_size=6)


def gpus_by_first_fit(expected: dict[int, int]) -> int:
    """GPUs that one packing of all shares takes."""
    gpus: list[int] = []
    for size in sorted(expected, reverse=True):
        for _ in range(expected[size]):
            place = next((number for number, free in enumerate(gpus) if free >= size), None)
            if place is None:
                gpus.append(WHOLE - size)
            else:
                gpus[place] -= size
    return len(gpus)


@given(expected=EXPECTED)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_all_shares_together_are_worth_no_less_than_their_sizes_and_no_more_than_a_packing_takes(
    expected: dict[int, int],
) -> None:
    prices = share_prices(expected)
    worth = sum(prices[size] * count for size, count in expected.items())
    assert sum(size * count for size, count in expected.items()) / WHOLE <= worth + 1e-6
    assert worth <= gpus_by_first_fit(expected) + 1e-6


@given(expected=EXPECTED)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_more_room_is_worth_no_less_and_two_parts_no_more_than_both_in_one(expected: dict[int, int]) -> None:
    worths = worth_of_free_shares(expected)
    assert (len(worths), worths[0], worths[WHOLE]) == (WHOLE + 1, 0.0, 1.0)
    assert all(less <= more + 1e-9 for less, more in pairwise(worths))
    assert all(
        worths[part] + worths[whole - part] <= worths[whole] + 1e-9
        for whole in range(0, WHOLE + 1, 50)
        for part in range(0, whole, 10)
    )


@pytest.mark.parametrize(
    ("expected", "prices"),
    [
        ({810: 5, 190: 3}, {810: 1.0, 190: 0.0}),
        ({470: 10}, {470: 0.5}),
        ({650: 5, 320: 9}, {650: 2 / 3, 320: 1 / 3}),
        ({}, {}),
    ],
)
def test_a_share_is_worth_what_one_more_of_it_costs_in_gpus(expected: dict[int, int], prices: dict[int, float]) -> None:
    assert share_prices(expected) == pytest.approx(prices)


def test_leftovers_that_no_expected_share_fills_are_worth_nothing() -> None:
    worths = worth_of_free_shares({810: 10, 500: 10})
    assert worths[190] == worths[499] == 0.0
    assert worths[500] == worths[800] == pytest.approx(0.5)


def test_of_very_many_sizes_those_that_ask_for_most_gpus_are_priced() -> None:
    sizes = range(101, 1000, 7)
    worths = worth_of_free_shares({size: size for size in sizes})
    assert worths[sizes[-MOST_SIZES]] == pytest.approx(1.0)
    assert worths[sizes[-MOST_SIZES] - 1] == 0.0


def test_equal_requests_pack_equally_in_whatever_order_they_are_told() -> None:
    demands = {Demand(4000, 8192, 1, size): 100 - size // 10 for size in (810, 650, 470, 320, 230)}
    assert packing_of(demands) == packing_of(dict(reversed(demands.items())))


def test_a_host_lets_as_many_gpus_be_used_as_it_has_cpus_and_memory_for() -> None:
    packing = packing_of({Demand(10000, 40000, 1, WHOLE): 3, Demand(5000, 20000, 1, 500): 4})
    assert packing.gpus_for(40000, 10**9) == pytest.approx(4 / ENOUGH_CPU)
    assert packing.gpus_for(10**9, 40000) == pytest.approx(1 / ENOUGH_MEMORY)
    assert packing_of({Demand(0, 0, 1, WHOLE): 1}).gpus_for(0, 0) > 1000
    assert packing_of({}).gpus_for(0, 0) > 1000
