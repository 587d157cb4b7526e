# SPDX-License-Identifier: Apache-2.0
"""The readings in Prometheus's text format, as a file for node_exporter (telemetry reference 5, 5.3).

Families, help and labels are those of `vgpuctl serve exporter`; a test compares them. The file has no timestamps,
because node_exporter refuses them and exports the file's own time.
"""

import math
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.readings import host as host_readings
from vgpuctl.agent.wire.labelled import (
    COLLECT_SUCCESS,
    GPU_INFO,
    OBJECT_LABELS,
    READING_MISSING,
    VGPU_INFO,
    InfoMetric,
    collect_rows,
    gpu_rows,
    label_value,
    labelled,
    missing_rows,
    named_vgpus,
)
from vgpuctl.agent.wire.measures import MEASURES
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.agent.wire.textfile import FILE_NAME, TextfileConfig

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


def write(host: Host, config: TextfileConfig) -> None:
    """Read the host and write the file, whole or not at all. Raises Problem."""
    put(host, config, render(config.host, host_readings.read(host)))


def write_failure(host: Host, config: TextfileConfig) -> None:
    """Write a file that says only that the host could not be read, in place of values that are old."""
    put(host, config, "".join(_info(COLLECT_SUCCESS, collect_rows(config.host, None))))


def put(host: Host, config: TextfileConfig, text: str) -> None:
    """Write the file: under another name first, then renamed. Raises Problem."""
    host.put_file(f"{config.folder}/{FILE_NAME}", text.encode(), 0o644)


def render(name: str, readings: HostReadings) -> str:
    """Return the page of a host. name: its name in the inventory."""
    by_kind: Dict[str, List[Tuple[Tuple[str, ...], Dict[str, List[Tuple[Tuple[str, ...], float]]]]]] = {}
    for kind, labels, measured in labelled(name, readings):
        values: Dict[str, List[Tuple[Tuple[str, ...], float]]] = {}
        for one, own, value in measured.values:
            values.setdefault(one, []).append((own, value))
        by_kind.setdefault(kind, []).append((labels, values))
    parts: List[str] = []
    for measure in MEASURES:
        rows = (
            ((*labels, *own), value)
            for labels, values in by_kind.get(measure.of, ())
            for own, value in values.get(measure.name, ())
        )
        kind = "counter" if measure.is_counter else "gauge"
        parts += _family(measure.metric, measure.text, kind, (*OBJECT_LABELS[measure.of], *measure.labels), rows)
    parts += _info(GPU_INFO, gpu_rows(name, readings))
    parts += _info(VGPU_INFO, ((one.info(name), 1.0) for one in named_vgpus(readings)))
    parts += _info(READING_MISSING, missing_rows(name, readings))
    parts += _info(COLLECT_SUCCESS, collect_rows(name, readings))
    return "".join(parts)


def _info(metric: InfoMetric, rows: "Iterator[Tuple[Tuple[str, ...], float]]") -> Iterator[str]:
    return _family(metric.name, metric.text, "gauge", metric.labels, rows)


def _family(
    name: str, text: str, kind: str, labels: Sequence[str], rows: "Iterator[Tuple[Tuple[str, ...], float]]"
) -> Iterator[str]:
    """The lines of one family; none for a family without samples. A series that comes twice is written once."""
    seen: Set[Tuple[str, ...]] = set()
    for values, value in rows:
        shown = tuple(label_value(one) for one in values)
        if shown in seen:
            continue
        if not seen:
            escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
            yield f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"
        seen.add(shown)
        pairs = ",".join(f'{label}="{_escape(one)}"' for label, one in zip(labels, shown))
        yield f"{name}{{{pairs}}} {_number(value)}\n"


def _escape(value: str) -> str:
    return "".join(_ESCAPES.get(one, one) for one in value)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
