# SPDX-License-Identifier: Apache-2.0
"""Families of metrics, and pages of them in the formats that Prometheus asks for.

A page is encoded by prometheus_client once and kept; pages of many hosts are joined family by family without being
encoded again, so that a scrape of the fleet costs little.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from vgpuctl.agent.wire.labelled import OBJECT_LABELS, label_value
from vgpuctl.agent.wire.measures import MEASURES
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.states import StateKind, StateRow

MOST_SERIES = 50_000
"""Measured series of one host; a host with 16 GPUs and 512 vGPUs of as many VMs has about half of it."""
_EOF = b"# EOF\n"
_HELP = re.compile(rb"^# HELP (\S+)", re.MULTILINE)

Labelled = tuple[str, tuple[str, ...], Measured]
"""An object that was measured: its kind, the values of its labels, what was measured."""


class Page(Collector):
    """Families that are exposed together. series: how many."""

    def __init__(self, families: Iterable[Metric] = ()) -> None:
        self._families = tuple(families)
        self._blocks: dict[str, dict[bytes, tuple[bytes, bytes]]] = {}
        self.series = sum(len(one.samples) for one in self._families)

    def collect(self) -> Iterator[Metric]:
        """Return every family, for prometheus_client."""
        yield from self._families

    def of_tenant(self, tenant: str) -> "Page":
        """Return the page of those series that have the tenant's label."""
        families = []
        for one in self._families:
            samples = [sample for sample in one.samples if sample.labels.get("tenant") == label_value(tenant)]
            if samples:
                kept = Metric(one.name, one.documentation, one.type, one.unit)
                kept.samples = samples
                families.append(kept)
        return Page(families)

    def blocks(self, accept: str) -> dict[bytes, tuple[bytes, bytes]]:
        """Return each family's first lines and its samples, by the family's name."""
        encoder, content_type = choose_encoder(accept)
        if content_type not in self._blocks:
            registry = CollectorRegistry()
            registry.register(self)
            self._blocks[content_type] = dict(_split(encoder(registry).removesuffix(_EOF)))
        return self._blocks[content_type]


def encode(pages: Sequence[Page], accept: str) -> tuple[bytes, str]:
    """Return one text of all pages and its Content-Type. accept: the request's header."""
    _encoder, content_type = choose_encoder(accept)
    heads: dict[bytes, bytes] = {}
    bodies: dict[bytes, list[bytes]] = {}
    for page in pages:
        for name, (head, body) in page.blocks(accept).items():
            heads.setdefault(name, head)
            bodies.setdefault(name, []).append(body)
    parts = [part for name, head in heads.items() for part in (head, *bodies[name])]
    if content_type.startswith("application/openmetrics-text"):
        parts.append(_EOF)
    return b"".join(parts), content_type


def _split(text: bytes) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    found = list(_HELP.finditer(text))
    for number, begin in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        block = text[begin.start() : end]
        body = 0
        while block[body : body + 1] == b"#":
            body = block.index(b"\n", body) + 1
        yield begin[1], (block[:body], block[body:])


class Dropped:
    """The series of one host that were not exposed, by reason."""

    def __init__(self) -> None:
        self.duplicate = 0
        self.too_many = 0


def measured_families(objects: Iterable[Labelled], dropped: Dropped, *, most: int = MOST_SERIES) -> list[Metric]:
    """Return one family for each measure that some object has, with `most` samples together; the rest is counted."""
    by_kind: dict[str, list[tuple[tuple[str, ...], Measured]]] = {}
    for kind, labels, measured in objects:
        by_kind.setdefault(kind, []).append((tuple(map(label_value, labels)), measured))
    families: list[Metric] = []
    left = most
    for one in MEASURES:
        make = CounterMetricFamily if one.is_counter else GaugeMetricFamily
        family = make(one.metric, one.text, labels=(*OBJECT_LABELS[one.of], *one.labels))
        seen: set[tuple[str, ...]] = set()
        for labels, measured in by_kind.get(one.of, ()):
            for own, value in measured.all(one.name):
                values = (*labels, *map(label_value, own))
                if values in seen:
                    dropped.duplicate += 1
                elif left == 0:
                    dropped.too_many += 1
                else:
                    seen.add(values)
                    left -= 1
                    family.add_metric(values, value)
        if family.samples:
            families.append(family)
    return families


def state_families(states: Iterable[tuple[StateKind, Sequence[StateRow]]]) -> Iterator[Metric]:
    """Return a family for each kind of state that has rows: one series per object and state, 1 where it is in it."""
    for kind, rows in states:
        if not rows:
            continue
        if kind.states is None:
            make = CounterMetricFamily if kind.is_counter else GaugeMetricFamily
            family = make(kind.metric, kind.text, labels=kind.labels)
        else:
            family = GaugeMetricFamily(kind.metric, kind.text, labels=(*kind.labels, "state"))
        seen: set[tuple[str, ...]] = set()
        for row in rows:
            labels = tuple(map(label_value, row.labels))
            if labels in seen:
                continue
            seen.add(labels)
            if kind.states is None:
                family.add_metric(labels, row.value or 0.0)
                continue
            for state in kind.shown_states:
                family.add_metric((*labels, state), state in row.states)
        yield family


def family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]], *, counter: bool = False
) -> Metric:
    """Return one family of rows of label values and a value."""
    made = (CounterMetricFamily if counter else GaugeMetricFamily)(name, text, labels=labels)
    seen: set[tuple[str, ...]] = set()
    for values, value in rows:
        cleaned = tuple(map(label_value, values))
        if cleaned not in seen:
            seen.add(cleaned)
            made.add_metric(cleaned, value)
    return made


def process_families() -> Iterator[Metric]:
    """Return the usual metrics of this process: CPU, memory, open files, start."""
    return iter(ProcessCollector(registry=None).collect())
