# SPDX-License-Identifier: Apache-2.0
"""The verdict about one move: every rule is asked, and what nobody looked at is a limit of its own."""

from collections.abc import Iterable

from vgpuctl.model.move_verdict import NOT_LOOKED_AT, MoveKind, MoveLimit, MoveVerdict, kind_of
from vgpuctl.planner.moves.case import MoveCase, MovedGpu
from vgpuctl.planner.moves.estimate import estimate_downtime
from vgpuctl.planner.moves.gpu_rules import GPU_RULES
from vgpuctl.planner.moves.host_rules import HOST_RULES
from vgpuctl.planner.moves.placing_rules import BOUND_RULES, PLACING_RULES
from vgpuctl.planner.moves.rule import MoveRule

MOVE_RULES = BOUND_RULES + PLACING_RULES + GPU_RULES + HOST_RULES
"""Every rule, in the order in which its limit is told."""
OVER_CEILING = "max-downtime"
"""Code of the limit of a VM whose estimated stop is longer than its owner accepts."""


def judge_move(case: MoveCase) -> MoveVerdict:
    """Decide how a VM can go from one host to another. Nothing that is not known counts in the move's favour."""
    state_bytes = _state_bytes(case)
    downtime_s = _estimate(case, state_bytes) if case.vm.is_running else None
    limits, unread = _ask(case)
    limits += _over_ceiling(case, downtime_s)
    limits.sort(key=lambda one: one.forbids is not MoveKind.COLD)
    return MoveVerdict(kind_of(limits), tuple(limits), tuple(unread), downtime_s, state_bytes, tuple(_notes(case)))


def _ask(case: MoveCase) -> tuple[list[MoveLimit], list[str]]:
    """Ask each rule that concerns the VM. A VM that is off is asked only about what it needs to start there."""
    limits: list[MoveLimit] = []
    unread: dict[str, MoveKind] = {}
    for rule in MOVE_RULES:
        if not case.vm.is_running and rule.forbids_unread is MoveKind.LIVE and rule not in BOUND_RULES:
            continue
        for found, gpu in rule.look(case):
            if found is None:
                witness, forbids = _say(rule.witness, case, gpu), rule.forbids_unread
                unread[witness] = MoveKind.COLD if MoveKind.COLD in (forbids, unread.get(witness)) else forbids
            elif found:
                limits.append(_limit(rule, case, gpu, found))
    limits += [_not_looked_at(case, witness, forbids) for witness, forbids in unread.items()]
    return limits, list(unread)


def _limit(rule: MoveRule, case: MoveCase, gpu: MovedGpu | None, found: str) -> MoveLimit:
    limit, remedy = (_say(text, case, gpu, found) for text in (rule.limit, rule.remedy))
    return MoveLimit(rule.code, limit, remedy, rule.forbids, rule.pins)


def _not_looked_at(case: MoveCase, witness: str, forbids: MoveKind) -> MoveLimit:
    return MoveLimit(
        NOT_LOOKED_AT,
        f"not looked at: {witness}",
        f"see `vgpuctl inspect-host {case.here.name}` and `vgpuctl inspect-host {case.there.name}`",
        forbids,
    )


def _say(text: str, case: MoveCase, gpu: MovedGpu | None, found: str = "") -> str:
    return text.format(case=case, here=case.here, there=case.there, gpu=gpu, found=found)


def _state_bytes(case: MoveCase) -> int | None:
    sizes = [gpu.state_bytes for gpu in case.gpus]
    known = [one for one in sizes if one is not None]
    return sum(known) if len(known) == len(sizes) else None


def _slowest(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [one for one in found if one is not None]
    return min(known) if known and len(known) == len(found) else None


def _estimate(case: MoveCase, state_bytes: int | None) -> float | None:
    cards = [(gpu.here, gpu.there) for gpu in case.gpus]
    return estimate_downtime(
        state_bytes=state_bytes,
        read_mb_s=_slowest(here.read_mb_s for here, _there in cards),
        write_mb_s=_slowest(None if there is None else there.write_mb_s for _here, there in cards),
        link_mbit_s=case.link.mbit_s,
        memory_bytes=case.link.memory_bytes,
        dirty_bytes_s=case.link.dirty_bytes_s,
        streams=all(here.streams and there is not None and there.streams for here, there in cards),
        state_dirty_bytes_s=case.link.state_dirty_bytes_s,
    )


def _over_ceiling(case: MoveCase, downtime_s: float | None) -> list[MoveLimit]:
    """A ceiling that the stop cannot be compared with is not kept."""
    ceiling = case.vm.max_downtime_s
    if ceiling is None or not case.vm.is_running:
        return []
    if downtime_s is None:
        return [
            MoveLimit(
                NOT_LOOKED_AT,
                f"its stop cannot be estimated, and max_downtime is {ceiling:g} s",
                "declare the bandwidth between the hosts, and see that NVML tells the size of the state",
                MoveKind.LIVE,
            )
        ]
    if downtime_s <= ceiling:
        return []
    limit = f"it would stop for about {downtime_s:.1f} s, and max_downtime is {ceiling:g} s"
    remedy = f"use a faster link, or raise max_downtime: `vgpuctl resize-vm {case.vm.name} --max-downtime`"
    return [MoveLimit(OVER_CEILING, limit, remedy, MoveKind.LIVE)]


def _notes(case: MoveCase) -> Iterable[str]:
    """What an operator should know and no rule forbids."""
    for gpu in case.gpus:
        with_gsp = [host.name for host, card in ((case.here, gpu.here), (case.there, gpu.there)) if card and card.gsp]
        if gpu.is_vgpu and with_gsp:
            yield (
                f"{gpu.name}: its card uses GSP firmware on {' and '.join(with_gsp)}; "
                "live moves fail with some releases of it"
            )
    if case.vm.cluster is not None:
        yield f"it is a node of {case.vm.cluster}: a cold move drains it first, a live move tells the cluster nothing"
    if case.vm.gang is not None:
        yield f"it is in gang {case.vm.gang}: a cold move stops it while the others run"
    if any(gpu.is_card for gpu in case.gpus):
        yield "a whole card goes cold alone: the VM is stopped, and gets an equal card"
