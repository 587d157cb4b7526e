# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: one sheet of A4 a tenant, whole on a phone, readable in both schemes."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chromium_fixture import Chromium, Page, browser
from vgpuctl.quota.incidents import Incident
from vgpuctl.quota.report import DAY_S, DayUse, MonthUse, QueueWait
from vgpuctl.quota.usage import UsageLine
from vgpuctl.usecases.tenant.report import DayPromise, MeasuredUse, Report, StateCount, TenantReport
from vgpuctl.web.report_page import render_report

__all__ = ["browser"]

BEGIN = 1_790_812_800.0
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
EFFECT = "nobody could reach the VM's host; no restart of it was seen"
PROBLEM = "no connection to 192.0.2.17 port 22: timed out after 10 s; the last answer came over the jump host " * 3


def tenant_of(name: str, vms: int, *, days: int = 31, profiles: int = 1, months: int = 1) -> TenantReport:
    """A tenant whose VMs were used, waited and failed in every way, each on each day."""
    if not vms:
        return TenantReport(name, (), 0)
    names = tuple(f"worker-of-the-night-{number}" for number in range(vms))
    sizes = [f"RTX-PRO-6000-{number}-24Q" for number in range(profiles)]
    at = [BEGIN + day * DAY_S for day in range(days)]
    return TenantReport(
        name,
        tuple(UsageLine(name, size, vms, vms, 744.0 * vms, 9e5, 0.0, 120.0 * vms) for size in sizes),
        1,
        tuple(DayUse(day, size, 4.0, 24.0) for day in at for size in sizes),
        tuple(MeasuredUse(size, 36.0, 0.5, 0.42, 1.7, 0.07, 2.0 * 2**30, 6.0 * 2**30) for size in sizes),
        tuple(DayPromise(day, 0.5, 24.0) for day in at[::2]),
        tuple(QueueWait(f"{name}/{one}", BEGIN, BEGIN + 90, 90.0, f"no GPU is free: {PROBLEM}") for one in names),
        tuple(
            Incident(BEGIN + number, "host-observed", "host outage", "gpu1.rack-17", PROBLEM, names, 1e5, EFFECT)
            for number in range(vms)
        ),
        tuple(StateCount("VM in the store", f"state-{number}", "What it means.", vms) for number in range(8)),
        tuple(MonthUse(BEGIN - 31 * DAY_S * back, 100.0 * back, 200.0) for back in range(months - 1, -1, -1)),
    )


def report_of(*tenants: TenantReport, days: int = 31) -> Report:
    return Report(BEGIN, BEGIN + days * DAY_S, BEGIN + days * DAY_S, tenants)


MONTH = report_of(
    tenant_of("idle", 0),
    tenant_of("one", 1),
    tenant_of("many", 60, profiles=9, months=12),
    replace(tenant_of("unread", 1), promises=(), measured=(MeasuredUse("T4-4Q", 0.0, 0.0, *(None,) * 5),)),
)


@pytest.fixture
def page(browser: Chromium, request: pytest.FixtureRequest) -> Iterator[Page]:
    with browser.page(**getattr(request, "param", {})) as opened:
        yield opened


def show(page: Page, folder: Path, report: Report) -> None:
    file = folder / "report.html"
    file.write_text(render_report(report), encoding="utf-8")
    page.open(file.as_uri())


def sheets(page: Page) -> int:
    """How many pages the browser prints."""
    pdf = base64.b64decode(page.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def starts(page: Page) -> list[str]:
    """The headings of the sections, each of which begins a sheet."""
    found: list[str] = page.run(
        "[...document.querySelectorAll('main > section')].map((one) => one.querySelector('h2').textContent)"
    )
    return found


@pytest.mark.parametrize("of", MONTH.tenants, ids=lambda one: one.tenant)
def test_a_tenant_is_one_sheet_and_what_does_not_fit_is_in_its_annex(
    page: Page, tmp_path: Path, of: TenantReport
) -> None:
    show(page, tmp_path, report_of(of))
    annexed = starts(page)[1:]
    assert annexed == ([f"Annex: {of.tenant}"] if of.tenant == "many" else [])
    page.run("document.querySelectorAll('[id^=annex]').forEach((one) => one.remove())")
    assert sheets(page) == 1


def test_each_tenant_begins_on_a_sheet_of_its_own_after_the_overview(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, MONTH)
    page.run("document.querySelectorAll('[id^=annex]').forEach((one) => one.remove())")
    assert sheets(page) == 1 + len(MONTH.tenants)


@pytest.mark.parametrize("page", [{"width": 390, "height": 800}], indirect=True)
def test_on_a_phone_nothing_but_tables_is_wider_than_the_screen(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, MONTH)
    assert page.run("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("page", [{"dark": False}, {"dark": True}], indirect=True, ids=["light", "dark"])
def test_every_text_has_the_contrast_of_level_aa(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, MONTH)
    assert page.run(CONTRAST) == []
    assert page.problems() == []
