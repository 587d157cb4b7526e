# SPDX-License-Identifier: Apache-2.0
"""report: reconciled with the ledger to the second, with what was measured, waits and incidents; every form of it."""

import csv
import io
import math
import sqlite3
from pathlib import Path

import pytest
from lxml import html

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from vgpuctl.telemetry.history import History, MeasuredValue, Subject

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
MONTH = "2026-02"
BEGIN, END = 1_769_904_000.0, 1_772_323_200.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def used(fleet_operator: Operator) -> Operator:
    """acme and globex used shares in February, with odd parts of seconds over both ends of the month.

    The VMs are real; the ledger's rows are then moved into that month, for a test cannot wait for one.
    """
    for tenant in ("acme", "globex", "idle"):
        fleet_operator.does("create-tenant", tenant)
    for name, tenant, gpu, host in (
        ("web-1", "acme", "A40-8Q", "sim-001"),
        ("web-2", "acme", "A40-8Q", "sim-001"),
        ("card", "acme", "passthrough", "sim-003"),
        ("db", "globex", "A40-12Q", "sim-002"),
    ):
        fleet_operator.does("create-vm", name, "--tenant", tenant, *SIZE, "--gpu", gpu, "--host", host)
    times = {
        "web-1": (BEGIN - 500.25, BEGIN + 10 * HOUR + 0.123456),
        "web-2": (BEGIN + 0.987654, END + 7.5),
        "card": (END - 86_400.333, None),
        "db": (BEGIN + 3 * 86_400 + 1 / 3, BEGIN + 9 * 86_400 + 2 / 3),
    }
    with sqlite3.connect(_store(fleet_operator)) as store:
        for (trigger,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.execute(f"DROP TRIGGER {trigger}")  # they keep the ledger from what follows
        for name, (begun, ended) in times.items():
            store.execute("UPDATE usage SET begun_at = ?, ended_at = ? WHERE vm_name = ?", (begun, ended, name))
        store.execute("UPDATE usage SET ended_at = NULL WHERE vm_name = 'card'")
    return fleet_operator


def _store(operator: Operator) -> Path:
    return Path(operator.database.removeprefix("sqlite:///"))


def test_report_show_usage_its_intervals_and_the_ledger_agree_to_the_second(used: Operator) -> None:
    report = used.json("report", "--month", MONTH)
    usage = used.json("show-usage", "--month", MONTH)
    intervals = used.json("show-usage", "--month", MONTH, "--intervals")["intervals"]
    with sqlite3.connect(_store(used)) as store:
        rows = store.execute("SELECT tenant, begun_at, ended_at, card_part FROM usage").fetchall()
    assert (report["since"], report["until"]) == (usage["since"], usage["until"]) == (BEGIN, END)
    assert [one["tenant"] for one in report["tenants"]] == ["acme", "globex", "idle"]
    assert [line for one in report["tenants"] for line in one["usage"]] == usage["usage"]
    for one in report["tenants"]:
        name = one["tenant"]
        ledger = [
            (min(END if ended is None else ended, END) - max(begun, BEGIN), part)
            for tenant, begun, ended, part in rows
            if tenant == name
        ]
        listed = [
            min(END if each["ended_at"] is None else each["ended_at"], END) - max(each["begun_at"], BEGIN)
            for each in intervals
            if each["tenant"] == name
        ]
        seconds = math.fsum(length for length, _ in ledger)
        assert math.fsum(listed) == seconds
        assert one["share_seconds"] == round(seconds)
        hours = math.fsum(line["share_hours"] for line in one["usage"])
        assert abs(hours * 3600 - seconds) < 1e-6 and round(hours * 3600) == one["share_seconds"]
        gpu_seconds = math.fsum(length * part for length, part in ledger)
        assert abs(math.fsum(line["gpu_hours"] for line in one["usage"]) * 3600 - gpu_seconds) < 1e-6
        assert abs(math.fsum(day["gpu_hours"] for day in one["days"]) * 3600 - gpu_seconds) < 1e-6
    acme = report["tenants"][0]
    assert acme["share_seconds"] == round(10 * HOUR + 0.123456 + (END - BEGIN) - 0.987654 + 86_400.333)


def test_one_tenant_is_the_same_as_among_all(used: Operator) -> None:
    every = used.json("report", "--month", MONTH)["tenants"]
    (alone,) = used.json("report", "--month", MONTH, "--tenant", "globex")["tenants"]
    assert alone == next(one for one in every if one["tenant"] == "globex")
    assert used.is_refused("report", "--tenant", "nobody")["reference"] == "not-found"


def test_csv_has_the_lines_of_show_usage(used: Operator) -> None:
    rows = list(csv.DictReader(io.StringIO(used.does("report", "--month", MONTH, "--csv").out)))
    wanted = list(csv.DictReader(io.StringIO(used.does("show-usage", "--month", MONTH, "-o", "csv").out)))
    assert [{name: row[name] for name in wanted[0]} for row in rows] == wanted
    assert {row["measured_hours"] for row in rows} == {""}


def test_the_table_fits_into_80_columns(used: Operator) -> None:
    lines = used.does("report", "--month", MONTH).out.splitlines()
    assert lines and [one for one in lines if len(one.rstrip()) > 80] == []


def test_without_past_readings_it_says_so_and_goes_on(used: Operator) -> None:
    done = used.does("report", "--month", MONTH)
    assert "no use was measured: no history of readings: " in done.err
    assert "A40-8Q" in done.out and "PROMISE" in done.out


def test_what_was_measured_has_its_coverage(used: Operator) -> None:
    """web-2 was measured for two hours of its month, at 50 % and 100 % of its promise; another tenant's is not its."""
    with History(_store(used).with_name("store.db.history")) as history:
        for minute in range(120):
            at = BEGIN + 86_400 + minute * 60
            mine = Subject("vgpu", "sim-001", "0000:41:00.5", "0000:41:00.0", "acme", "web-2", "A40-8Q")
            other = Subject("vgpu", "sim-001", "0000:41:00.6", "0000:41:00.0", "globex", "x", "A40-8Q")
            used_part = 0.5 if minute < 60 else 1.0
            history.add(at, [MeasuredValue(mine, "share_utilization_ratio", used_part)])
            history.add(at, [MeasuredValue(mine, "utilization_ratio", used_part / 6)])
            history.add(at, [MeasuredValue(mine, "framebuffer_used_bytes", float(1 << 30) * (1 + minute // 60))])
            history.add(at, [MeasuredValue(other, "share_utilization_ratio", 9.0)])
    (acme,) = used.json("report", "--month", MONTH, "--tenant", "acme")["tenants"]
    measured = {one["profile"]: one for one in acme["measured"]}
    line = measured["A40-8Q"]
    attached = next(one["share_hours"] for one in acme["usage"] if one["profile"] == "A40-8Q")
    assert line["hours"] == pytest.approx(2.0) and line["coverage"] == pytest.approx(2.0 / attached)
    assert line["promised_used"] == pytest.approx(0.75) and line["promised_peak"] == 1.0
    assert line["framebuffer_mean_bytes"] == pytest.approx(1.5 * 2**30)
    assert measured["passthrough"]["hours"] == 0 and measured["passthrough"]["promised_used"] is None
    assert [one["hours"] for one in acme["promises"]] == [pytest.approx(2.0)]


def test_waits_and_incidents_of_this_month(used: Operator, fleet: lab.LabFolder) -> None:
    used.does("create-vm", "waits", "--tenant", "globex", *SIZE, "--gpu", "A40-48Q", "--host", "sim-002", "--queue")
    used.does("quarantine-gpu", "sim-003", "0000:43:00.0", "--reason", "<b>sparks</b>")
    lab.faults.begin("sim-001", "fallen", folder=fleet)
    try:
        used.does("list-gpus", "--refresh", "--limit", "sim-001")
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    (globex, acme) = (used.json("report", "--tenant", one)["tenants"][0] for one in ("globex", "acme"))
    assert [(one["vm"], one["left_at"]) for one in globex["waits"]] == [("globex/waits", None)]
    assert globex["incidents"] == []
    (fault,) = acme["incidents"]  # the quarantine changed nothing for the VM `card`
    assert (fault["what"], fault["vms"], fault["duration_s"]) == ("GPU fault", ["web-1", "web-2"], None)
    assert fault["effect"] == "the GPU stopped working in the VM"
    assert {one["heading"] for one in acme["states"]} >= {"Lease", "VM in the store"}
    waits = list(csv.DictReader(io.StringIO(used.does("report", "--csv", "waits").out)))
    assert [(one["tenant"], one["vm"], one["left_at"]) for one in waits] == [("globex", "globex/waits", "")]
    incidents = list(csv.DictReader(io.StringIO(used.does("report", "--csv", "incidents").out)))
    assert [(one["tenant"], one["what"], one["vms"]) for one in incidents] == [("acme", "GPU fault", "web-1 web-2")]
    out = used.does("report").out
    assert "STILL WAITING" in out and "GPU fault" in out


def test_the_page_is_one_file_with_the_same_figures(used: Operator, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    used.does("report", "--html", str(file))
    page = html.fromstring(file.read_bytes())
    assert page.xpath("//h2/text()") == ["acme", "globex", "idle"] and page.xpath("//script | //link | //img") == []
    assert "the GPU stopped working in the VM" in page.xpath("//section[1]")[0].text_content()
    february = tmp_path / "february.html"
    used.does("report", "--month", MONTH, "--tenant", "acme", "--html", str(february))
    found = html.fromstring(february.read_bytes())
    (acme,) = used.json("report", "--month", MONTH, "--tenant", "acme")["tenants"]
    cells = [[cell.text_content() for cell in row] for row in found.xpath("//section[1]//table[1]/tbody/tr")]
    for line in acme["usage"]:
        assert [line["profile"], f"{line['share_hours']:,.2f}", f"{line['gpu_hours']:,.2f}"] in [
            [row[0], row[3], row[4]] for row in cells if len(row) == 7
        ]
    assert len(found.xpath("//rect[contains(@class, 'bar')]")) == sum(
        len(acme[name]) for name in ("months", "days", "promises")
    )


def test_one_form_at_a_time_and_a_place_that_can_be_written(used: Operator, tmp_path: Path) -> None:
    assert used.is_refused("report", "--csv", "usage", "--html", "x.html")["reference"] == "usage"
    for command in ("report", "show-usage"):
        for month in ("2026-13", "november", "2026-11-15"):
            refused = used.is_refused(command, "--month", month)
            assert (refused["reference"], refused["hint"]) == ("usage", "write for example 2026-11")
    assert "has not begun" in used.is_refused("report", "--month", "9999-01")["message"]
    missing = used.run("report", "--html", str(tmp_path / "no" / "r.html"))
    assert missing.code == 6 and "the report cannot be written" in missing.err
