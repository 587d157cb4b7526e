# SPDX-License-Identifier: Apache-2.0
"""A rule or panel on a series that nobody exports is silent for ever: every name must be a metric of the exporter."""

import re

import pytest

from tests.unit.telemetry.metric_names import grouped_labels, known_metrics, selectors_of
from vgpuctl.agent.wire.xid_classes import CLASSES
from vgpuctl.telemetry.alert_cases import CASES
from vgpuctl.telemetry.alerts import ALERTS, Alert
from vgpuctl.telemetry.dashboards import DASHBOARDS
from vgpuctl.telemetry.recordings import RECORDINGS

KNOWN = known_metrics()
_PROMETHEUS_OWN = {"ALERTS"}
_OF_SCRAPES = frozenset({"job", "instance"})
EXPRESSIONS = {
    **{f"{one.name} {one.fault}": one.expression for one in ALERTS},
    **{one.name: one.expression for one in RECORDINGS},
    **{
        f"{board.name}: {panel.title} {place}": query.expression
        for board in DASHBOARDS
        for panel in board.panels()
        for place, query in enumerate(panel.queries)
    },
    **{f"{board.name}: ${one.name}": one.metric for board in DASHBOARDS for one in board.variables},
}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_metric_is_one_of_the_exporter_and_has_the_labels(where: str) -> None:
    read = [(name, labels) for name, labels in selectors_of(EXPRESSIONS[where]) if not name.startswith("DCGM_")]
    assert read
    for name, labels in read:
        if name in _PROMETHEUS_OWN:
            continue
        assert name in KNOWN, name
        has = KNOWN[name]
        assert has is None or labels <= has | _OF_SCRAPES, f"{name} has {sorted(has)}"


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_label_of_a_grouping_is_one_of_some_metric(where: str) -> None:
    names = {name for name, _labels in selectors_of(EXPRESSIONS[where])}
    has = frozenset[str]().union(*(KNOWN.get(name) or {"host", "tenant", "profile"} for name in names))
    assert grouped_labels(EXPRESSIONS[where]) <= has | _OF_SCRAPES


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: f"{one.name}-{one.fault}")
def test_every_label_of_a_summary_is_one_of_the_alert(alert: Alert) -> None:
    """The cases prove the labels of the alert; here each label of a template is in its case."""
    wanted = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    cases = [one for one in CASES if one.alert == alert.name and alert.fault in one.faults]
    assert all(wanted <= set(one.labels) for one in cases)


def test_a_series_of_a_case_is_one_of_the_exporter() -> None:
    for case in CASES:
        for series in case.series:
            for name, labels in selectors_of(series) if not series.startswith("up{") else ():
                has = KNOWN[name]
                assert has is not None and labels <= has, f"{case.text}: {series}"


def test_the_check_finds_what_is_not_there() -> None:
    assert "vgpuctl_gpu_temprature_celsius" not in KNOWN
    [(name, labels)] = selectors_of('vgpuctl_gpu_xid_total{klass="a{b}",host=~".*"}')
    assert (name, labels) == ("vgpuctl_gpu_xid_total", frozenset({"klass", "host"}))
    assert not labels <= (KNOWN[name] or frozenset())


def test_classes_of_xids_are_those_of_the_metric() -> None:
    """The agent's label `class` and the rules' matcher are one text."""
    asked = {value for one in ALERTS for value in re.findall(r'xid_total\{class="([^"]*)"', one.expression)}
    assert asked
    assert asked <= set(CLASSES)
