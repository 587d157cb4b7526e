# SPDX-License-Identifier: Apache-2.0
"""Families of metrics, and pages of them in the formats that Prometheus asks for.

A page is encoded once and kept; pages of many hosts are joined family by family without being encoded again, so that a
scrape of the fleet costs little.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from vgpuctl.agent.wire.labelled import OBJECT_LABELS, label_value
from vgpuctl.agent.wire.measures import MEASURES
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.states import StateKind, StateRow
from vgpuctl.telemetry.family import LabelTexts, MetricFamily, Values, family_of

MOST_SERIES = 50_000
"""Measured series of one host; a host with 16 GPUs and 512 vGPUs of as many VMs has about half of it."""
_OPENMETRICS = "application/openmetrics-text"
_Blocks = dict[str, tuple[bytes, bytes]]

Labelled = tuple[str, Values, Measured]
"""An object that was measured: its kind, the values of its labels, what was measured."""


class Page:
    """Families that are exposed together. series: how many."""

    def __init__(self, families: Iterable[MetricFamily] = ()) -> None:
        self.families = tuple(one for one in families if one.rows)
        self.series = sum(len(one.rows) for one in self.families)
        self._blocks: dict[bool, _Blocks] = {}

    def of_tenant(self, tenant: str) -> "Page":
        """Return the page of those series that have the tenant's label."""
        return Page(one.of_tenant(label_value(tenant)) for one in self.families)

    def blocks(self, *, is_openmetrics: bool) -> _Blocks:
        """Return each family's first lines and its samples, by the family's name."""
        if is_openmetrics not in self._blocks:
            texts = LabelTexts()
            self._blocks[is_openmetrics] = {
                one.name: one.encode(texts, is_openmetrics=is_openmetrics) for one in self.families
            }
        return self._blocks[is_openmetrics]


def asks_for_openmetrics(accept: str) -> bool:
    """True if a request with this header gets OpenMetrics."""
    return _content_type(accept).startswith(_OPENMETRICS)


def _content_type(accept: str) -> str:
    _encoder, content_type = choose_encoder(accept)
    return content_type


def encode(pages: Sequence[Page], accept: str) -> tuple[bytes, str]:
    """Return one text of all pages and its Content-Type. accept: the request's header."""
    content_type = _content_type(accept)
    is_openmetrics = content_type.startswith(_OPENMETRICS)
    heads: dict[str, bytes] = {}
    bodies: dict[str, list[bytes]] = {}
    for page in pages:
        for name, (head, body) in page.blocks(is_openmetrics=is_openmetrics).items():
            heads.setdefault(name, head)
            bodies.setdefault(name, []).append(body)
    parts = [part for name, head in heads.items() for part in (head, *bodies[name])]
    if is_openmetrics:
        parts.append(b"# EOF\n")
    return b"".join(parts), content_type


class Dropped:
    """The series of one host that were not exposed, by reason. malformed: of no known measure, or with other labels."""

    def __init__(self) -> None:
        self.duplicate = 0
        self.too_many = 0
        self.malformed = 0

    def counts(self) -> list[tuple[str, int]]:
        """Each reason with its number."""
        return [("duplicate", self.duplicate), ("too-many", self.too_many), ("malformed", self.malformed)]


def measured_families(objects: Iterable[Labelled], dropped: Dropped, *, most: int = MOST_SERIES) -> list[MetricFamily]:
    """Return one family for each measure that some object has, with `most` samples together; the rest is counted."""
    families = {
        (one.of, one.name): MetricFamily(one.metric, one.text, (*OBJECT_LABELS[one.of], *one.labels), one.is_counter)
        for one in MEASURES
    }
    seen: set[tuple[str, Values]] = set()
    for kind, labels, measured in objects:
        cleaned = tuple(map(label_value, labels))
        for name, own, value in measured.values:
            family = families.get((kind, name))
            values = (*cleaned, *map(label_value, own)) if own else cleaned
            if family is None or len(values) != len(family.labels):
                dropped.malformed += 1
            elif (family.name, values) in seen:
                dropped.duplicate += 1
            elif len(seen) >= most:
                dropped.too_many += 1
            else:
                seen.add((family.name, values))
                family.rows.append((values, value))
    return [one for one in families.values() if one.rows]


def state_families(states: Iterable[tuple[StateKind, Sequence[StateRow]]]) -> Iterator[MetricFamily]:
    """Return a family for each kind of state that has rows: one series per object and state, 1 where it is in it."""
    for kind, rows in states:
        if kind.states is None:
            numbers = ((row.labels, row.value or 0.0) for row in rows)
            yield new_family(kind.metric, kind.text, kind.labels, numbers, counter=kind.is_counter)
            continue
        shown = (((*row.labels, state), float(state in row.states)) for row in rows for state in kind.shown_states)
        yield new_family(kind.metric, kind.text, (*kind.labels, "state"), shown)


def new_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]], *, counter: bool = False
) -> MetricFamily:
    """Return one family of rows of label values and a value; of rows with the same labels, the first."""
    found: dict[Values, float] = {}
    for values, value in rows:
        found.setdefault(tuple(map(label_value, values)), value)
    return MetricFamily(name, text, tuple(labels), counter, list(found.items()))


def process_families() -> Iterator[MetricFamily]:
    """Return the usual metrics of this process: CPU, memory, open files, start."""
    return map(family_of, ProcessCollector(registry=None).collect())
