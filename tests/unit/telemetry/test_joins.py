# SPDX-License-Identifier: Apache-2.0
"""Joins with dcgm-exporter that the docs and the panel make, in the shipped words, evaluated by promtool."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.prometheus_fixture import promtool
from vgpuctl.telemetry.dashboards import DASHBOARDS

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
CARD = 'host="gpu1",gpu="0000:41:00.0"'
SECOND = 'host="gpu1",gpu="0000:81:00.0"'


def _of_the_page() -> str:
    (found,) = re.findall(r"```promql\n(label_replace\(DCGM.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def _of_the_panel() -> str:
    (found,) = [
        query for board in DASHBOARDS for panel in board.panels() for query in panel.queries if query.is_optional
    ]
    return found.expression.replace("$host", ".*").replace("$gpu", ".*")


def _dcgm(expression: str) -> str:
    return str(re.findall(r"DCGM_\w+", expression)[0])


@pytest.mark.parametrize("expression", [_of_the_page(), _of_the_panel()], ids=["page", "panel"])
@pytest.mark.parametrize(
    "cards",
    [
        {f'{{{CARD},uuid="GPU-1"}}': 1},
        {f'{{{CARD},uuid="GPU-1"}}': 1, f'{{{SECOND},uuid=""}}': 1, '{host="gpu2",gpu="0000:01:00.0",uuid=""}': 1},
        {f'{{{CARD},uuid="GPU-1",instance="a:1"}}': 1, f'{{{CARD},uuid="GPU-1",instance="b:1"}}': 1},
        {f'{{{CARD},uuid="GPU-1"}}': 1, f'{{{SECOND},uuid="GPU-2"}}': 1},
    ],
    ids=["one card", "cards without UUID", "two controllers", "two cards"],
)
def test_each_measure_has_the_host_and_the_card(expression: str, cards: Mapping[str, int], tmp_path: Path) -> None:
    """Two MIG instances of one card among them."""
    measures = {
        '{UUID="GPU-1",gpu="0",GPU_I_ID="1"}': 42,
        '{UUID="GPU-1",gpu="0",GPU_I_ID="2"}': 43,
        '{UUID="GPU-9"}': 9,
    }
    series = {f"vgpuctl_gpu_info{labels}": value for labels, value in cards.items()}
    series |= {f"{_dcgm(expression)}{labels}": value for labels, value in measures.items()}
    expected = [
        {"labels": f'{{{CARD},uuid="GPU-1",UUID="GPU-1",GPU_I_ID="{instance}"}}', "value": value}
        for instance, value in (("1", 42), ("2", 43))
    ]
    test = {
        "input_series": [{"series": name, "values": f"{value}x1"} for name, value in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": "1m", "exp_samples": expected}],
    }
    (tmp_path / "joins.yml").write_text(json.dumps({"rule_files": [], "tests": [test]}))
    code, said = promtool("test", "rules", "joins.yml", folder=tmp_path)
    assert code == 0, said
