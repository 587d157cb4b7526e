# SPDX-License-Identifier: Apache-2.0
"""Every query of every panel and variable returns data from a real Prometheus."""

import re

import pytest

from tests.integration.prometheus.scene import Scene
from tests.prometheus_fixture import wait_for
from tests.unit.telemetry.metric_names import selectors_of
from vgpuctl.telemetry.alerts import ALERTS
from vgpuctl.telemetry.dashboards import DASHBOARDS, Dashboard
from vgpuctl.telemetry.recordings import RECORDINGS

_VALUES = {"$host": ".*", "$gpu": ".*", "$tenant": ".*", "$__rate_interval": "5s", "[1h]": "[5s]"}


def _as_grafana_sends(expression: str) -> str:
    """With values in place of Grafana's variables, and with ranges as long as the test."""
    for name, value in _VALUES.items():
        expression = expression.replace(name, value)
    assert not re.search(r"\$[a-z_]", expression), expression
    return expression


def _queries(board: Dashboard) -> dict[str, str]:
    return {
        f"{panel.title}/{place}": _as_grafana_sends(query.expression)
        for panel in board.panels()
        for place, query in enumerate(panel.queries)
        if not query.is_optional
    }


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda one: one.name)
def test_every_query_returns_data(scene: Scene, board: Dashboard) -> None:
    left = _queries(board)
    assert left

    def all_there() -> bool:
        for where, expression in list(left.items()):
            if scene.prometheus.query(expression):
                del left[where]
        return not left

    try:
        wait_for(all_there, f"data of dashboard {board.name}", 20)
    except AssertionError as error:
        raise AssertionError("\n".join(f"{where}: {one}" for where, one in left.items())) from error


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda one: one.name)
def test_every_variable_has_values(scene: Scene, board: Dashboard) -> None:
    for one in board.variables:
        metric = _as_grafana_sends(one.metric)
        assert re.fullmatch(r"label_values\(.*, \w+\)", one.query)
        assert scene.prometheus.get(f"label/{one.name}/values", **{"match[]": metric}), one.name


def test_every_recording_rule_has_data(scene: Scene) -> None:
    wait_for(lambda: all(scene.prometheus.query(one.name) for one in RECORDINGS), "data of every recording rule", 20)


def test_the_optional_queries_are_sound(scene: Scene) -> None:
    optional = [
        query for board in DASHBOARDS for panel in board.panels() for query in panel.queries if query.is_optional
    ]
    assert len(optional) == 1
    assert scene.prometheus.query(_as_grafana_sends(optional[0].expression)) == []


_NOT_HERE = {
    "vgpuctl_gpu_contention_ratio": "needs eight minutes of history: tests/e2e/telemetry/test_advise.py",
    "vgpuctl_vgpu_framebuffer_exhaustion_seconds": "needs six minutes of history: tests/e2e/telemetry/test_advise.py",
    "vgpuctl_exhaustion_seconds": "nothing is used up: tests/e2e/telemetry/test_advise.py",
    "vgpuctl_host_layout_differences": "a running controller compares: tests/e2e/operate/test_watched_layout.py",
    "vgpuctl_promise_broken": "nothing that was promised is broken: tests/e2e/vm/test_promises.py",
    "vgpuctl_certificate_expiry_timestamp_seconds": "the exporter serves without TLS: test_exporter_tls.py",
}


def test_every_metric_of_an_alert_is_exported(scene: Scene) -> None:
    """But for those that need what this fleet has not: a name and a reason each."""
    wanted = {name for one in ALERTS for name, _labels in selectors_of(one.expression)}
    assert set(_NOT_HERE) < wanted
    expected = wanted - set(_NOT_HERE)
    wait_for(lambda: all(scene.prometheus.query(name) for name in expected), f"all of {sorted(expected)}", 20)
    assert [name for name in _NOT_HERE if scene.prometheus.query(name)] == []
