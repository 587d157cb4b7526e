# SPDX-License-Identifier: Apache-2.0
"""The last hour of past readings, minute by minute, for the commands that show one GPU or one VM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.agent.wire.measures import measure
from vgpuctl.usecases.running.history import PAST_PROBLEMS, PastSource, open_past

if TYPE_CHECKING:
    from vgpuctl.telemetry.history import Subject

MINUTES = 60


@dataclass(frozen=True)
class PastLine:
    """One measure of one object. object: as the history names it. values: the mean of each minute, the oldest first;
    None for a minute without reading. low, high: of all readings."""

    measure: str
    text: str
    object: str
    values: tuple[float | None, ...]
    low: float
    high: float


@dataclass(frozen=True)
class LastHour:
    """since: the first minute, seconds since the epoch, UTC. problem: why lines are missing, in one line."""

    since: float
    lines: tuple[PastLine, ...] = ()
    problem: str | None = None


def read_last_hour(
    source: PastSource | None,
    kind: str,
    measures: Sequence[str],
    *,
    now: float,
    is_wanted: "Callable[[Subject], bool]",
    **where: str,
) -> LastHour:
    """Read measures of the objects that are wanted. where: as for a past's series.

    A source that cannot answer is the problem of the result.
    Raises UsageError for a URL of Prometheus that cannot be read.
    """
    minute = 60
    since = now // minute * minute - (MINUTES - 1) * minute
    lines = []
    with open_past(source) as opened:
        if opened.past is None:
            return LastHour(since, problem=opened.problem)
        try:
            for name in measures:
                found = opened.past.series(kind, name, since=since, until=now + 1, step_s=minute, **where)
                for subject, samples in sorted(found.items(), key=lambda one: (one[0].host, one[0].object)):
                    if not is_wanted(subject) or not samples:
                        continue
                    means = {int(one.at): one.mean for one in samples}
                    values = tuple(means.get(int(since) + step * minute) for step in range(MINUTES))
                    low, high = min(one.low for one in samples), max(one.high for one in samples)
                    lines.append(PastLine(name, measure(kind, name).text, subject.object, values, low, high))
        except PAST_PROBLEMS as error:
            return LastHour(since, problem=error.message)
    return LastHour(since, tuple(lines), None if lines else "no reading was kept in the last hour")
