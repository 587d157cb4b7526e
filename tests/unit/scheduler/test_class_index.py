# SPDX-License-Identifier: Apache-2.0
"""The index of classes answers as looking at every member does, however many states there were."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler import class_index
from vgpuctl.scheduler.class_index import ClassIndex

DEEDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 9)), max_size=60)


def cost(most: int, state: int) -> tuple[float, ...] | None:
    return None if state > most else (float(state // 2),)


@pytest.mark.parametrize("spare", [0, 4096])
@given(deeds=DEEDS)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_cheapest_member_is_chosen_the_first_by_name_of_equal_ones(
    spare: int, deeds: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_index, "SPARE_CLASSES", spare)
        index: ClassIndex[int] = ClassIndex()
        members: dict[str, int] = {}
        for name, state in deeds:
            if state >= 0:
                index.put(name, state)
                members[name] = state
            elif name in members:
                index.discard(name)
                del members[name]
            for most in (3, 8):
                priced = [(cost(most, state), name) for name, state in members.items() if state <= most]
                best = min(priced, default=None)
                found = index.choose(most, partial(cost, most))
                assert found == (None if best is None else (best[1], best[0]))
