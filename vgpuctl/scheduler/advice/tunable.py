# SPDX-License-Identifier: Apache-2.0
"""The kinds of advice that a controller may apply, with their bounds, and why it may not apply the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.scheduler.advice.advice import AdviceKind


@dataclass(frozen=True)
class Tunable:
    """How a kind of advice is applied, how that is rolled back, and its bounds, as docs/advice.md has them."""

    applied: str
    rolled_back: str
    bounds: str


TUNABLE: Mapping[AdviceKind, Tunable] = {
    AdviceKind.POWER_LIMIT: Tunable(
        "The power limit of the GPU is set, 10 % higher than it is; no VM stops.",
        "The limit from before is set.",
        "`tune.power_limit_w` of the GPU's entry in the layout. A limit that the layout declares stays.",
    ),
    AdviceKind.REBALANCE: Tunable(
        "The VM moves live to the GPU that the advice names.",
        "The VM moves live to the GPU that it came from.",
        "A live move, as `move-vm --check` allows it: within the VM's `max_downtime`, to a GPU that it may have.",
    ),
}
UNTUNABLE: Mapping[AdviceKind, str] = {
    AdviceKind.SMALLER_PROFILE: "a profile is given when a VM is made, so it needs a new VM",
    AdviceKind.LARGER_PROFILE: "a profile is given when a VM is made, so it needs a new VM",
    AdviceKind.IDLE_CARD: "a share is given when a VM is made, so it needs a new VM",
    AdviceKind.SCHEDULER: "a driver takes another vGPU scheduler only while no VM runs on the GPU",
    AdviceKind.SIZE_MODE: "a driver takes another size mode only while no vGPU is on the GPU",
}


def parse_kinds(text: str) -> tuple[AdviceKind, ...]:
    """Read the kinds of `--tune`, with commas between them, each once. Raises UsageError for one that is not tuned."""
    known = ", ".join(TUNABLE)
    hint = f"kinds that a controller applies: {known}"
    found: list[AdviceKind] = []
    for name in (one.strip() for one in text.split(",")):
        if not name:
            raise UsageError(f"--tune {text[:80]!a} names no kind of advice, or has a comma too many", hint=hint)
        if name not in tuple(AdviceKind):
            raise UsageError(f"--tune: {name[:80]!a} is no kind of advice", hint=hint)
        kind = AdviceKind(name)
        if kind in UNTUNABLE:
            raise UsageError(f"--tune: no controller applies {kind}: {UNTUNABLE[kind]}", hint=hint)
        found.append(kind)
    return tuple(dict.fromkeys(found))


def describe_tunable() -> Sequence[str]:
    """The table of all kinds, as docs/advice.md has it."""
    rows = [f"| `{kind}` | {one.applied} | {one.rolled_back} | {one.bounds} |" for kind, one in TUNABLE.items()]
    rows += [f"| `{kind}` | never: {reason} |  |  |" for kind, reason in UNTUNABLE.items()]
    return ("| kind | applied | rolled back | bounds |", "|---|---|---|---|", *rows)
