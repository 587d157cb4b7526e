# SPDX-License-Identifier: Apache-2.0
"""The index of states when costs change under it: `doubt_answers`."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.state_index import StateIndex

DEEDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-2, 9)), max_size=60)


@given(deeds=DEEDS, factors=st.lists(st.integers(1, 3), min_size=10, max_size=10))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_while_costs_only_rise_the_cheapest_is_found_by_asking_old_answers_anew(
    deeds: list[tuple[str, int]], factors: list[int]
) -> None:
    index: StateIndex[int, float] = StateIndex()
    members: dict[str, int] = {}
    costs = [1.0 + state // 2 for state in range(10)]

    def cost(state: int) -> float | None:
        return None if state == 9 else costs[state]

    for name, state in deeds:
        if state >= 0:
            index.put(name, state)
            members[name] = state
        elif state == -1:
            costs = [one * factor for one, factor in zip(costs, factors, strict=True)]
            factors = factors[1:] + factors[:1]
            index.doubt_answers()
        elif name in members:
            index.remove(name)
            del members[name]
        best = min(((costs[state], name) for name, state in members.items() if state != 9), default=None)
        assert index.choose("the cheapest", cost) == (None if best is None else (best[1], members[best[1]]))


def test_one_decision_asks_only_so_many_old_answers_anew() -> None:
    index: StateIndex[int, float] = StateIndex(2)
    asked: list[int] = []

    def cost(state: int) -> float:
        asked.append(state)
        return float(state)

    for state in range(8):
        index.put(f"host-{state}", state)
    for _ in range(4):
        index.choose("the cheapest", cost)
    assert sorted(asked) == list(range(8))
    index.doubt_answers()
    asked.clear()
    assert index.choose("the cheapest", cost) == ("host-0", 0)
    assert asked == [0]
