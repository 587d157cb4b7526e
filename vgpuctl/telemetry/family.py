# SPDX-License-Identifier: Apache-2.0
"""One family of metrics as text, in both of Prometheus's formats.

prometheus_client makes a mapping for each sample and sorts it. A page of 3,200 vGPUs has 200,000 samples whose labels
are those of 10,000 objects, so here the text of an object's labels is made once; a test compares the result with
prometheus_client's, byte by byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.utils import floatToGoString

Values = tuple[str, ...]
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_ESCAPES_OF_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


class LabelTexts:
    """The texts of labels, each made once: `gpu="0000:41:00.0",host="gpu1"`, in the order of the labels' names."""

    def __init__(self) -> None:
        self._orders: dict[Sequence[str], tuple[tuple[int, str], ...]] = {}
        self._texts: dict[tuple[Sequence[str], Values], str] = {}

    def text(self, names: tuple[str, ...], values: Values) -> str:
        """The text of one set of labels, empty for none."""
        found = self._texts.get((names, values))
        if found is None:
            order = self._orders.get(names)
            if order is None:
                ordered = sorted(range(len(names)), key=names.__getitem__)
                order = self._orders[names] = tuple((one, f'{names[one]}="') for one in ordered)
            found = ",".join(f'{begin}{values[one].translate(_ESCAPES)}"' for one, begin in order)
            self._texts[names, values] = found
        return found


@dataclass
class MetricFamily:
    """One family. name: with `_total` for a counter. rows: values of the labels, and the value; no labels twice."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False
    rows: list[tuple[Values, float]] = field(default_factory=list)

    def of_tenant(self, tenant: str) -> "MetricFamily":
        """The family with those rows that have the tenant's label."""
        if "tenant" not in self.labels:
            return MetricFamily(self.name, self.text, self.labels, self.is_counter)
        at = self.labels.index("tenant")
        return MetricFamily(
            self.name, self.text, self.labels, self.is_counter, [one for one in self.rows if one[0][at] == tenant]
        )

    def encode(self, texts: LabelTexts, *, is_openmetrics: bool) -> tuple[bytes, bytes]:
        """The first lines and the samples."""
        kind = "counter" if self.is_counter else "gauge"
        name = self.name.removesuffix("_total") if self.is_counter and is_openmetrics else self.name
        about = self.text.translate(_ESCAPES if is_openmetrics else _ESCAPES_OF_HELP)
        head = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
        lines = []
        for values, value in self.rows:
            labels = texts.text(self.labels, values)
            number = floatToGoString(value)  # type: ignore[no-untyped-call] # it has no types
            lines.append(f"{self.name}{{{labels}}} {number}\n" if labels else f"{self.name} {number}\n")
        return head.encode(), "".join(lines).encode()

    def metric(self) -> Metric:
        """The family as prometheus_client has it."""
        made = (CounterMetricFamily if self.is_counter else GaugeMetricFamily)(self.name, self.text, labels=self.labels)
        for values, value in self.rows:
            made.add_metric(values, value)
        return made


def family_of(metric: Metric) -> MetricFamily:
    """A family that prometheus_client made, of samples that all have the labels of the first one."""
    labels = tuple(metric.samples[0].labels) if metric.samples else ()
    is_counter = metric.type == "counter"
    name = f"{metric.name}_total" if is_counter else metric.name
    rows = [(tuple(one.labels[label] for label in labels), float(one.value)) for one in metric.samples]
    return MetricFamily(name, metric.documentation, labels, is_counter, rows)
