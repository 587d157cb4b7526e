# SPDX-License-Identifier: Apache-2.0
"""Our text of a family is prometheus_client's, byte by byte, in both formats."""

import math
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from vgpuctl.telemetry.exposition import Page, encode, process_families
from vgpuctl.telemetry.family import MetricFamily

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LABELS = ("host", "gpu", "b_label", "a_label")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
FAMILIES = st.builds(
    MetricFamily,
    st.sampled_from(["vgpuctl_a_watts", "vgpuctl_b_total"]),
    TEXTS,
    st.sampled_from([LABELS[:count] for count in range(len(LABELS) + 1)]),
    st.booleans(),
)


class Theirs(Collector):
    """The same family for prometheus_client."""

    def __init__(self, family: MetricFamily) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """The family."""
        yield self._family.metric()


@given(st.data(), FAMILIES)
def test_the_text_is_that_of_prometheus_client(data: st.DataObject, family: MetricFamily) -> None:
    name = "vgpuctl_b_total" if family.is_counter else "vgpuctl_a_watts"
    values = st.tuples(*(TEXTS for _label in family.labels))
    numbers = st.floats() | st.integers(-(2**60), 2**60).map(float)
    rows = data.draw(st.lists(st.tuples(values, numbers), min_size=1, max_size=3, unique_by=lambda row: row[0]))
    family = MetricFamily(name, family.text, family.labels, family.is_counter, rows)
    registry = CollectorRegistry()
    registry.register(Theirs(family))
    for accept in ("", OPENMETRICS):
        encoder, content_type = choose_encoder(accept)
        assert encode([Page([family])], accept) == (encoder(registry), content_type)


def test_the_metrics_of_the_process_are_there() -> None:
    found = {one.name: one.rows for one in process_families()}
    [(_labels, seconds)] = found["process_cpu_seconds_total"]
    assert math.isfinite(seconds) and seconds > 0
