# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: no errors, nothing from elsewhere, keyboards, phones, darkness, hostile names."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.chromium_fixture import Chromium, Page, browser
from tests.stored_fleet import AT, StoredFleet, fill, keep_history, open_stored, readings_of
from tests.unit.fleet_factory import vm
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.errors import HostUnreachable
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.usecases.observed.fleet_reader import HostSnapshot
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import PAGES, make_application
from vgpuctl.web.server import serving

__all__ = ["browser"]

HOSTS = ("gpu1", "gpu2", "gpu3")
TOKEN = b"0123456789abcdef0123456789abcdef"
EVIL = """"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}\u202e\u0007&lt;/title>"""
EVIL_LINK = """javascript:alert(3)?#"' onerror=alert(4) &amp;"""
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@dataclass(frozen=True)
class Served:
    """Pages that are served. paths: one of every kind."""

    url: str
    fleet: StoredFleet
    paths: tuple[str, ...]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three hosts with 18 VMs, among them broken, pending, foreign and quarantined things."""
    home: Path = tmp_path_factory.mktemp("store")
    with open_stored(home, HOSTS) as services:
        fleet = fill(services, HOSTS, cards=4, shares=18)
        with services.store.transaction() as session:
            session.restrict("gpu2", "0000:41:00.0", RestrictionKind.QUARANTINE, "row remap failed", finding="x")
            waiting = replace(vm("A40-48Q", name="waits"), tenant="acme")
            session.join_queue(QueueKind.CREATE, waiting, "no GPU is free")
        keep_history(home / "history", fleet, hosts=3)
        sources = PageSources(services, PastSource(home / "history"), lambda: readings_of(fleet))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        lease = fleet.leases[0]
        host = f"/hosts/{lease.host}"
        own = (host, f"{host}/gpus/{lease.share.gpu}", "/hosts/gpu3/gpus/0000:41:00.0")
        of_tenant = (f"/tenants/{lease.tenant}/vms/{lease.vm_name}", f"/tenants/{lease.tenant}", "/tenants", "/vms")
        rest = ("/queue", "/capacity?gpu=A40-8Q", "/events", "/states", "/states/lease_state", "/search?q=vm", "/none")
        with serving(make_application(sources, access), "127.0.0.1", 0, takes=PAGES) as port:
            yield Served(f"http://127.0.0.1:{port}", fleet, ("/", *own, *of_tenant, *rest))


def _complaints(page: Page, path: str) -> list[str]:
    """Complaints of the browser, without the status of a page that does not exist."""
    return [one for one in page.problems() if path != "/none" or "404" not in one]


def test_every_page_loads_without_complaints_and_from_here_alone(browser: Chromium, served: Served) -> None:
    with browser.page() as page:
        for path in served.paths:
            page.open(served.url + path)
            assert _complaints(page, path) == [], path
        assert [one for one in page.asked() if not one.startswith(served.url)] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_the_contrast_of_level_aa(browser: Chromium, served: Served, *, dark: bool) -> None:
    with browser.page(dark=dark) as page:
        grounds = set()
        for path in served.paths:
            page.open(served.url + path)
            assert page.run(CONTRAST) == [], path
            grounds.add(page.run("getComputedStyle(document.body).backgroundColor"))
        (ground,) = grounds
        assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark


def test_on_a_phone_no_page_is_wider_than_the_screen(browser: Chromium, served: Served) -> None:
    with browser.page(width=360, height=740) as page:
        for path in served.paths:
            page.open(served.url + path)
            wide = page.run("document.documentElement.scrollWidth")
            outside = page.run(
                "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, svg, .unseen')"
                " && one.getBoundingClientRect().right > 361).map((one) => one.outerHTML.slice(0, 80))"
            )
            assert (wide, outside) == (360, []), path
        page.open(f"{served.url}/vms")
        cells = (
            "[...document.querySelectorAll('.stacked td:not(:empty)')].map((one) => one.getBoundingClientRect().right)"
        )
        edges = page.run(cells)
        assert len(edges) >= 18 * 6 and max(edges) <= 360, "a VM must be read without scrolling to the side"


def test_a_keyboard_gets_to_the_content_and_to_each_gpu(browser: Chromium, served: Served) -> None:
    with browser.page() as page:
        page.open(f"{served.url}/")
        page.tab()
        assert page.run("document.activeElement.className") == "skip"
        assert page.run("document.activeElement.getBoundingClientRect().top >= 0"), "the skip link is not seen"
        page.press("Enter", 13, text="\r")
        assert page.run("document.activeElement.id") == "content"
        reached = []
        for _ in range(40):
            page.tab()
            reached.append(page.run("document.activeElement.getAttribute('href')"))
            style = "getComputedStyle(document.activeElement)"
            outline = page.run(f"[{style}.outlineStyle, parseFloat({style}.outlineWidth)]")
            assert outline[0] != "none" and outline[1] >= 2, f"{reached}"
            if reached[-1] == "/hosts/gpu2/gpus/0000:21:00.0":
                break
        assert "/hosts/gpu1/gpus/0000:11:00.0" in reached and reached[-1] == "/hosts/gpu2/gpus/0000:21:00.0"
        page.follow()
        assert page.run("document.querySelector('h1').textContent").startswith("GPU 0000:21:00.0")


def test_pages_work_without_javascript(browser: Chromium, served: Served) -> None:
    with browser.page(script=False) as page:
        page.open(f"{served.url}/search?q=gpu1-vm0")
        assert _complaints(page, "/") == []
        root = page.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
        found = page.call("DOM.querySelectorAll", nodeId=root, selector="tbody a[href*='/vms/']")["nodeIds"]
        assert found
        assert not page.call("DOM.querySelectorAll", nodeId=root, selector="button.refresh")["nodeIds"]


def test_a_page_brings_itself_up_to_date_and_keeps_the_focus(browser: Chromium, served: Served) -> None:
    with browser.page() as page:
        # The interval of the page's own script is made short; nothing else of it is changed.
        page.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source="const slow = window.setInterval; window.setInterval = (what) => slow(what, 100);",
        )
        page.open(f"{served.url}/")
        page.run("document.querySelector('.hosts section:nth-of-type(2) h2 a').focus()")
        with served.fleet.services.store.transaction() as session:
            session.restrict("gpu1", "0000:11:00.0", RestrictionKind.CORDON, "a new reason")
        _until(page, "document.querySelector('main').textContent.includes('a new reason')")
        assert page.run("document.activeElement.getAttribute('href')") == "/hosts/gpu2"
        page.run("document.querySelector('button.refresh').click()")
        assert page.run("document.querySelector('button.refresh').getAttribute('aria-pressed')") == "false"
        assert _complaints(page, "/") == []


def _until(page: Page, expression: str) -> None:
    end = time.monotonic() + 60
    while not page.run(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.1)


def test_a_login_in_the_browser(browser: Chromium, served: Served) -> None:
    sources = PageSources(served.fleet.services, PastSource(Path("/nowhere/history")))
    access = PageAccess(TOKEN, has_tls=False, is_loopback=True, clock=time.time)
    with serving(make_application(sources, access), "127.0.0.1", 0, takes=PAGES) as port, browser.page() as page:
        page.open(f"http://127.0.0.1:{port}/queue")
        assert page.run("location.pathname") == "/login"
        page.type("not this one, which is long")
        assert page.run("document.activeElement.id") == "token"
        page.follow()
        assert "not the token" in page.run("document.querySelector('[role=alert]').textContent")
        page.type(TOKEN.decode())
        page.follow()
        assert page.run("location.pathname") == "/queue"
        assert page.run("document.cookie") == "", "a script can read the login"
        page.run("document.querySelector('.logout button').focus()")
        page.follow()
        assert page.run("location.pathname") == "/login"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store, readings and a history in which every name is an attack."""
    home: Path = tmp_path_factory.mktemp("hostile")
    with ExitStack() as opened:
        services = opened.enter_context(open_stored(home, ("gpu1",)))
        fleet = fill(services, ("gpu1",), cards=2, shares=2)
        lease = fleet.leases[0]
        with services.store.transaction() as session:
            facts = session.all_facts()["gpu1"].facts
            gpus = tuple(replace(one, name=EVIL, problems=(EVIL,), driver=EVIL, uuid=EVIL) for one in facts.gpus)
            evil = replace(facts, gpus=gpus, hostname=EVIL, kernel=EVIL, operating_system=EVIL, libvirt_version=EVIL)
            session.save_facts("gpu1", evil, at=AT)
            session.restrict("gpu1", lease.share.gpu, RestrictionKind.QUARANTINE, EVIL, finding=EVIL)
            session.set_lease_state(lease.id, lease.state, EVIL)
            session.add_tenant(EVIL)
            session.add_tenant(EVIL_LINK)
            session.join_queue(QueueKind.CREATE, replace(vm("A40-8Q", name=EVIL), tenant=EVIL), EVIL)
            session.add_event(EventKind.VM_STARTED, EVIL, EVIL, tenant=EVIL, host=EVIL, before={EVIL: EVIL})
        snapshot = readings_of(fleet)["gpu1"]
        assert snapshot.readings is not None
        bad = Measured(((EVIL, (EVIL,), 1.0), ("utilization_ratio", (), float("nan"))), ((EVIL, EVIL, EVIL),))
        read = replace(
            snapshot.readings,
            measured=bad,
            gpus=tuple(replace(one, model=EVIL, measured=bad) for one in snapshot.readings.gpus),
            vgpus=tuple(replace(one, profile=EVIL, measured=bad) for one in snapshot.readings.vgpus),
        )
        with History(home / "history") as history:
            of = Subject("vgpu", "gpu1", EVIL, lease.share.gpu, EVIL, EVIL, EVIL)
            other = replace(of, vm=EVIL * 2)
            values = [MeasuredValue(one, "share_utilization_ratio", 0.5) for one in (of, other)]
            for back in (300, 240, 60):
                history.add(AT - back, values)
        snapshots = {"gpu1": HostSnapshot("gpu1", read, AT, error=HostUnreachable(EVIL))}
        sources = PageSources(services, PastSource(home / "history"), lambda: snapshots)
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        gpu = f"/hosts/gpu1/gpus/{lease.share.gpu}"
        vm_page = f"/tenants/{lease.tenant}/vms/{lease.vm_name}"
        states = ("/states", "/states/lease_state", "/states/gpu_restriction")
        rest = ("/tenants", "/vms", "/queue", "/events", "/capacity", "/search?q=script")
        paths = ("/", "/hosts/gpu1", gpu, vm_page, *states, *rest)
        port = opened.enter_context(serving(make_application(sources, access), "127.0.0.1", 0, takes=PAGES))
        yield Served(f"http://127.0.0.1:{port}", fleet, paths)


