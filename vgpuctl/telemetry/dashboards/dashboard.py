# SPDX-License-Identifier: Apache-2.0
"""A dashboard as a table of panels, and its JSON in Grafana's classic model.

Source: grafana.com, "Dashboard JSON model" (classic), schema version 39. Newer versions of Grafana migrate it upward.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 39
COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Unit(StrEnum):
    """Grafana's ids of units."""

    NONE = "none"
    SHORT = "short"
    RATIO = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_RATE = "Bps"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    MOMENT = "dateTimeFromNow"


class PanelKind(StrEnum):
    """Grafana's types of panels."""

    STAT = "stat"
    LINES = "timeseries"
    TABLE = "table"
    BARS = "bargauge"
    STATES = "state-timeline"

    def is_instant(self) -> bool:
        """True if only the last value is shown."""
        return self in (PanelKind.STAT, PanelKind.TABLE, PanelKind.BARS)


@dataclass(frozen=True)
class Query:
    """One query. legend: its name, with labels as `{{host}}`. is_optional: it reads series of other exporters."""

    expression: str
    legend: str = ""
    is_optional: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel. text: what it shows. warn, fail: values from which it is orange and red."""

    kind: PanelKind
    title: str
    text: str
    queries: Sequence[Query]
    unit: Unit = Unit.SHORT
    width: int = 8
    height: int = 8
    warn: float | None = None
    fail: float | None = None
    most: float | None = None
    is_stacked: bool = False


@dataclass(frozen=True)
class PanelRow:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label."""

    name: str
    label: str
    metric: str

    @property
    def query(self) -> str:
        """As Grafana's data source takes it."""
        return f"label_values({self.metric}, {self.name})"


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. name: of its file."""

    name: str
    title: str
    text: str
    rows: Sequence[PanelRow]
    variables: Sequence[Variable] = ()

    @property
    def uid(self) -> str:
        """Grafana's stable id, at most 40 characters."""
        return f"vgpuctl-{self.name}"

    def panels(self) -> Iterator[Panel]:
        """Every panel."""
        return (panel for row in self.rows for panel in row.panels)

    def json(self) -> dict[str, Any]:
        """The dashboard in Grafana's model."""
        return {
            "id": None,
            "uid": self.uid,
            "title": self.title,
            "description": self.text,
            "tags": ["vgpuctl"],
            "timezone": "browser",
            "editable": True,
            "graphTooltip": 1,
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "links": [_LINKS],
            "annotations": {"list": []},
            "templating": {"list": [_DATASOURCE, *map(_variable, self.variables)]},
            "panels": list(_placed(self.rows)),
        }


HOST = Variable("host", "Host", "vgpuctl_collect_success")
GPU = Variable("gpu", "GPU", 'vgpuctl_gpu_info{host=~"$host"}')
TENANT = Variable("tenant", "Tenant", 'vgpuctl_vgpu_info{tenant!=""}')
_DATASOURCE = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
}
_LINKS = {
    "title": "vgpuctl",
    "type": "dashboards",
    "tags": ["vgpuctl"],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
    "url": "",
}


def stat(title: str, text: str, expression: str, unit: Unit = Unit.SHORT, **look: Any) -> Panel:
    """One number."""
    return replace(Panel(PanelKind.STAT, title, text, (Query(expression),), unit, width=4, height=4), **look)


def lines(title: str, text: str, *queries: Query, unit: Unit = Unit.SHORT, **look: Any) -> Panel:
    """Values over time."""
    return replace(Panel(PanelKind.LINES, title, text, queries, unit), **look)


def bars(title: str, text: str, query: Query, unit: Unit = Unit.SHORT, **look: Any) -> Panel:
    """The last value of each series."""
    return replace(Panel(PanelKind.BARS, title, text, (query,), unit), **look)


def table(title: str, text: str, *queries: Query, **look: Any) -> Panel:
    """The last values with their labels as columns."""
    return replace(Panel(PanelKind.TABLE, title, text, queries, Unit.NONE, width=COLUMNS), **look)


def states(title: str, text: str, query: Query, **look: Any) -> Panel:
    """States over time: series that are 1 or 0."""
    return replace(Panel(PanelKind.STATES, title, text, (query,), Unit.NONE), **look)


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": one.query,
        "query": {"query": one.query, "refId": "values"},
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "options": [],
        "refresh": 2,
        "regex": "",
        "sort": 1,
    }


def _placed(rows: Sequence[PanelRow]) -> Iterator[dict[str, Any]]:
    """The rows' panels, from left to right and from top to bottom."""
    number, top = 1, 0
    for row in rows:
        grid = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": grid, "panels": []}
        number, top = number + 1, top + 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            yield _panel(panel, number, {"h": panel.height, "w": panel.width, "x": left, "y": top})
            number, left, height = number + 1, left + panel.width, max(height, panel.height)
        top += height


def _panel(one: Panel, number: int, grid: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "orange", "value": one.warn}] if one.warn is not None else []
    steps += [{"color": "red", "value": one.fail}] if one.fail is not None else []
    defaults: dict[str, Any] = {
        "unit": str(one.unit),
        "min": 0 if one.unit is Unit.RATIO else None,
        "max": one.most,
        "color": {"mode": "thresholds" if one.kind is not PanelKind.LINES else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": _custom(one),
        "mappings": [],
    }
    made = {
        "id": number,
        "type": str(one.kind),
        "title": one.title,
        "description": one.text,
        "datasource": _SOURCE,
        "gridPos": grid,
        "targets": [_target(query, place, one.kind) for place, query in enumerate(one.queries)],
        "fieldConfig": {
            "defaults": {name: value for name, value in defaults.items() if value is not None},
            "overrides": [],
        },
        "options": _options(one.kind),
        "transformations": [],
    }
    if one.kind is PanelKind.TABLE:
        made["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True, "job": True}}},
        ]
    return made


def _target(query: Query, place: int, kind: PanelKind) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + place),
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "instant": kind.is_instant(),
        "range": not kind.is_instant(),
        "format": "table" if kind is PanelKind.TABLE else "time_series",
    }


def _custom(one: Panel) -> dict[str, Any]:
    if one.kind is PanelKind.LINES:
        mode = "normal" if one.is_stacked else "none"
        return {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if one.is_stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": mode, "group": "A"},
        }
    if one.kind is PanelKind.STATES:
        return {"lineWidth": 0, "fillOpacity": 70}
    return {}


def _options(kind: PanelKind) -> dict[str, Any]:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    options: dict[PanelKind, dict[str, Any]] = {
        PanelKind.STAT: {"reduceOptions": last, "colorMode": "value", "graphMode": "none", "textMode": "auto"},
        PanelKind.BARS: {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"},
        PanelKind.LINES: {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        PanelKind.TABLE: {"showHeader": True, "cellHeight": "sm"},
        PanelKind.STATES: {"showValue": "never", "mergeValues": True, "rowHeight": 0.9},
    }
    return options[kind]
