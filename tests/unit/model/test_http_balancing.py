# SPDX-License-Identifier: Apache-2.0
"""What people write of HTTP load balancers: each text has one form, and what could be more than a word is refused."""

from typing import Any

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.http_balancing import (
    BalancerProtocol,
    HttpCheck,
    HttpRoute,
    Pool,
    describe_check,
    describe_pool,
    describe_route,
    parse_check,
    parse_pool,
    parse_route,
)
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network_function import choose_chassis
from vgpuctl.model.secret_text import SecretText

KEY = SecretText.of("key")


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("api=web-3,web-4", Pool("api", ("web-3", "web-4")), "api=web-3,web-4"),
        ("api=web-3:8080", Pool("api", ("web-3",), 8080), "api=web-3:8080"),
        ("api=a,a,,b", Pool("api", ("a", "b")), "api=a,b"),
    ],
)
def test_pools(text: str, value: Pool, written: str) -> None:
    assert (parse_pool(text), describe_pool(value), parse_pool(written)) == (value, written, value)


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("shop.example.com=web", HttpRoute("shop.example.com", "", "web"), "shop.example.com=web"),
        ("Shop.Example.com./api/=api", HttpRoute("shop.example.com", "/api", "api"), "shop.example.com/api=api"),
        ("*.example.com/a/b=c", HttpRoute("*.example.com", "/a/b", "c"), "*.example.com/a/b=c"),
        ("/api=api", HttpRoute("", "/api", "api"), "/api=api"),
        ("/=api", HttpRoute("", "", "api"), "/=api"),
        ("localhost=web", HttpRoute("localhost", "", "web"), "localhost=web"),
    ],
)
def test_routes(text: str, value: HttpRoute, written: str) -> None:
    assert (parse_route(text), describe_route(value), parse_route(written)) == (value, written, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/healthz", HttpCheck("GET", "/healthz", "200-399")),
        ("HEAD / 204", HttpCheck("HEAD", "/", "204")),
        ("GET /a 200,204,300-302", HttpCheck("GET", "/a", "200,204,300-302")),
    ],
)
def test_checks(text: str, value: HttpCheck) -> None:
    assert parse_check(text) == value == parse_check(describe_check(value))


HOSTILE = (
    "a b",
    "a\nbackend x",
    "a'",
    'a"',
    "a\\",
    "a#",
    "a}",
    "a%[src]",
    "$HOME",
    "a\x00",
    "ä",
    "-f",
    "a;b",
    "..",
    "",
    "{a}",
    "a\u2028b",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_words_that_could_be_more_than_a_name_are_refused(text: str) -> None:
    for parse, written in (
        (parse_route, f"{text}.example.com=web" if text != ".." else "a..b=web"),
        (parse_route, f"shop.example.com=we{text}b " if text else "shop.example.com="),
        (parse_pool, f"{text}=web-1" if text != "a;b" else "=web-1"),
        (parse_pool, f"api=we {text}"),
        (parse_check, f"GET /{text}x y z"),
        (parse_check, f"POST{text} /"),
    ):
        with pytest.raises(UsageError):
            parse(written)


@pytest.mark.parametrize(
    "text",
    ["shop", "=web", "*=web", "*.=web", "a.*.b=web", "a_b.example=web", "-a.example=web", f"{'a' * 64}.example=web",
     "/a/../b=web", "/./a=web", "/a//b=web", "/a%2e=web", "/a b=web", "/a?b=web", "/a#b=web", "shop/=w b",
     f"/{'a' * 300}=web", "[::1]=web", "10.0.0.1:80=web"],
)  # fmt: skip
def test_other_routes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_route(text)


@pytest.mark.parametrize("text", ["", "GET", "healthz", "POST /x", "GET /x 99", "GET /x 600", "/x 300-200", "/x 2xx"])
def test_other_checks_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_check(text)


@pytest.mark.parametrize("text", ["api", "api=", "=a", "default=a", "api=a:0", "api=a:65536", "api=a:x", "api=a:8:9"])
def test_other_pools_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pool(text)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"protocol": BalancerProtocol.TCP, "routes": (HttpRoute("a", "", "default"),)}, "need protocol http or https"),
        ({"protocol": BalancerProtocol.UDP, "rate": 5}, "need protocol http or https"),
        ({"protocol": BalancerProtocol.TCP, "idle_timeout_s": 61}, "need protocol http or https"),
        ({"protocol": BalancerProtocol.HTTPS}, "needs a certificate and its private key"),
        ({"protocol": BalancerProtocol.HTTPS, "certificate": "x"}, "needs a certificate and its private key"),
        ({"certificate": "x", "private_key": KEY}, "protocol http takes no certificate"),
        ({"routes": (HttpRoute("a", "", "api"),)}, "leads to pool api, which the balancer does not have"),
        ({"pools": (Pool("api", ("a",)), Pool("api", ("b",)))}, "two pools named api"),
        (
            {"pools": (Pool("api", ("a",)),), "routes": (HttpRoute("a", "/x", "api"), HttpRoute("a", "/x", "default"))},
            "two routes for a/x: to api and to default",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_refused(changed: dict[str, Any], said: str) -> None:
    values = {"protocol": BalancerProtocol.HTTP, "vms": ("a",), **changed}
    with pytest.raises(UsageError, match=said):
        LoadBalancer("shop", "", 80, vm_port=80, network="front", **values)


def test_the_first_route_is_the_most_specific_one() -> None:
    texts = ["/=d", "/api=d", "*.example.com=d", "*.a.example.com=d", "example.com=d", "example.com/api=d"]
    ranked = sorted(map(parse_route, texts), key=lambda one: one.rank)
    assert [describe_route(one) for one in ranked] == [
        "example.com/api=d",
        "example.com=d",
        "*.a.example.com=d",
        "*.example.com=d",
        "/api=d",
        "/=d",
    ]


@pytest.mark.parametrize(
    ("order", "aside", "chosen"),
    [
        ("abc", "", "ab"),
        ("abc", "a", "cb"),
        ("abc", "b", "ac"),
        ("abc", "c", "ab"),
        ("abc", "ac", "b"),
        ("abc", "abc", "ab"),
        ("a", "", "a"),
        ("a", "a", "a"),
        ("", "", ""),
        ("abcd", "ab", "cd"),
    ],
)
def test_an_instance_stays_where_it_is_when_another_ones_chassis_is_set_aside(
    order: str, aside: str, chosen: str
) -> None:
    assert "".join(choose_chassis(order, aside, 2)) == chosen