def test_hostile_names_are_shown_and_never_run(browser: Chromium, hostile: Served) -> None:
    with browser.page() as page:
        seen = 0
        for path in hostile.paths:
            page.open(hostile.url + path)
            assert page.problems() == [], path
            text = page.run("document.documentElement.textContent")
            seen += "<script>alert(1)</script>" in text
            assert "49" not in page.run("[...document.querySelectorAll('td')].map((one) => one.textContent)"), path
            assert "\u202e" not in text and "\u0007" not in text, path
            assert page.run("document.querySelectorAll('img, main script').length") == 0, path
        assert seen >= 9, "the attacks were not on the pages"
        assert page.dialogs() == 0
        assert [one for one in page.asked() if not one.startswith(hostile.url)] == []


def test_the_page_of_a_hostile_tenant_is_found_by_its_link(browser: Chromium, hostile: Served) -> None:
    with browser.page(width=360) as page:
        page.open(f"{hostile.url}/tenants")
        page.run(
            "[...document.querySelectorAll('tbody a')].find((one) => one.textContent.startsWith('javascript:')).focus()"
        )
        page.follow()
        assert page.run("document.querySelector('h1').textContent") == f"Tenant {EVIL_LINK}"
        assert page.run("document.documentElement.scrollWidth") == 360
        assert page.problems() == [] and page.dialogs() == 0
