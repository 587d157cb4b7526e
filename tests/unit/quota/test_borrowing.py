# SPDX-License-Identifier: Apache-2.0
"""VMs on borrowed quota, and the tenants that may reclaim it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.quota.borrowing import ChargedVm, borrowed_vms, may_reclaim
from vgpuctl.quota.charge import add
from vgpuctl.quota.limits import Quota


def test_the_newest_vms_beyond_the_guarantee_are_the_borrowed_ones() -> None:
    sizes = (24, 48, 24, 1, 0)
    vms = [ChargedVm(str(number), number, {"framebuffer": size}) for number, size in enumerate(sizes)]
    assert borrowed_vms(vms, [Quota("framebuffer", 96, 48)]) == {"1", "3"}
    assert borrowed_vms(vms, [Quota("framebuffer", 96)]) == frozenset()
    assert borrowed_vms(vms, [Quota("vms", 96, 0)]) == frozenset()


vms_of = st.lists(
    st.tuples(st.integers(0, 9), st.dictionaries(st.sampled_from(["framebuffer", "cards"]), st.integers(0, 9)))
)


@given(vms_of, st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None)
def test_what_is_not_borrowed_lies_within_the_guarantees(
    made: list[tuple[int, dict[str, int]]], framebuffer: int, cards: int
) -> None:
    vms = [ChargedVm(str(number), created, takes) for number, (created, takes) in enumerate(made)]
    quotas = [Quota("framebuffer", None, framebuffer), Quota("cards", None, cards)]
    borrowed = borrowed_vms(vms, quotas)
    own = add(*(vm.takes for vm in vms if vm.vm_uuid not in borrowed))
    assert own.get("framebuffer", 0) <= framebuffer
    assert own.get("cards", 0) <= cards
    total = add(*(vm.takes for vm in vms))
    if total.get("framebuffer", 0) <= framebuffer and total.get("cards", 0) <= cards:
        assert not borrowed


def test_only_a_request_within_its_own_promise_may_ask_for_borrowed_quota() -> None:
    promised = [Quota("framebuffer", 96, 48), Quota("vms", 10)]
    assert may_reclaim(promised, {"framebuffer": 24}, {"framebuffer": 24, "vms": 1})
    assert not may_reclaim(promised, {"framebuffer": 25}, {"framebuffer": 24, "vms": 1})
    assert not may_reclaim(promised, {}, {"cards": 1})
    assert not may_reclaim([], {}, {"framebuffer": 1})
    assert not may_reclaim([Quota("framebuffer", 48)], {}, {"framebuffer": 48}), "a limit is no promise"
