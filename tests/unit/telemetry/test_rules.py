# SPDX-License-Identifier: Apache-2.0
"""The shipped rules: promtool accepts and tests them, each alert has its cases, and known mistakes are not in them."""

import re
from pathlib import Path

import pytest

from tests.prometheus_fixture import promtool
from vgpuctl.model.faults import FAULTS, FaultId
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode
from vgpuctl.sharing.health import finding
from vgpuctl.telemetry.alert_cases import CASES
from vgpuctl.telemetry.alerts import ALERTS, Alert, AlertSeverity
from vgpuctl.telemetry.recordings import RECORDINGS

SHIPPED = Path(__file__).parents[3] / "vgpuctl" / "telemetry" / "shipped"
RULE_FILES = sorted(path.name for path in (SHIPPED / "rules").glob("*.yml"))
TEST_FILES = sorted(path.name for path in (SHIPPED / "rule-tests").glob("*.yml"))


def test_promtool_accepts_every_rule() -> None:
    code, said = promtool("check", "rules", *RULE_FILES, folder=SHIPPED / "rules")
    assert code == 0, said
    assert sum(map(int, re.findall(r"(\d+) rules found", said))) == len(ALERTS) + len(RECORDINGS)


_SLOW = pytest.mark.long(
    "tests/unit/telemetry/test_rules.py::test_the_rules_fire_and_clear_as_their_cases_say",
    "tests/integration/prometheus/test_alerts.py::test_an_alert_fires_and_is_sent",
    "tests/integration/prometheus/test_alerts.py::test_an_alert_ends_and_that_is_sent",
)
_SLOW_FILES = ("vgpuctl-gpus.test.yml", "vgpuctl-shares.test.yml")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_SLOW if name in _SLOW_FILES else ()) for name in TEST_FILES]
)
def test_the_rules_fire_and_clear_as_their_cases_say(name: str) -> None:
    code, said = promtool("test", "rules", name, folder=SHIPPED / "rule-tests")
    assert code == 0, said


def test_promtool_fails_a_case_that_is_wrong(tmp_path: Path) -> None:
    for folder in ("rules", "rule-tests"):
        (tmp_path / folder).mkdir()
        for path in (SHIPPED / folder).glob("vgpuctl-[rm]*.yml"):
            (tmp_path / folder / path.name).write_text(path.read_text())
    test = tmp_path / "rule-tests" / "vgpuctl-monitoring.test.yml"
    test.write_text(test.read_text().replace("_x20 1x19", "1x39"))
    code, said = promtool("test", "rules", test.name, folder=test.parent)
    assert code == 1, said


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: f"{one.name}-{one.fault}")
def test_every_alert_fires_clears_and_waits_in_some_case(alert: Alert) -> None:
    cases = [one for one in CASES if one.alert == alert.name and alert.fault in one.faults]
    assert cases
    for one in cases:
        assert min(one.silent_at) < min(one.fires_at), one.text
        assert max(one.silent_at) > max(one.fires_at), one.text


def test_the_absence_of_every_series_is_an_alert() -> None:
    case = next(one for one in CASES if all(values.startswith("_x") for values in one.series.values()))
    assert case.faults == (FaultId.EXPORTER_BLIND,)
    assert case.fires_at


def test_every_fault_has_an_alert_with_its_id() -> None:
    """All but Xids that need no action."""
    assert {one.fault for one in ALERTS} == set(FAULTS) - {HealthCode.XID_IGNORE}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: f"{one.name}-{one.fault}")
def test_alert_and_finding_of_a_fault_have_one_remedy(alert: Alert) -> None:
    assert alert.told.remedy == FAULTS[alert.fault].remedy
    if isinstance(alert.fault, HealthCode):
        assert finding(alert.fault, "0000:41:00.0", "").remedy == alert.told.remedy


def test_names_are_those_of_vgpuctl_and_rules_are_distinct() -> None:
    assert [one.name for one in ALERTS if not re.fullmatch(r"Vgpuctl[A-Z][A-Za-z0-9]+", one.name)] == []
    assert len({(one.name, one.fault) for one in ALERTS}) == len(ALERTS)
    assert len({one.expression for one in ALERTS}) == len(ALERTS)
    assert [one.name for one in RECORDINGS if not re.fullmatch(r"[a-z]+:vgpuctl_\w+:[a-z]+", one.name)] == []


# Mistakes of rules that are in use for dcgm-exporter (telemetry reference 9).
def test_what_a_tenants_program_does_pages_nobody() -> None:
    tolerated = {one.fault: one.severity for one in ALERTS if one.fault in DEFAULT_HEALTH_POLICY.tolerate}
    assert tolerated[HealthCode.XID_RESTART_APP] is AlertSeverity.INFO
    assert AlertSeverity.CRITICAL not in tolerated.values()


def test_no_xid_or_error_count_is_compared_as_a_state() -> None:
    """The sticky last code, and a count since the driver's start, would never clear."""
    for one in ALERTS:
        for counter in re.findall(r"\b\w+_total\b", one.expression):
            assert re.search(rf"increase\({counter}", one.expression), one.name


def test_no_temperature_is_compared_with_a_number() -> None:
    hot = [one for one in ALERTS if "temperature" in one.expression]
    assert hot
    assert all("slowdown_temperature" in one.expression for one in hot)


def test_the_framebuffer_of_a_whole_gpu_is_no_alert() -> None:
    assert [one.name for one in ALERTS if "vgpuctl_gpu_framebuffer" in one.expression] == []


def test_a_card_that_idles_is_no_alert() -> None:
    assert [one.name for one in ALERTS if re.search(r"vgpuctl_gpu_utilization_ratio\S* *<", one.expression)] == []
