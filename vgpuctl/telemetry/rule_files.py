# SPDX-License-Identifier: Apache-2.0
"""The content of the shipped rule files and of their tests for promtool, from the tables of alerts and cases."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vgpuctl.telemetry.alert_case import AlertCase
from vgpuctl.telemetry.alert_cases import CASES
from vgpuctl.telemetry.alerts import ALERTS, Alert
from vgpuctl.telemetry.recordings import RECORDINGS

RUNBOOK = "docs/monitoring.md"
"""The page of the runbooks. export monitoring can put another address in its place."""
_ACTION = re.compile(r"\{\{ *\$(labels\.(?P<label>\w+)|value)[^}]*\}\}")
_PREFIX = "vgpuctl"


def rules() -> Mapping[str, Any]:
    """Every rule file, by its name below rules/."""
    groups = dict.fromkeys(one.group for one in ALERTS)
    files = {f"{_PREFIX}-{group}.yml": _alert_file(group) for group in groups}
    recording = {"name": f"{_PREFIX}-recordings", "rules": [_recording(one.name, one.expression) for one in RECORDINGS]}
    return {f"{_PREFIX}-recordings.yml": {"groups": [recording]}, **files}


def rule_tests() -> Mapping[str, Any]:
    """Every test file for `promtool test rules`, by its name below rule-tests/."""
    groups = dict.fromkeys(one.group for one in ALERTS)
    return {f"{_PREFIX}-{group}.test.yml": _test_file(group) for group in groups}


def annotations_of(alert: Alert) -> dict[str, str]:
    """Summary, meaning, remedy and runbook of an alert."""
    return {
        "summary": alert.summary,
        "description": alert.told.meaning,
        "remedy": alert.told.remedy,
        "runbook_url": f"{RUNBOOK}#{alert.fault}",
    }


def _alert_file(group: str) -> Mapping[str, Any]:
    return {"groups": [{"name": f"{_PREFIX}-{group}", "rules": [_rule(one) for one in ALERTS if one.group == group]}]}


def _rule(alert: Alert) -> Mapping[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        **({"keep_firing_for": alert.keeps} if alert.keeps else {}),
        "labels": {"severity": str(alert.severity), "id": str(alert.fault)},
        "annotations": annotations_of(alert),
    }


def _recording(name: str, expression: str) -> Mapping[str, str]:
    return {"record": name, "expr": expression}


def _test_file(group: str) -> Mapping[str, Any]:
    """The cases of a group. All rules are loaded, since alerts read recording rules."""
    names = {one.name for one in ALERTS if one.group == group}
    return {
        "rule_files": [f"../rules/{name}" for name in (f"{_PREFIX}-recordings.yml", f"{_PREFIX}-{group}.yml")],
        "evaluation_interval": "1m",
        "tests": [_test(one) for one in CASES if one.alert in names],
    }


def _test(case: AlertCase) -> Mapping[str, Any]:
    fired = [alert for alert in ALERTS if alert.name == case.alert and alert.fault in case.faults]
    return {
        "name": case.text,
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            *(_at(minute, case.alert, ()) for minute in case.silent_at),
            *(_at(minute, case.alert, [_expected(one, case) for one in fired]) for minute in case.fires_at),
        ],
    }


def _at(minute: int, alert: str, expected: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": list(expected)}


def _expected(alert: Alert, case: AlertCase) -> Mapping[str, Any]:
    labels = {**case.labels, "severity": str(alert.severity), "id": str(alert.fault)}
    texts = {name: _expanded(text, case) for name, text in annotations_of(alert).items()}
    return {"exp_labels": labels, "exp_annotations": texts}


def _expanded(template: str, case: AlertCase) -> str:
    """A template as Prometheus expands it for the case."""
    return _ACTION.sub(lambda found: case.labels[found["label"]] if found["label"] else case.value, template)
