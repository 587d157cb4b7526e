# SPDX-License-Identifier: Apache-2.0
"""The verdict about a move: each rule forbids what it says, and nothing unknown counts as a yes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planner.moves.move_cases import (
    CARD,
    FORBIDDEN,
    GPU,
    LIVE,
    MOVABLE,
    WHOLE,
    forgettable,
    with_domain,
    with_gpu,
    with_there,
    with_vm,
)
from vgpuctl.model.move_verdict import NOT_LOOKED_AT, MoveKind
from vgpuctl.planner.moves.case import Compatibility, MoveCase, MovedCard, MovedDomain, MovedGpu, MoveHost, MoveTransfer
from vgpuctl.planner.moves.judge import MOVE_RULES, judge_move

_RULES = {rule.code: rule for rule in MOVE_RULES}


@pytest.mark.parametrize("number", range(len(MOVABLE)))
def test_a_vm_that_nothing_speaks_against_moves_live(number: int) -> None:
    verdict = judge_move(MOVABLE[number])
    assert (verdict.limits, verdict.kind) == ((), MoveKind.LIVE)


def test_each_rule_has_a_case() -> None:
    assert set(FORBIDDEN) == set(_RULES) and len(_RULES) == len(MOVE_RULES)


@pytest.mark.parametrize("code", FORBIDDEN)
def test_a_rule_forbids_what_it_says(code: str) -> None:
    rule = _RULES[code]
    verdict = judge_move(FORBIDDEN[code])
    limit = next(one for one in verdict.limits if one.code == code)
    assert (limit.forbids, limit.pins) == (rule.forbids, rule.pins)
    assert "{" not in limit.limit + limit.remedy and "None" not in limit.limit
    if rule.forbids is MoveKind.LIVE:
        assert verdict.kind is MoveKind.COLD
    else:
        assert verdict.kind is (MoveKind.PINNED if rule.pins else MoveKind.BLOCKED)


@pytest.mark.parametrize("code", [code for code in FORBIDDEN if code not in ("qemu-too-old", "nvml-no-cold")])
def test_a_rule_that_forbids_speaks_alone(code: str) -> None:
    others = {"passthrough"} if code == "no-equal-card" else {"sharing-differs"} if code == "vf-on-old-rhel" else set()
    assert {one.code for one in judge_move(FORBIDDEN[code]).limits} - others == {code}


def test_nothing_known_is_no_yes() -> None:
    gpu = MovedGpu(0, GPU.sharing, is_nvidia=True, here=MovedCard("0000:41:00.0"), there=None)
    case = MoveCase(LIVE.vm, MoveHost("gpu1"), MoveHost("gpu2"), (gpu,), MovedDomain(), MoveTransfer())
    verdict = judge_move(case)
    assert verdict.kind is MoveKind.BLOCKED
    assert {one.code for one in verdict.limits} == {NOT_LOOKED_AT}
    assert len(verdict.not_looked_at) > 20


@given(st.sampled_from((*MOVABLE, *FORBIDDEN.values())), st.data())
def test_knowing_less_never_makes_a_move_kinder(case: MoveCase, data: st.DataObject) -> None:
    known = forgettable(case)
    less = case
    for number in data.draw(st.sets(st.integers(0, len(known) - 1), min_size=1)):
        less = known[number](less)
    before, after = judge_move(case), judge_move(less)
    assert after.kind is not MoveKind.LIVE or before.kind is MoveKind.LIVE
    if "nvml-no-cold" not in {one.code for one in before.limits}:
        assert after.kind.rank() >= before.kind.rank()


@pytest.mark.parametrize("number", range(len(MOVABLE)))
def test_each_thing_that_a_live_move_needs_is_missed(number: int) -> None:
    """One that may be forgotten without a limit is one that no rule of this VM asks for."""
    case = MOVABLE[number]
    ignored = 0
    for forget in forgettable(case):
        ignored += judge_move(forget(case)).kind is MoveKind.LIVE
    assert ignored < len(forgettable(case)) // 2


def test_without_the_word_of_nvml_a_vm_goes_cold() -> None:
    verdict = judge_move(with_gpu(compatibility=None))
    assert verdict.kind is MoveKind.COLD
    assert verdict.not_looked_at == ("NVML's comparison of GPU 0 with 0000:81:00.0 on gpu2",)


def test_a_whole_card_goes_cold_where_an_equal_one_is_free() -> None:
    verdict = judge_move(replace(LIVE, gpus=(WHOLE,)))
    assert verdict.kind is MoveKind.COLD and [one.code for one in verdict.limits] == ["passthrough"]


def test_a_vm_that_is_off_is_not_asked_about_its_running_domain() -> None:
    case = replace(with_vm(is_running=False), domain=MovedDomain(), gpus=(replace(GPU, compatibility=None),))
    codes = [one.code for one in judge_move(case).limits]
    assert codes == ["vm-is-off"]


def test_gsp_firmware_is_a_note() -> None:
    verdict = judge_move(with_gpu(here=replace(CARD, gsp=True)))
    assert verdict.kind is MoveKind.LIVE and "GSP firmware on gpu1" in verdict.notes[0]


def test_a_node_of_a_cluster_and_a_member_of_a_gang_are_told() -> None:
    notes = judge_move(with_vm(cluster="Kubernetes cluster ml", gang="train")).notes
    assert [("cluster ml" in one, "gang train" in one) for one in notes] == [(True, False), (False, True)]


def test_a_longer_stop_than_the_owner_accepts_forbids_a_live_move() -> None:
    verdict = judge_move(with_vm(max_downtime_s=2))
    assert verdict.kind is MoveKind.COLD and verdict.downtime_s is not None and verdict.downtime_s > 2
    assert [one.code for one in verdict.limits] == ["max-downtime"]


def test_a_ceiling_without_an_estimate_forbids_a_live_move() -> None:
    unknown = replace(LIVE, link=MoveTransfer())
    assert judge_move(unknown).kind is MoveKind.COLD
    free = judge_move(replace(unknown, vm=replace(unknown.vm, max_downtime_s=None)))
    assert (free.kind, free.downtime_s, free.state_bytes) == (MoveKind.LIVE, None, 8 << 30)


def test_the_limits_that_stop_a_move_come_first() -> None:
    case = replace(with_domain(has_viommu=True), looks={**LIVE.looks, "quota": "over quota"})
    assert [one.code for one in judge_move(case).limits] == ["quota", "viommu"]


def test_a_vm_bound_to_its_host_is_pinned_also_where_more_is_against_it() -> None:
    case = replace(with_vm(declared_host="gpu1"), looks={**LIVE.looks, "quota": "over quota"})
    assert judge_move(case).kind is MoveKind.PINNED


def test_versions_are_told_with_the_one_that_is_needed() -> None:
    limit = next(one for one in judge_move(with_there(qemu="7.2.0")).limits if one.code == "qemu-too-old")
    assert limit.limit == "QEMU cannot move GPUs: gpu2 has 7.2.0, and 8.1 is needed"


def test_text_of_a_host_is_never_a_format() -> None:
    verdict = judge_move(with_gpu(there=replace(CARD, board="{case.vm}{0}")))
    assert "{case.vm}{0}" in verdict.limits[0].limit


def test_nvml_tells_all_of_its_limits() -> None:
    codes = {one.code for one in judge_move(with_gpu(compatibility=Compatibility(0, 0x7))).limits}
    assert codes == {"nvml-no-cold", "nvml-host-driver", "nvml-guest-driver", "nvml-gpu"}
