# SPDX-License-Identifier: Apache-2.0
"""Readings of hosts as families of metrics, in the text format that Prometheus asks for."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from vgpuctl.agent.wire.measures import MEASURES, Measure
from vgpuctl.agent.wire.readings import Measured


class Exposition(Collector):
    """Families that are put together for one answer."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        """Every family, for prometheus_client."""
        yield from self._families

    def encode(self, accept: str) -> tuple[bytes, str]:
        """The text and its Content-Type. accept: the request's header."""
        registry = CollectorRegistry()
        registry.register(self)
        encoder, content_type = choose_encoder(accept)
        return encoder(registry), content_type


def measured_families(objects: Iterable[tuple[str, Mapping[str, str], Measured]]) -> Iterator[Metric]:
    """One family for each measure that some object has. objects: (kind, labels of the object, readings)."""
    by_kind: dict[str, list[tuple[Mapping[str, str], Measured]]] = {}
    for kind, labels, measured in objects:
        by_kind.setdefault(kind, []).append((labels, measured))
    for one in MEASURES:
        family = _family(one, by_kind.get(one.of, ()))
        if family.samples:
            yield family


def _family(one: Measure, objects: Iterable[tuple[Mapping[str, str], Measured]]) -> Metric:
    family: CounterMetricFamily | GaugeMetricFamily | None = None
    for labels, measured in objects:
        for own, value in measured.all(one.name):
            if family is None:
                make = CounterMetricFamily if one.is_counter else GaugeMetricFamily
                family = make(one.metric, one.text, labels=(*labels, *one.labels))
            family.add_metric([*labels.values(), *own], value)
    return family if family is not None else GaugeMetricFamily(one.metric, one.text)
