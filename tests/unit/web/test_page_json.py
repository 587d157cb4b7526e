# SPDX-License-Identifier: Apache-2.0
"""The data of each page as JSON: by its type, of what the page shows, with the same queries."""

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.stored_pages import Pages, pages, paths, queries
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.cli.forms.json_schema import schema_of
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import make_application
from vgpuctl.web.page_types import PAGES

__all__ = ["pages"]
_JSON = {"Accept": "application/json"}


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _get(pages: Pages, path: str, status: int = 200) -> Any:
    """The data of a page, which fits the type of its view."""
    answer = pages.client.get(path, headers=_JSON)
    assert (answer.status_code, answer.content_type) == (status, "application/json"), answer.text
    assert {"Accept", "Accept-Encoding"} <= set(answer.vary) and "default-src" in answer.headers[
        "Content-Security-Policy"
    ]
    found = json.loads(answer.text, parse_constant=_refuse)
    adapter = pages.client.application.url_map.bind("localhost")
    name = "error" if status != 200 else adapter.match(path.partition("?")[0])[0].removeprefix("pages.")
    jsonschema.Draft202012Validator(schema_of(PAGES[name], name)).validate(found)
    return found


def test_every_page_has_data_of_its_type(pages: Pages) -> None:
    seen = {"error"}
    adapter = pages.client.application.url_map.bind("localhost")
    for path in (*paths(pages), "/states/lease_state", "/search?q=gpu", "/tenants/acme/vms/waits", "/capacity"):
        assert _get(pages, path), path
        seen.add(adapter.match(path.partition("?")[0])[0].removeprefix("pages."))
    assert seen == set(PAGES)


def test_the_data_are_those_of_the_page(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    (host,) = _get(pages, "/?state=quarantine")["hosts"]
    assert host["name"] == "gpu2" and host["groups"] == ["rack_b"]
    (gpu,) = host["gpus"]
    assert (gpu["address"], gpu["states"], gpu["map"]["board"]) == ("0000:21:00.0", ["quarantine"], "NVIDIA A40")
    vm = _get(pages, f"/tenants/{lease.tenant}/vms/{lease.vm_name}")
    rows = {one["finding"]["row"]: one["finding"]["verdict"] for one in vm["promises"]}
    assert rows == {"vcpus": "kept", "guest-gpus": "not-looked-at", "ports": "broken"}
    assert vm["neighbours"][0]["gpu"] == lease.share.gpu and vm["events"][0]["kind"] == "promise-observed"
    page = _get(pages, "/vms?state=running&sort=-name&host=gpu1")
    names = [one["vm"]["name"] for one in page["vms"]]
    assert page["total"] == len(names) and names == sorted(names, reverse=True)
    (waits,) = _get(pages, "/queue")["waiting"]
    assert (waits["vms"], waits["reason"]) == (["waits"], "no GPU is free")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("*/*", "text/html"),
        ("", "text/html"),
        ("application/json;q=0.5, text/html", "text/html"),
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
    ],
)
def test_who_asks_for_json_gets_it(pages: Pages, accept: str, kind: str) -> None:
    assert pages.client.get("/tenants", headers={"Accept": accept}).mimetype == kind


@pytest.mark.parametrize(
    ("path", "status", "reference", "said"),
    [
        ("/none", 404, None, "There is no such page"),
        ("/hosts/none", 404, None, "There is no such page"),
        ("/vms?tenant=none", 404, "not-found", "no tenant"),
        ("/capacity?gpu=A40-8Q&vcpus=many", 400, "usage", "vCPUs"),
    ],
)
def test_an_error_is_json_too(pages: Pages, path: str, status: int, reference: str | None, said: str) -> None:
    found = _get(pages, path, status)
    assert found["reference"] == reference and said in found["message"]


def test_without_a_login_there_is_no_json(pages: Pages) -> None:
    access = PageAccess(b"0123456789abcdef", has_tls=False, is_loopback=True, clock=lambda: 0.0)
    client = make_application(pages.sources, access).test_client()
    answer = client.get("/", headers=_JSON)
    assert (answer.status_code, answer.text) == (401, "a login is needed\n")
    let_in = client.get("/", headers={**_JSON, "Authorization": "Bearer 0123456789abcdef"})
    assert (let_in.status_code, let_in.mimetype) == (200, "application/json")


def test_the_data_need_no_more_queries_than_the_page(pages: Pages) -> None:
    access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: 0.0)
    for path in paths(pages):
        counts = [
            queries(pages.fleet.services.store, make_application(pages.sources, access).test_client(), path, headers)
            for headers in ({}, _JSON)
        ]
        assert counts[0] == counts[1], path


def test_what_a_host_did_not_measure_as_a_number_is_null(pages: Pages) -> None:
    lease = pages.fleet.leases[0]
    snapshot = pages.sources.snapshots()[lease.host]
    assert snapshot.readings is not None
    bad = Measured((("share_utilization_ratio", (), math.nan), ("framebuffer_used_bytes", (), math.inf)))
    vgpus = tuple(replace(one, measured=bad) for one in snapshot.readings.vgpus)
    read = {lease.host: replace(snapshot, readings=replace(snapshot.readings, vgpus=vgpus))}
    sources = replace(pages.sources, snapshots=lambda: read)
    access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: 0.0)
    broken = replace(pages, client=make_application(sources, access).test_client())
    (share, *_) = _get(broken, f"/hosts/{lease.host}/gpus/{lease.share.gpu}")["gpu"]["shares"]
    assert share["used_of_promise"] is None and share["framebuffer_used_bytes"] is None
