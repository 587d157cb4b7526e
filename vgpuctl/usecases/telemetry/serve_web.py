# SPDX-License-Identifier: Apache-2.0
"""web: what the read-only pages are made from: the store, the last readings, and the readings of before.

The use cases of the pages beside this file contact no host.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.measures import measure
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.telemetry.history import HOUR_S, MINUTE_S, Sample, Subject
from vgpuctl.usecases.observed.fleet_reader import HostSnapshot
from vgpuctl.usecases.observed.states import States, read_states
from vgpuctl.usecases.running.history import PAST_PROBLEMS, Past, PastSource, open_past
from vgpuctl.usecases.running.services import Services

DAY_S = 86_400
NO_SNAPSHOTS: Mapping[str, HostSnapshot] = {}
_LONGEST_BY_MINUTES_S = 2 * DAY_S


@dataclass(frozen=True)
class PageSources:
    """snapshots: gives the last readings by host; nothing where the pages are made from the store alone. past: the
    readings of before."""

    services: Services
    past: PastSource
    snapshots: Callable[[], Mapping[str, HostSnapshot]] = lambda: NO_SNAPSHOTS

    def readings(self) -> dict[str, HostReadings]:
        """The last readings of the hosts that have some."""
        return {name: one.readings for name, one in self.snapshots().items() if one.readings is not None}

    def states(self, of: Collection[str] | None = None) -> States:
        """Every state of the store as it is now, or those of some kinds of objects."""
        store = self.services.store
        snapshots = self.snapshots()
        fresh = {name: one.readings for name, one in snapshots.items() if one.readings and one.error is None}
        with store.reading() as session:
            return read_states(
                session,
                self.services.hosts(),
                readings=fresh,
                snapshots=snapshots,
                inventory=self.services.inventory,
                is_read_only=store.read_only_reason is not None,
                of=of,
            )


@dataclass(frozen=True)
class Series:
    """The samples of one object. label: what tells it from the others of its chart, empty for the only one."""

    label: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Chart:
    """One measure over time. measure: its name in agent/wire/measures.py, text: its meaning.

    since, until: seconds since the epoch; step_s: length of a sample. series: empty where nothing was kept.
    """

    measure: str
    text: str
    since: float
    until: float
    step_s: int
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Charts:
    """The charts of one object. problem: why there are none."""

    charts: tuple[Chart, ...] = ()
    problem: str | None = None


def read_charts(
    sources: PageSources, kind: str, names: Sequence[str], *, length_s: float, label: str = "object", **where: str
) -> Charts:
    """The kept samples of some measures of the objects that fit, one chart for each measure that has samples.

    names: in the order of the charts. length_s: up to now. label: the field of Subject that names a series. where: as
    for History.series.
    """
    now = sources.services.store.now()
    step_s = MINUTE_S if length_s <= _LONGEST_BY_MINUTES_S else HOUR_S
    with open_past(sources.past) as opened:
        if opened.past is None:
            return Charts(problem=opened.problem)
        try:
            found = [
                Chart(name, measure(kind, name).text, now - length_s, now, step_s, series)
                for name in names
                if (series := _series(opened.past, kind, name, now - length_s, now + step_s, step_s, label, where))
            ]
        except PAST_PROBLEMS as error:
            return Charts(problem=error.message)
    return Charts(tuple(found), None if found else "no reading was kept in this time")


def _series(
    past: Past, kind: str, name: str, since: float, until: float, step_s: int, label: str, where: Mapping[str, str]
) -> tuple[Series, ...]:
    samples = past.series(kind, name, since=since, until=until, step_s=step_s, **where)
    several = len(samples) > 1

    def name_of(subject: Subject) -> str:
        return " ".join(subject.labels) or str(getattr(subject, label))

    return tuple(
        Series(name_of(subject) if several else "", tuple(values))
        for subject, values in sorted(samples.items(), key=lambda one: name_of(one[0]))
        if values
    )
