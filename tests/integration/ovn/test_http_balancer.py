# SPDX-License-Identifier: Apache-2.0
"""A load balancer of HTTPS with real OVN, HAProxy and packets: instances and members end, certificates are rotated."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.ovn.http_world import HttpWorld
from tests.integration.ovn.packets import missing_for_packets
from tests.ovn_fixture import LocalOvn
from vgpuctl.guests.haproxy import read_statistics

MISSING = missing_for_packets() or (
    None if shutil.which("haproxy", path="/usr/sbin:/usr/bin") else "haproxy is missing"
)
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def world(central: LocalOvn) -> Iterator[HttpWorld]:
    with HttpWorld(central) as made:
        yield made


def _get(world: HttpWorld, path: str = "/", host: str = "shop.example.com", **more: Any) -> tuple[int, dict[str, Any]]:
    status, body, _headers = world.get(path, host, **more)
    return status, body


def test_requests_go_by_host_and_path_and_tell_their_source(world: HttpWorld) -> None:
    for address in world.balancer.address, world.balancer.address6:
        for path, host, member in (
            ("/", "shop.example.com", "a"),
            ("/api/x", "shop.example.com", "b"),
            ("/apis", "shop.example.com", "a"),
            ("/", "any.example.net", "b"),
            ("/", "example.net", "a"),
        ):
            status, body = _get(world, path, host, address=address)
            assert (status, body["name"], body["path"]) == (200, member, path), (address, host, path)
    forged = [["X-Forwarded-For", "192.0.2.66"], ["Forwarded", "for=192.0.2.66"], ["X-Real-IP", "192.0.2.66"]]
    _status, body = _get(world, headers=forged)
    headers = [(key, value) for key, value in body["headers"] if "forwarded" in key or "real" in key]
    assert sorted(headers) == [
        ("x-forwarded-for", world.client_address),
        ("x-forwarded-port", "443"),
        ("x-forwarded-proto", "https"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nunder_score?: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    ],
)
def test_requests_that_two_programs_would_read_differently_are_refused(world: HttpWorld, text: str) -> None:
    assert " 400 " in world.raw(text), text


def test_members_are_counted_and_an_instance_may_die(world: HttpWorld) -> None:
    found = {}
    for place in world.places:
        (answer,) = world.host.read(place.name)[place.name].answers
        assert not answer.problem, answer.problem
        found[place.number] = {(one.pool, one.vm): one for one in read_statistics(answer.text)}
    assert {key for one in found.values() for key in one} == {("default", "a"), ("api", "b")}
    assert all(one.status == "UP" for each in found.values() for one in each.values())
    assert sum(one[("default", "a")].requests for one in found.values()) >= 4
    world.kill_instance(0)
    assert world.host.read()[world.places[0].name].problems == ("haproxy does not run",)
    world.wait_until_steady()
    told = world.load(40)
    assert told["failures"] == {}
    assert world.bring()[0].changed
    assert world.host.read()[world.places[0].name].problems == ()


def test_no_request_fails_while_the_certificate_and_the_members_change(world: HttpWorld) -> None:
    told = world.rotate_under_load(600)
    assert told["failures"] == {}, json.dumps(told)
    assert len(told["certificates"]) == 2 and set(told["names"]) == {"a", "b"}


def test_nothing_is_left_on_the_host(world: HttpWorld) -> None:
    """The last test."""
    world.remove()
    assert world.host.read() == {}
    assert world.left() == []
