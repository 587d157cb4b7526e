# SPDX-License-Identifier: Apache-2.0
"""The report as HTML: whole in itself, without script, and with every name escaped."""

from dataclasses import replace
from typing import Any

import pytest
from lxml import html

from vgpuctl.quota.incidents import Incident
from vgpuctl.quota.report import DayUse, MonthUse, QueueWait
from vgpuctl.quota.usage import UsageLine
from vgpuctl.usecases.tenant.report import DayPromise, MeasuredUse, Report, StateCount, TenantReport
from vgpuctl.web.report_page import render_report

BEGIN = 1_790_812_800.0
DAY = 86_400.0
HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\x1b[2J"


def a_report(name: str = "acme", **changes: Any) -> Report:
    days = tuple(DayUse(BEGIN + day * DAY, profile, 4.0, 24.0) for day in range(3) for profile in (name, "T4-4Q"))
    tenant = TenantReport(
        name,
        (UsageLine(name, name, 2, 1, 72.0, 576.0, 0.0, 12.0),),
        259_200,
        days,
        (MeasuredUse(name, 36.0, 0.5, 0.42, 1.7, 0.07, 2.0 * 2**30, 6.0 * 2**30),),
        tuple(DayPromise(BEGIN + day * DAY, 0.5 + day, 24.0) for day in range(3)),
        (QueueWait(name, BEGIN, None, 90.0, name), QueueWait("b", BEGIN, BEGIN + 60, 60.0, "")),
        (Incident(BEGIN, "host-observed", "host outage", name, name, (name,), 30.0, name),),
        (StateCount("Lease", name, "The VM holds the device.", 3),),
    )
    return Report(BEGIN, BEGIN + 3 * DAY, BEGIN + 3 * DAY, (tenant, TenantReport("idle", (), 0)), **changes)


def test_the_page_needs_nothing_else_and_has_no_script() -> None:
    text = render_report(a_report())
    page = html.fromstring(text.encode())
    assert page.xpath("//script") == [] and page.xpath("//link | //img | //iframe | //object | //form") == []
    assert page.xpath("//@src | //@href | //@*[starts-with(name(), 'on')] | //@style") == []
    assert "default-src 'none'" in page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    assert "url(" not in text and "@import" not in text and "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_figures_and_plots_are_there() -> None:
    page = html.fromstring(render_report(a_report()).encode())
    cells = [" ".join(cell.text_content() for cell in row) for row in page.xpath("//tbody/tr")]
    assert "acme 12.00 72.00 2 1" in cells and "idle 0.00 0.00 0 0" in cells
    assert "acme 2 1 72.00 12.00 576.00 0.00" in cells
    assert "acme 42 % 170 % 7 % 2.0 6.0 50 % of the time" in cells
    hours, promise = page.xpath("//svg")
    assert len(hours.xpath(".//rect")) == 6 and len(promise.xpath(".//rect")) == 3
    assert hours.xpath(".//rect/title")[0].text.startswith("2026-10-01 T4-4Q: 4.00 GPU-hours")
    heights = [float(one) for one in promise.xpath(".//rect/@height")]
    assert heights == [pytest.approx(30), pytest.approx(90), pytest.approx(150)]
    assert promise.xpath(".//line[@class='promise']/@y1") == ["90.0"]
    for bar in page.xpath("//rect"):
        assert float(bar.get("y")) >= 0 and float(bar.get("y")) + float(bar.get("height")) <= 150.05
        assert float(bar.get("x")) >= 0 and float(bar.get("x")) + float(bar.get("width")) <= 640.05


def test_a_day_of_use_without_readings_says_so() -> None:
    report = a_report()
    tenant = report.tenants[0]
    unread = MeasuredUse("T4-4Q", 0.0, 0.0, None, None, None, None, None)
    changed = replace(tenant, measured=(unread,), promises=tenant.promises[1:])
    page = html.fromstring(render_report(replace(report, tenants=(changed,))).encode())
    assert [one.text for one in page.xpath("//rect[@class='gap']/title")] == ["2026-10-01: no readings"]
    assert [cell.text for cell in page.xpath("//tr[td='T4-4Q']/td")] == ["T4-4Q", *["–"] * 5, "no readings"]


def test_months_are_drawn_where_there_are_several() -> None:
    report = a_report()

    def titles(*hours: float) -> list[str]:
        months = tuple(MonthUse(BEGIN - 31 * DAY * back, used, used) for back, used in enumerate(hours))
        tenant = replace(report.tenants[0], days=(), promises=(), months=months[::-1])
        page = html.fromstring(render_report(replace(report, tenants=(tenant,))).encode())
        return [str(one) for one in page.xpath("//rect[contains(@class, 'bar')]/title/text()")]

    assert titles(12.0) == []
    assert titles(12.0, 4.0) == [
        "2026-08: 4.00 GPU-hours, 4.00 share-hours",
        "2026-10: 12.00 GPU-hours, 12.00 share-hours",
    ]


def test_hostile_names_are_text() -> None:
    text = render_report(a_report(HOSTILE, past_problem=HOSTILE))
    page = html.fromstring(text.encode())
    assert page.xpath("//script") == [] and "49" not in page.xpath("//h2")[0].text
    assert page.xpath("//h2")[0].text == "<script>alert(1)</script>\"'&{{7*7}}\\u202e\\x1b[2J"
    assert "\u202e" not in text and "\x1b" not in text
    assert page.xpath("//p[@class='warn']")[0].text.startswith("No use was measured: <script>")


def test_a_report_without_anything_is_a_page() -> None:
    page = html.fromstring(render_report(Report(BEGIN, BEGIN, BEGIN, ())).encode())
    assert page.xpath("//h1")[0].text == "GPU report" and page.xpath("//section") == []
