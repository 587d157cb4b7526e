# SPDX-License-Identifier: Apache-2.0
"""One rule about moves, and how its answer is given: yes with what was found, no, or not looked at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.version import version_of
from vgpuctl.planner.moves.case import MoveCase, MovedGpu

Found = str | None
"""What was found against the move: a text, "" for nothing, None if nobody looked."""
Looks = Iterator[tuple[Found, MovedGpu | None]]
_YES = "yes"


@dataclass(frozen=True)
class MoveRule:
    """What forbids a kinder way. forbids, pins: as in MoveLimit. unread: what is forbidden where nobody looked.

    limit: a sentence of `str.format` with `case`, `here`, `there` (the hosts), `gpu` and `found`. witness: what has to
    be read, in the same words. source: of the rule.
    """

    code: str
    forbids: MoveKind
    limit: str
    remedy: str
    witness: str
    source: str
    look: Callable[[MoveCase], Looks]
    pins: bool = False
    unread: MoveKind | None = None

    @property
    def forbids_unread(self) -> MoveKind:
        """What is forbidden where nobody looked: by default the same as what it forbids."""
        return self.unread or self.forbids


def whole(look: Callable[[MoveCase], Found | bool]) -> Callable[[MoveCase], Looks]:
    """Make a look at the VM, with one answer."""

    def looks(case: MoveCase) -> Looks:
        yield found(look(case)), None

    return looks


def each(
    look: Callable[[MoveCase, MovedGpu], Found | bool], concerns: Callable[[MovedGpu], bool] = lambda _gpu: True
) -> Callable[[MoveCase], Looks]:
    """Make a look at each GPU of the VM that it concerns."""

    def looks(case: MoveCase) -> Looks:
        for gpu in case.gpus:
            if concerns(gpu):
                yield found(look(case, gpu)), gpu

    return looks


def found(answer: Found | bool) -> Found:
    """Return the answer of a question with yes or no as what was found."""
    if isinstance(answer, bool):
        return _YES if answer else ""
    return answer


def either(*answers: bool | None) -> bool | None:
    """True if one answer is; None if none is, and one is not known."""
    if any(answers):
        return True
    return None if None in answers else False


def differs(one: object, other: object) -> bool | None:
    """True if two known values differ."""
    return None if one is None or other is None else one != other


def is_before(version: str | None, wanted: str) -> bool | None:
    """True if a version is lower than another one; None for one that is not known or has no number."""
    known = version_of(version)
    return known < version_of(wanted) if known else None
