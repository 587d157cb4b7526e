# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/monitoring.md and docs/telemetry.md, and the files that Prometheus and Grafana get."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from page_parts import ROOT, between, cell

from vgpuctl.agent.wire.labelled import OBJECT_LABELS
from vgpuctl.agent.wire.measure_states import STATES
from vgpuctl.agent.wire.measures import MEASURES, Measure
from vgpuctl.model.faults import FAULTS
from vgpuctl.model.states import STATE_KINDS
from vgpuctl.telemetry import rule_files
from vgpuctl.telemetry.alerts import ALERTS, Alert
from vgpuctl.telemetry.dashboards import DASHBOARDS
from vgpuctl.telemetry.own_metrics import OWN_METRICS
from vgpuctl.telemetry.recordings import RECORDINGS
from vgpuctl.yaml_text import yaml_text


def with_alerts(page: str) -> str:
    """The page with its tables of alerts, recording rules and dashboards."""
    page = between(page, "alerts", "alerts", _alert_rows())
    recordings = (f"| `{one.name}` | {one.text} |" for one in RECORDINGS)
    page = between(page, "recordings", "recordings", ("| series | meaning |", "|---|---|", *recordings))
    boards = (f"| `{one.uid}.json` | {one.title} | {one.text} |" for one in DASHBOARDS)
    return between(page, "dashboards", "dashboards", ("| file | title | content |", "|---|---|---|", *boards))


def _alert_rows() -> Iterable[str]:
    """One row for each fault, with an anchor of its id."""
    yield "| id | alerts | meaning | remedy |"
    yield "|---|---|---|---|"
    for fault, told in FAULTS.items():
        found = [one for one in ALERTS if one.fault is fault]
        if found:
            names = "<br>".join(f"`{one.name}` ({one.severity}, {_after(one)})" for one in found)
            yield f'| <a id="{fault}"></a>`{fault}` | {names} | {cell(told.meaning)} | {cell(told.remedy)} |'


def _after(alert: Alert) -> str:
    return "at once" if alert.lasts == "0m" else f"after {alert.lasts}"


def monitoring_files() -> dict[Path, str]:
    """Rules with their tests and dashboards, which the package ships for export monitoring."""
    shipped = ROOT / "vgpuctl" / "telemetry" / "shipped"
    made = {shipped / "rules" / name: _yaml(content) for name, content in rule_files.rules().items()}
    made |= {shipped / "rule-tests" / name: _yaml(content) for name, content in rule_files.rule_tests().items()}
    for one in DASHBOARDS:
        text = json.dumps(one.json(), indent=2, ensure_ascii=False)
        made[shipped / "grafana" / "dashboards" / f"{one.uid}.json"] = text + "\n"
    return made


def _yaml(content: Any) -> str:
    return f"# SPDX-License-Identifier: Apache-2.0\n# Made from the tables in vgpuctl/telemetry.\n{yaml_text(content)}"


def with_metrics(page: str, part: tuple[str, Callable[[], Iterator[str]]]) -> str:
    """The page with one of its tables of metrics between its two marks."""
    name, rows = part
    begin, end = f"<!-- {name}: made by scripts/generate_docs.py -->", f"<!-- end of {name} -->"
    table = "\n".join(rows())
    return f"{page[: page.index(begin)]}{begin}\n{table}\n{page[page.index(end) :]}"


def _measure_rows() -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for one in MEASURES:
        labels = " ".join(f"`{label}`" for label in (*OBJECT_LABELS[one.of], *one.labels))
        yield f"| `{one.metric}` | {labels} | {one.text} |"


def _state_rows() -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for one in STATE_KINDS:
        closed = {**({} if one.states is None else {"state": one.states}), **(one.label_values or {})}
        labels = " ".join(f"`{label}`" for label in dict.fromkeys((*one.labels, *closed)))
        values = "".join(f"<br>`{value}`: {text}" for meanings in closed.values() for value, text in meanings.items())
        yield f"| `{one.metric}` | {labels} | {one.text}{values} |"


def _own_rows() -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for one in OWN_METRICS:
        labels = " ".join(f"`{label}`" for label in one.labels)
        yield f"| `{one.name}` | {labels} | {one.text} |"


METRICS = {"measures": _measure_rows, "states": _state_rows, "own metrics": _own_rows}


def with_measures(page: str) -> str:
    """The page with a table of measures for each kind of object between their marks."""
    for kind in dict.fromkeys(one.of for one in MEASURES):
        begin, end = f"<!-- measures of {kind}: made by scripts/generate_docs.py -->", "<!-- end of measures -->"
        rows = "\n".join(
            f"| `{one.name}` | {_labels(one)} | "
            f"{'counter' if one.is_counter else 'gauge'} | {one.source} | {'yes' if one.is_kept else ''} | {one.text} |"
            for one in MEASURES
            if one.of == kind
        )
        table = f"| measure | labels | type | source | kept | meaning |\n|---|---|---|---|---|---|\n{rows}"
        first = page.index(begin)
        page = f"{page[:first]}{begin}\n{table}\n{page[page.index(end, first) :]}"
    return page


def _labels(one: Measure) -> str:
    """The labels of a measure, with the values of one that has a fixed set."""
    states = STATES.get((one.of, one.name), ())
    shown = ", ".join(f"`{label}`" for label in one.labels)
    return f"{shown}: {', '.join(states)}" if states else shown
