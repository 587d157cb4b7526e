# SPDX-License-Identifier: Apache-2.0
"""The map of the fleet: what it draws, marks, names, filters and puts into sections."""

import pytest
from lxml import html

from tests.stored_pages import HOSTS, Pages, pages

__all__ = ["pages"]


def test_the_fleet_shows_each_host_and_each_share_to_scale(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/"))
    assert [one.text for one in tree.xpath("//section/h2/a")] == list(HOSTS)
    for lease in pages.fleet.leases:
        (link,) = tree.xpath(f"//a[@href='/tenants/{lease.tenant}/vms/{lease.vm_name}']")
        assert f"{lease.tenant}/{lease.vm_name}, {lease.share.profile}" in link.findtext("title")
        width = float(link.getparent().get("width").removesuffix("%"))
        assert width == pytest.approx(100 * (lease.share.framebuffer_mib or 0) / 49152, abs=0.01)
    for bar in tree.xpath("//svg[@class='gpu-bar'][svg]"):
        widths = [float(one.get("width").removesuffix("%")) for one in bar.findall("svg")]
        assert sum(widths) == pytest.approx(100, abs=0.1)


def test_the_fleet_names_what_an_operator_should_look_at(pages: Pages) -> None:
    words = pages.words("/")
    assert "gpu2: GPU 0000:21:00.0: in quarantine: row remap failed" in words
    assert "gpu3: it is cordoned: new cables" in words
    assert "silent: it was never read" in words


def test_a_tenant_stands_out_on_the_map(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/?tenant=acme"))
    shown = {
        one.get("href").split("/")[2]
        for one in tree.xpath("//svg[contains(@class,'box') and not(contains(@class,'dim'))]/a")
    }
    assert shown == {"acme"}


def _shown(tree: html.HtmlElement) -> list[tuple[str, list[str]]]:
    """The hosts of the map, each with the addresses of its GPUs as they are written."""
    hosts = tree.xpath(".//section[contains(@class,'host')]")
    return [(one.findtext("h2/a"), one.xpath(".//a[@class='gpu-name']/text()")) for one in hosts]


_CARDS = ["11:00.0", "21:00.0", "31:00.0", "41:00.0"]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("group=rack_a", [("gpu1", _CARDS), ("silent", [])]),
        ("state=quarantine", [("gpu2", ["21:00.0"])]),
        ("state=host-cordoned", [("gpu3", _CARDS)]),
        ("board=NVIDIA+A100+PCIe+40GB", [("gpu3", ["41:00.0"])]),
        ("board=NVIDIA+A40&group=rack_b&state=quarantine", [("gpu2", ["21:00.0"])]),
        ("tenant=acme&state=quarantine", [("gpu2", ["21:00.0"])]),
        ("state=%22%3E%3Cscript%3E", []),
        ("tenant=none", []),
        ("by=bogus", [("gpu1", _CARDS), ("gpu2", _CARDS), ("gpu3", _CARDS), ("silent", [])]),
    ],
)
def test_the_map_shows_the_gpus_that_are_asked_for(
    pages: Pages, query: str, shown: list[tuple[str, list[str]]]
) -> None:
    assert _shown(html.fromstring(pages.get(f"/?{query}"))) == shown
    assert ("No GPU fits" in pages.words(f"/?{query}")) is (shown == [])


@pytest.mark.parametrize(
    ("by", "sections"),
    [
        ("group", ["rack_a 4 GPUs of 2 hosts", "rack_b 8 GPUs of 2 hosts"]),
        ("board", ["NVIDIA A40 11 GPUs of 3 hosts", "NVIDIA A100 PCIe 40GB 1 GPU of 1 host",
                   "no board 0 GPUs of 1 host"]),
        ("state", ["host-cordoned 4 GPUs of 1 host", "nothing-fits 1 GPU of 1 host", "open 6 GPUs of 2 hosts",
                   "quarantine 1 GPU of 1 host", "no state 0 GPUs of 1 host"]),
    ],
)  # fmt: skip
def test_the_map_has_sections(pages: Pages, by: str, sections: list[str]) -> None:
    tree = html.fromstring(pages.get(f"/?by={by}"))
    assert [" ".join(one.text_content().split()) for one in tree.xpath("//main/h2")] == sections
    identifiers = tree.xpath("//@id")
    assert len(identifiers) == len(set(identifiers))


def test_sections_by_tenant_have_every_gpu_with_a_share_of_theirs(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/?by=tenant"))
    found = {
        (title.xpath("string(a)"), host, card)
        for title, hosts in zip(tree.xpath("//main/h2"), tree.xpath("//div[@class='hosts']"), strict=True)
        for host, cards in _shown(hosts)
        for card in cards
        if title.xpath("a")
    }
    assert found == {(one.tenant, one.host, one.share.gpu.removeprefix("0000:")) for one in pages.fleet.leases}


def test_a_gpu_in_quarantine_cannot_be_overlooked(pages: Pages) -> None:
    tree = html.fromstring(pages.get("/"))
    (row,) = tree.xpath("//li[@class='alarm']")
    assert row.findtext("a") == "21:00.0" and row.xpath(".//svg[contains(@class,'gpu-bar alarm')]")
    assert row.xpath("p/span[@class='chip bad']/text()") == ["quarantine"]
    assert "row remap failed" in row.text_content()
    assert row.xpath(".//svg[@class='box quarantine']//text/text()") == ["quarantine"]
    (closed,) = tree.xpath("//section[@class='host warn']")
    assert closed.findtext("h2/a") == "gpu3"


def test_boards_memory_and_groups_of_a_host_are_named(pages: Pages) -> None:
    words = pages.words("/")
    assert "4 × NVIDIA A40 48 GiB; group rack_a" in words
    assert "3 × NVIDIA A40 48 GiB, 1 × NVIDIA A100 PCIe 40GB 40 GiB; group rack_b" in words
    assert "Last answer: up, 30s ago; readings of 4s ago" in words


def test_a_tenant_has_one_colour_and_pattern_on_every_page(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    tree = html.fromstring(pages.get("/"))
    marks = dict(zip(tree.xpath("//ul[@aria-label='Tenants']//a/text()"),
                     tree.xpath("//ul[@aria-label='Tenants']//svg/@class"), strict=True))  # fmt: skip
    assert len(set(marks.values())) == len({one.tenant for one in pages.fleet.leases}) == len(marks)
    for path in ("/", f"/hosts/{lease.host}", f"/hosts/{lease.host}/gpus/{lease.share.gpu}"):
        (box,) = html.fromstring(pages.get(path)).xpath(f"//svg[a/@href='/tenants/{lease.tenant}/vms/{lease.vm_name}']")
        assert box.get("class") == marks[lease.tenant], path
