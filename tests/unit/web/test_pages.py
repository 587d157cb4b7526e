# SPDX-License-Identifier: Apache-2.0
"""Every page, made from a store full of hosts and VMs."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from lxml import html

from tests.agent.simulated import Machine
from tests.stored_fleet import AT, StoredFleet, fill, open_stored, readings_of
from tests.stored_pages import FINDINGS, Pages, pages, paths, queries
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.health import GpuHealth, HostHealth, RemappedRows
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.natural_order import natural
from vgpuctl.model.promise import Moment, PromiseRow, Witness
from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.model.states import STATE_KINDS
from vgpuctl.usecases.observed.gpu_health import keep_health
from vgpuctl.usecases.observed.observation_record import Record, SeenGpu
from vgpuctl.usecases.observed.promise_record import note_findings
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.telemetry.event_page import EVENTS_ON_PAGE
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import make_application

__all__ = ["pages"]
_OF_PYTHON = re.compile(
    r"<[\w.]+ object|\bNone\b|\bTrue\b|\bFalse\b|\b[A-Z]\w+\([a-z_]+=|[\[({]['\"]|frozenset|\b[A-Z]\w+\.[A-Z_]{3,}"
)


def test_a_host_with_nvswitches_shows_modules_and_active_partitions(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("hgx",)) as services:
        facts = read_facts(Machine(tmp_path / "machine", "h100-sxm5/passthrough~fabric-shared*8").host)
        manager = facts.fabric_manager
        assert manager is not None
        told = tuple(replace(one, is_active=one.number == 3) for one in manager.partitions or ())
        with services.store.transaction() as session:
            session.save_facts("hgx", replace(facts, fabric_manager=replace(manager, partitions=told)), at=AT)
        sources = PageSources(services, PastSource(tmp_path / "history"))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        client = make_application(sources, access).test_client()
        pages = Pages(StoredFleet(services, ("hgx",), ()), client, sources)
        words = pages.words("/hosts/hgx")
        assert "NUMA node 0, module 1, partition 3 active for no VM" in words and "NUMA node 1, module 2." in words
        assert "NUMA node 0 pci0000:40: 41:00.0" in words
        assert "NVSwitch fabricmodule 3, partition 3 active for no VM" in pages.words("/hosts/hgx/gpus/0000:45:00.0")


def test_a_gpu_has_its_shares_what_fits_charts_and_missing_values(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    words = pages.words(f"/hosts/{lease.host}/gpus/{lease.share.gpu}")
    for part in (lease.vm_name, lease.share.device, "Still fits", "Temperature", "Power draw of the board"):
        assert part in words
    tree = html.fromstring(pages.get(f"/hosts/{lease.host}/gpus/{lease.share.gpu}"))
    said = tree.xpath("//svg[@role='img']/@aria-label")
    assert any(one.startswith("Power: value now") and " W" in one for one in said)
    # The hole of ten minutes in the history parts each line in two.
    assert len(tree.xpath("//figure[contains(., 'Power draw')]//g/polyline")) == 2


def test_mig_instances_are_drawn_over_their_slots(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/hosts/gpu3/gpus/0000:41:00.0"))
    titles = tree.xpath("//svg[@class='mig-bar']//title/text()")
    assert "MIG instance 1, 3g.20gb, slots 0 to 3" in titles and "MIG instance 2, 1g.5gb, slots 6 to 6" in titles
    assert len([one for one in titles if "without an instance" in one]) == 3


def test_a_vm_has_its_state_shares_and_what_it_used(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    words = pages.words(f"/tenants/{lease.tenant}/vms/{lease.vm_name}")
    for part in (
        "running, 30s ago",
        lease.share.profile,
        "Share utilization",
        "not-measurable: the driver has no such",
    ):
        assert part in words, words


def test_a_vm_that_waits_has_a_page(pages: Pages) -> None:
    assert "no GPU is free" in pages.words("/tenants/acme/vms/waits")
    assert "no GPU is free" in pages.words("/queue")


def test_capacity_counts_by_the_rules_of_placing_and_contacts_no_host(pages: Pages) -> None:
    words = pages.words("/capacity?gpu=A40-8Q&vcpus=1&memory=1GiB")
    assert "more fit" in words and "silent: it was never read" in words and "Free by profile" in words


@pytest.mark.parametrize(
    "options",
    [
        "display=vnc&vgpu-display=on",
        "hugepages=1GiB",
        "require-label=rack%3Dr9",
        "host=silent",
    ],
)
def test_an_option_that_no_host_can_serve_counts(pages: Pages, options: str) -> None:
    plain = "gpu=A40-8Q&vcpus=1&memory=1GiB"
    assert " 0 more fit" not in pages.words(f"/capacity?{plain}")
    words = pages.words(f"/capacity?{plain}&{options}")
    assert " 0 more fit" in words, words


def test_the_form_keeps_what_was_asked(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/capacity?gpu=A40-8Q&vgpu-display=on&display=vnc&for=2h"))
    assert tree.xpath("//select[@name='vgpu-display']/option[@selected]/text()") == ["on"]
    assert tree.xpath("//input[@name='for']/@value") == ["2h"]
    assert len(tree.xpath("//details[@open]")) == 1
    assert not html.fromstring(pages.get("/capacity?gpu=A40-8Q")).xpath("//details[@open]")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("gpu=A40-8Q&vcpus=many", "vCPUs"),
        ("gpu=A40-8Q&spare-ports=-1", "spare-ports"),
        ("gpu=A40-8Q&vgpu-display=hdmi", "vgpu-display"),
        ("gpu=A40-8Q&memory=lots", "memory"),
        ("gpu=no-such", "no-such"),
        ("gpu=A40-8Q&for=ever", "for"),
        ("gpu=A40-8Q&vcpus=²", "vCPUs"),
    ],
)
def test_a_bad_question_is_answered_in_words(pages: Pages, query: str, said: str) -> None:
    assert said in pages.get(f"/capacity?{query}", 400)


def test_events_come_in_pages_and_are_filtered(pages: Pages) -> None:
    with pages.fleet.services.store.transaction() as session:
        for number in range(2 * EVENTS_ON_PAGE):
            session.add_event(EventKind.VM_STARTED, "acme/old", f"number {number}", tenant="acme", host="gpu1")
    path, seen = "/events?kind=vm-started", []
    while path:
        tree = html.fromstring(pages.get(path))
        seen += [row.findtext("td[5]") for row in tree.xpath("//tbody/tr")]
        older = tree.xpath("//a[@rel='next']/@href")
        assert not older or "kind=vm-started" in older[0]
        path = f"/events{older[0]}" if older else ""
    assert seen == [f"number {number}" for number in reversed(range(2 * EVENTS_ON_PAGE))]
    assert "number 1" not in pages.words("/events?tenant=globex")
    assert "is no time" in pages.get("/events?since=yesterday", 400)
    assert "number 199" in pages.words("/tenants/acme/vms/old")  # of a VM that is gone, its events are left


def test_every_state_of_the_store_has_its_place(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/states"))
    for kind in STATE_KINDS:
        (section,) = tree.xpath(f"//section[@aria-labelledby='{kind.name}']")
        assert section.find("h2/a").text == kind.heading and section.find("p").text == kind.text
        shown = {"".join(row.find("th").itertext()): row.find("td[2]").text for row in section.xpath(".//tbody/tr")}
        assert shown == dict(kind.states or {})
        page = pages.words(f"/states/{kind.name}")
        assert kind.metric in page


def test_the_states_of_an_object_are_on_its_page(pages: Pages) -> None:
    """The first row of each kind leads to its object, whose page has the same kind."""
    checked = set()
    for kind in STATE_KINDS:
        tree = html.fromstring(pages.get(f"/states/{kind.name}"))
        links = tree.xpath("(//tbody/tr)[1]//a/@href")
        if kind.of in ("host", "gpu", "lease", "vm", "queue", "quota") and links:
            assert ("Quotas" if kind.of == "quota" else kind.heading) in pages.words(links[-1]), kind.name
            checked.add(kind.of)
    assert checked == {"host", "gpu", "lease", "vm", "queue", "quota"}


def test_search_finds_by_parts_of_names_addresses_and_uuids(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    for query in (lease.vm_name[-6:], lease.vm_uuid, lease.share.device):
        assert f"/vms/{lease.vm_name}" in pages.get(f"/search?q={query}"), query
    assert "/hosts/gpu2" in pages.get("/search?q=GPU2")
    assert "/tenants/wayne" in pages.get("/search?q=wayn")
    assert "Nothing has “zebra”" in pages.words("/search?q=zebra")
    assert len(pages.get(f"/search?q={'x' * 5000}")) < 20_000


@pytest.mark.parametrize(
    "path",
    ["/hosts/none", "/hosts/gpu1/gpus/0000:ff:00.0", "/tenants/none", "/tenants/acme/vms/none", "/states/none", "/x"],
)
def test_what_is_not_there_is_told(pages: Pages, path: str) -> None:
    assert "There is no such" in pages.get(path, 404)


def test_the_path_above_a_host_leads_to_the_list_of_hosts(pages: Pages) -> None:
    pages.get("/hosts", 302)
    assert pages.client.get("/hosts").location == "/"


@pytest.mark.parametrize(
    "path",
    ["/vms?from=99999999999999999999", "/vms?from=-1", "/vms?from=1e3", "/events?before=%00", "/events?before=9e99",
     "/hosts/gpu1?period=1y", "/states/lease_state?from=100000", "/states/lease_state?state=%22%3E", "/search?q=%00"],
)  # fmt: skip
def test_odd_numbers_in_an_address_do_no_harm(pages: Pages, path: str) -> None:
    assert html.fromstring(pages.get(path)).xpath("//main")


def _vms(tree: html.HtmlElement) -> list[str]:
    return [str(one) for one in tree.xpath("//tbody/tr/td[@data-label='VM']/a/text()")]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("", lambda one: True),
        ("name=GPU2-", lambda one: one.vm_name.startswith("gpu2-")),
        ("state=running", lambda one: one.state is LeaseState.RUNNING),
        ("state=broken&tenant=wayne", lambda one: one.state is LeaseState.BROKEN and one.tenant == "wayne"),
        ("profile=A40-8Q&host=gpu1", lambda one: one.share.profile == "A40-8Q" and one.host == "gpu1"),
        ("name=none", lambda one: False),
        ("profile=%22%3E", lambda one: False),
    ],
)
@pytest.mark.parametrize("sort", ["name", "-name"])
def test_vms_are_filtered_and_sorted(pages: Pages, query: str, fits: Callable[[Lease], bool], sort: str) -> None:
    wanted = sorted((one.vm_name for one in pages.fleet.leases if fits(one)), key=natural, reverse=sort == "-name")
    tree = html.fromstring(pages.get(f"/vms?{query}&sort={sort}"))
    assert _vms(tree) == wanted
    assert ("No VM fits" in tree.text_content()) is (not wanted)


def test_the_heads_of_the_vms_sort_them_and_keep_the_filter(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/vms?host=gpu1"))
    for column, field in (("State", "state"), ("Profile", "profile")):
        (link,) = tree.xpath(f"//thead//a[starts-with(., '{column}')]/@href")
        assert link == f"?host=gpu1&sort={field}"
        page = html.fromstring(pages.get(f"/vms{link}"))
        shown = [one.text_content() for one in page.xpath(f"//td[@data-label='{column}']")]
        assert len(shown) == 6 and shown == sorted(shown, key=natural)
        (head,) = page.xpath("//th[@aria-sort='ascending']")
        assert head.xpath("a/@href") == [f"?host=gpu1&sort=-{field}"]
    assert _vms(html.fromstring(pages.get("/vms?sort=bogus"))) == _vms(html.fromstring(pages.get("/vms")))


def test_an_unknown_tenant_in_a_filter_is_told(pages: Pages) -> None:
    assert "no tenant" in pages.get("/vms?tenant=none", 404).lower()


def test_no_page_speaks_python(pages: Pages) -> None:
    of_kinds = tuple(f"/states/{kind.name}" for kind in STATE_KINDS)
    for path in (*paths(pages), *of_kinds, "/search?q=gpu", "/tenants/acme/vms/waits"):
        assert _OF_PYTHON.search(pages.words(path)) is None, path


def test_the_page_of_a_vm_begins_with_what_matters(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    tree = html.fromstring(pages.get(f"/tenants/{lease.tenant}/vms/{lease.vm_name}"))
    assert tree.xpath("//main/h2/text()") == ["Promises", "Use", "Neighbours", "Last event", "Readings"]
    assert tree.xpath("//details/@open") == []
    (rows,) = tree.xpath("//main/div[contains(@aria-label,'Promises')]//tbody")
    assert [[" ".join(cell.text_content().split()) for cell in one] for one in rows] == [
        ["ports", "broken", "2026-09-21 14:13", "up", "down look at OVN", "libvirt"],
        ["guest-gpus", "not looked at", "2026-09-21 14:13", "2 vCPUs", "the guest is not asked", "libvirt"],
    ]
    assert tree.xpath("string(//details[summary[contains(.,'Kept')]]//tbody/tr/th)") == "vcpus"
    others = [one.vm_name for one in pages.fleet.leases if one.vm_name != lease.vm_name
              and (one.host, one.share.gpu) == (lease.host, lease.share.gpu)]  # fmt: skip
    shown = tree.xpath("//div[@aria-label='Other VMs on its GPUs']//td[@data-label='VM']/a/text()")
    assert sorted(shown) == sorted(others) and others
    (event,) = tree.xpath("(//main/div[@aria-label='Events'])[1]//tbody/tr")
    assert "promise-observed" in event.text_content()
    folded = " ".join(one.text_content() for one in tree.xpath("//details/summary"))
    for part in ("Last readings of", "States", "Request", "Events"):
        assert part in folded


def test_the_page_of_a_gpu_begins_with_what_matters(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    tree = html.fromstring(pages.get(f"/hosts/{lease.host}/gpus/{lease.share.gpu}"))
    assert tree.xpath("//main/h2/text()") == ["Shares", "Last event", "Still fits", "Readings"]
    assert tree.xpath("//details/@open") == []
    said = "In use 50 % of the time, 2 shares of 2 tenants, 16 GiB taken; readings of 4s ago"
    assert said in tree.xpath("string(//main)")
    (row,) = tree.xpath(f"//div[@aria-label='Shares of the GPU']//tr[td/a/text()='{lease.vm_name}']")
    assert row.xpath("td[@data-label='Promises']/span/text()") == ["1 broken", "1 not looked at", "1 kept"]
    assert tree.xpath("//details[summary[contains(.,'Last readings of the GPU')]]//table")


def test_pages_have_what_keyboards_and_screen_readers_need(pages: Pages) -> None:
    for path in paths(pages):
        tree = html.fromstring(pages.get(path))
        assert tree.get("lang") == "en" and len(tree.xpath("//h1")) == 1 and len(tree.xpath("//main")) == 1
        (skip,) = tree.xpath("(//a)[1]")
        assert tree.xpath(f"//*[@id='{skip.get('href')[1:]}']"), path
        for table in tree.xpath("//table"):
            assert table.xpath("./thead//th[@scope='col']"), path
        for field in tree.xpath("//input"):
            assert field.xpath("ancestor::label") or tree.xpath(f"//label[@for='{field.get('id')}']"), path
        for picture in tree.xpath("//svg[not(ancestor::svg)]"):
            assert picture.get("aria-hidden") == "true" or picture.get("aria-label"), path
        identifiers = tree.xpath("//@id")
        assert len(identifiers) == len(set(identifiers)), path
        assert not tree.xpath("//*[@style]|//style|//script[not(@src)]|//@onclick"), path


def test_the_statements_of_a_page_do_not_grow_with_the_fleet(tmp_path: Path) -> None:
    counts: dict[str, list[int]] = {}
    for size in (2, 8):
        home = tmp_path / str(size)
        home.mkdir()
        names = tuple(f"gpu{number}" for number in range(size))
        with open_stored(home, names) as services:
            fleet = fill(services, names, cards=2, shares=3 * size)
            sources = PageSources(services, PastSource(home / "none"))
            access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
            lease = fleet.leases[0]
            host = f"/hosts/{lease.host}"
            own = (host, f"{host}/gpus/{lease.share.gpu}", f"/tenants/{lease.tenant}/vms/{lease.vm_name}")
            for path in ("/", "/vms", "/states", "/queue", "/capacity", "/search?q=gpu", *own):
                # A server of its own: one keeps answers for seconds, and how many pages those are says the machine.
                client = make_application(sources, access).test_client()
                counts.setdefault(path, []).append(queries(services.store, client, path))
    assert {path: few for path, (few, many) in counts.items() if few != many} == {}
    assert max(few for few, _many in counts.values()) < 64


def test_a_gpu_that_its_host_no_longer_shows_keeps_its_page_and_its_shares(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=3, shares=3)
        lease = fleet.leases[0]
        with services.store.transaction() as session:
            facts = session.all_facts()["gpu1"].facts
            (gone,) = [one for one in facts.gpus if one.address == lease.share.gpu]
            session.save_facts("gpu1", replace(facts, gpus=tuple(one for one in facts.gpus if one != gone)), at=AT)
            record = Record(read_at=AT, gpus={gone.address: SeenGpu("missing", AT - 90, last=gone)})
            session.save_host_record("gpu1", "observations", msgspec.json.encode(record).decode())
        sources = PageSources(services, PastSource(tmp_path / "none"), lambda: readings_of(fleet))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = Pages(fleet, make_application(sources, access).test_client(), sources)
        assert f"GPU {gone.address} is missing" in pages.words("/")
        (row,) = html.fromstring(pages.get("/?state=missing")).xpath("//section//li")
        assert row.get("class") == "alarm" and "its host no longer shows it; off the bus" in row.text_content()
        assert row.xpath(".//svg[@class='box missing']//text/text()") == ["missing"]
        words = pages.words(f"/hosts/gpu1/gpus/{gone.address}")
        assert "missing" in words and lease.vm_name in words and "no longer shows it" in words


def test_the_page_of_a_vm_on_a_gpu_at_fault_says_so_and_calls_nothing_kept(tmp_path: Path) -> None:
    kept = replace(FINDINGS[0], row=PromiseRow.GPU_HELD, witness=Witness.HOST_KERNEL)
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=2, shares=1)
        (lease,) = fleet.leases
        with services.store.transaction() as session:
            vm = session.vm(lease.tenant, lease.vm_name)
            assert vm is not None
            note_findings(session, [(vm, (kept, FINDINGS[0]))], Moment.CREATION)
            gpu, cause = lease.share.gpu, RestrictionKind.QUARANTINE
            session.restrict("gpu1", gpu, cause, "its config space reads as all ones", finding="off-the-bus")
        sources = PageSources(services, PastSource(tmp_path / "none"))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = Pages(fleet, make_application(sources, access).test_client(), sources)
        page = html.fromstring(pages.get(f"/tenants/{lease.tenant}/vms/{lease.vm_name}"))
        (said,) = page.xpath("//ul[@class='attention']/li/text()")
        assert said == f"its GPU {gpu}: in quarantine: its config space reads as all ones (off-the-bus)"
        assert page.xpath("//h2[.='Promises']/following-sibling::p[1]/span/text()")[:2] == ["1 not looked at", "1 kept"]
        (row,) = html.fromstring(pages.get(f"/hosts/gpu1/gpus/{gpu}")).xpath("//td[@data-label='Promises']")
        assert row.xpath("span/text()") == ["1 not looked at", "1 kept"]


def test_of_a_full_gpu_it_is_said_that_it_is_full(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=2, shares=6)
        sources = PageSources(services, PastSource(tmp_path / "none"))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = Pages(fleet, make_application(sources, access).test_client(), sources)
        gpu = fleet.leases[0].share.gpu
        assert "Nothing more fits: all of its memory is taken" in pages.words("/hosts/gpu1")
        assert "Nothing: all of its memory is taken" in pages.words(f"/hosts/gpu1/gpus/{gpu}")


def test_a_host_that_nobody_has_asked_for_long_is_not_counted_as_up(tmp_path: Path) -> None:
    now = [AT]
    with open_stored(tmp_path, ("gpu1", "gpu2"), clock=lambda: now[0]) as services:
        fleet = fill(services, ("gpu1", "gpu2"), cards=2, shares=2)
        answered = readings_of(fleet)["gpu2"]
        sources = PageSources(
            services, PastSource(tmp_path / "none"), lambda: {"gpu2": replace(answered, at=now[0] - 5)}
        )
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = Pages(fleet, make_application(sources, access).test_client(), sources)
        assert "Hosts up2 of 2" in pages.words("/")
        now[0] += 3600
        pages = replace(pages, client=make_application(sources, access).test_client())
        words = pages.words("/")
        assert re.search(r"Hosts up1 of 2 .*gpu1: stale: up, 1h\S* ago", words), words
        lease = next(one for one in fleet.leases if one.host == "gpu1")
        assert "its host gpu1 is stale" in pages.words(f"/tenants/{lease.tenant}/vms/{lease.vm_name}")


def test_findings_of_a_gpus_health_are_on_its_page_with_their_remedy(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=2, shares=1)
        sick = GpuHealth(
            fleet.leases[0].share.gpu, "10de:2235", "10de:2235", "nvidia", remapped=RemappedRows(0, 1, False, True)
        )
        with services.store.transaction() as session:
            keep_health(session, "gpu1", HostHealth("boot", (sick,)))
        sources = PageSources(services, PastSource(tmp_path / "none"))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        words = Pages(fleet, make_application(sources, access).test_client(), sources).words(
            f"/hosts/gpu1/gpus/{sick.address}"
        )
    assert "row-remap-failed" in words


def test_a_failed_reading_is_told_with_the_age_of_the_last_one(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1",)) as services:
        fleet = fill(services, ("gpu1",), cards=2, shares=2)
        from vgpuctl.errors import HostUnreachable

        kept = replace(readings_of(fleet)["gpu1"], error=HostUnreachable("no route to gpu1"), at=AT - 600)
        sources = PageSources(services, PastSource(tmp_path / "none"), lambda: {"gpu1": kept})
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        pages = make_application(sources, access).test_client()
        text = pages.get("/hosts/gpu1").text
        data = json.loads(pages.get("/", headers={"Accept": "application/json"}).text)
        (row,) = sources.states().of("host_state")
    assert "no readings: no route to gpu1" in text and "readings of 10m ago" in text
    assert data["totals"]["hosts_up"] == 0 and data["hosts"][0]["state"] == "not-reached"
    assert any("no route to gpu1" in one for one in data["hosts"][0]["attention"])
    assert (row.states, row.text) == (("not-reached",), "no route to gpu1")
    assert re.search(r"no history of readings: \S+none is not there", text)
