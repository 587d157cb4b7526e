# SPDX-License-Identifier: Apache-2.0
"""The dashboards are what Grafana imports: its classic model by a schema, with sound ids, places and queries."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vgpuctl.telemetry.dashboards import DASHBOARDS, Dashboard
from vgpuctl.telemetry.dashboards.dashboard import COLUMNS, PanelKind, Unit

SHIPPED = Path(__file__).parents[3] / "vgpuctl" / "telemetry" / "shipped" / "grafana" / "dashboards"
SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "telemetry" / "grafana-dashboard.schema.json").read_text())


@pytest.fixture(params=DASHBOARDS, ids=lambda one: one.name)
def board(request: pytest.FixtureRequest) -> Dashboard:
    """Each dashboard."""
    found: Dashboard = request.param
    return found


def _json(board: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SHIPPED / f"{board.uid}.json").read_text())
    return found


def test_the_dashboards_are_those_of_the_issue() -> None:
    assert [one.name for one in DASHBOARDS] == ["fleet", "host", "gpu", "tenant", "queue"]
    assert sorted(path.stem for path in SHIPPED.glob("*.json")) == sorted(one.uid for one in DASHBOARDS)


def test_it_follows_the_schema(board: Dashboard) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(_json(board))
    assert _json(board)["schemaVersion"] == 39
    assert len(board.uid) <= 40


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one.pop("schemaVersion"),
        lambda one: one["panels"][1].update(type="graph"),
        lambda one: one["panels"][1]["gridPos"].update(w=25),
        lambda one: one["panels"][1].update(tilte="x"),
        lambda one: one["panels"][1]["targets"][0].pop("expr"),
        lambda one: one["templating"]["list"][0].update(type="qurey"),
    ],
)
def test_the_schema_finds_damage(damage: Any) -> None:
    found = _json(DASHBOARDS[0])
    damage(found)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(found))


def test_panels_have_their_own_place(board: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    ids = []
    for panel in _json(board)["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _y in cells) < COLUMNS
        taken |= cells
        ids.append(panel["id"])
    assert len(set(ids)) == len(ids)


def test_every_panel_says_what_it_shows(board: Dashboard) -> None:
    for panel in board.panels():
        assert panel.title and panel.text.endswith((".", "?")), panel.title
        assert panel.queries, panel.title
        legends = [one.legend for one in panel.queries]
        assert len(set(legends)) == len(legends), panel.title


def test_a_variable_that_is_used_is_declared(board: Dashboard) -> None:
    text = json.dumps(_json(board))
    declared = {"datasource", *(one.name for one in board.variables)}
    for name in ("host", "gpu", "tenant"):
        assert (f"${name}" in text) == (name in declared), name
    assert "${datasource}" in text


def test_units_are_grafanas() -> None:
    assert {one.value for one in Unit} == {
        *("none", "short", "percentunit", "s", "bytes", "Bps", "watt", "celsius", "hertz", "dateTimeFromNow"),
    }
    assert {one.value for one in PanelKind} == {"stat", "timeseries", "table", "bargauge", "state-timeline"}
