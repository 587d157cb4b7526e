# SPDX-License-Identifier: Apache-2.0
"""HAProxy's configuration of load balancers: what is in it, hostile words, and HAProxy's own opinion of all of it."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tenant_certificates import self_signed
from vgpuctl.agent.wire.function_digests import digest_of
from vgpuctl.guests.haproxy import Member, read_statistics, render_balancer, render_config
from vgpuctl.guests.templating import render_template
from vgpuctl.model.http_balancing import Affinity, BalancerProtocol, HttpCheck, HttpRoute, Pool
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.secret_text import SecretText

NETWORK = Network(
    "7", NetworkRequest("front", "acme", "10.0.0.0/24", backend=Backend.OVN, cidr6="fd00:1::/64"), NetworkState.CREATED
)
PLACE = FunctionPlace("load-balancer", "acme", "shop", 1, NETWORK, ("10.0.0.253", "fd00:1::fffe"), "gpu1")
SHOP = LoadBalancer("shop", "10.0.0.254", 80, BalancerProtocol.HTTP, ("web-1", "web_2"), 8080, network="front")
MEMBERS = {
    "default": [Member("web-1", "10.0.0.2", 8080), Member("web_2", "fd00:1::2", 8080)],
    "api": [Member("web.3", "10.0.0.4", 81)],
}
FULL = replace(
    SHOP,
    pools=(Pool("api", ("web.3", "gone"), 81), Pool("empty", ("gone",))),
    routes=(
        HttpRoute("*.example.com", "", "empty"),
        HttpRoute("shop.example.com", "/api", "api"),
        HttpRoute("", "", "api"),
    ),
    affinity=Affinity.COOKIE,
    check=HttpCheck("HEAD", "/healthz", "200,204-299"),
    max_connections=50,
    rate=7,
    idle_timeout_s=5,
)

WEIGHED = replace(FULL, draining=("web.3",), weights=("web_2=3",))


def _checked(folder: Path, config: str, certificate: str | None = None) -> subprocess.CompletedProcess[str]:
    """What HAProxy says of a configuration."""
    if shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("haproxy is not installed")
    (folder / "haproxy.cfg").write_text(config)
    if certificate is not None:
        (folder / "tls.pem").write_text(certificate)
    command = ["/usr/sbin/haproxy", "-c", "-C", str(folder), "-f", "haproxy.cfg"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("balancer", [SHOP, FULL, WEIGHED, replace(SHOP, vms=("gone",))])
def test_haproxy_accepts_what_is_rendered(balancer: LoadBalancer, tmp_path: Path) -> None:
    config = render_config(balancer, MEMBERS if balancer.vms != ("gone",) else {}, PLACE)
    done = _checked(tmp_path, config)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr


def test_a_vm_that_drains_has_no_weight_and_others_have_their_own() -> None:
    words = [line.split() for line in render_config(WEIGHED, MEMBERS, PLACE).splitlines()]
    weights = {
        line[1].strip("'"): line[line.index("weight") + 1]
        for line in words
        if line[:1] == ["server"] and "weight" in line
    }
    assert weights == {"web_2": "3", "web.3": "0"}


def test_haproxy_accepts_a_certificate_and_refuses_another_key(tmp_path: Path) -> None:
    (certificate, key), (_other, other_key) = self_signed("shop.example.com"), self_signed("other.example.com")
    shop = replace(SHOP, protocol=BalancerProtocol.HTTPS, certificate=certificate, private_key=SecretText.of(key))
    made = render_balancer(shop, MEMBERS, PLACE, mtu=1442, private_key=key)
    config, pem = made.files
    assert (pem.name, pem.is_secret, config.is_secret) == ("tls.pem", True, False)
    assert key not in config.content and key not in repr(made)
    assert _checked(tmp_path, config.content, pem.content).returncode == 0
    assert _checked(tmp_path, config.content, certificate + other_key).returncode != 0
    assert "ssl crt tls.pem alpn h2,http/1.1" in config.content and "httponly secure" not in config.content
    renewed = render_balancer(replace(shop, certificate=_other), MEMBERS, PLACE, mtu=1442, private_key=other_key)
    assert (
        digest_of(renewed)
        != digest_of(made)
        == digest_of(render_balancer(shop, MEMBERS, PLACE, mtu=1442, private_key=key))
    )


def test_what_is_asked_for_is_in_the_configuration() -> None:
    config = render_config(FULL, MEMBERS, PLACE)
    lines = [line.strip() for line in config.splitlines()]
    for line in (
        "bind 'ipv4@10.0.0.253:80'",
        "bind 'ipv6@[fd00:1::fffe]:80'",
        "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 7 }",
        "http-request del-header X-Forwarded-For",
        "http-request set-header X-Forwarded-For %[src]",
        "http-check send meth HEAD uri '/healthz' ver HTTP/1.1 hdr Host 'shop'",
        "http-check expect status '200,204-299'",
        "default_backend 'pool-default'",
        "timeout client 5s",
        "timeout http-keep-alive 5s",
        "maxconn 50",
    ):
        assert line in lines, line
    routes = [line for line in lines if line.startswith("use_backend")]
    assert [line.split()[1] for line in routes] == ["'pool-api'", "'pool-api'", "'pool-empty'", "'pool-api'"]
    for line, test in zip(routes, ("-m str -- '/api'", "-m beg -- '/api/'", "-m end -- '.example.com'"), strict=False):
        assert test in line
    (server,) = [line for line in lines if line.startswith("server 'web.3'")]
    assert "'ipv4@10.0.0.4:81' cookie " in server and "web" not in server.rpartition("cookie ")[2]
    assert "gone" not in config


HOSTILE = (
    "a b",
    "x'y",
    'x"y',
    "x\\",
    "#x",
    "} { always_true",
    "%[src]",
    "$HOME",
    "${HOME}",
    "-f",
    "ä",
    "x;y",
    "|",
    "'",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_word_stays_one_word_of_its_line(text: str, tmp_path: Path) -> None:
    """The parsers refuse these words; the escaping at the one place holds without them."""
    balancer = replace(
        FULL,
        routes=(HttpRoute(f"a{text}", f"/{text}", "api"), HttpRoute(f"*.{text}", "", "default")),
        check=HttpCheck("GET", f"/{text.replace(' ', '')}", "200"),
    )
    config = render_config(balancer, MEMBERS, PLACE)
    routes = (HttpRoute("a", "/x", "api"), HttpRoute("*.x", "", "default"))
    plain = render_config(replace(balancer, routes=routes, check=HttpCheck("GET", "/x", "200")), MEMBERS, PLACE)
    assert len(config.splitlines()) == len(plain.splitlines())
    done = _checked(tmp_path, config)
    assert done.returncode == 0, (text, done.stderr)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\x00", "a\u2028b", "\x1b[2J", "a\tb"])
def test_no_word_can_end_a_line(text: str) -> None:
    with pytest.raises(ValueError, match="a word of HAProxy's configuration cannot be"):
        render_config(replace(FULL, routes=(HttpRoute(text, "", "api"),)), MEMBERS, PLACE)


def test_members_are_read_from_what_haproxy_answers() -> None:
    text = (
        "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,"
        "check_status,\n"
        "balancer,FRONTEND,,,1,2,50,9,,,,,,,,,,OPEN,,\n"
        "pool-default,web-1,0,0,1,2,,7,,,,0,,1,2,0,0,UP,L7OK,\n"
        "pool-default,BACKEND,0,0,0,1,,9,,,,,,,,,,UP,,\n"
        "pool-api,web.3,0,0,0,1,,x,,,,0,,,,0,0,DOWN,L4CON,\n"
    )
    found = [(one.pool, one.vm, one.status, one.sessions, one.requests, one.errors) for one in read_statistics(text)]
    assert found == [("api", "web.3", "DOWN", 0, 0, 0), ("default", "web-1", "UP", 1, 7, 3)]


@pytest.mark.parametrize("text", ["", "x", "\x00", "a,b\n1\n", "# pxname,svname\npool-x\n", "pool-x," * 1000])
def test_another_answer_has_no_members(text: str) -> None:
    assert all(not one.vm for one in read_statistics(text))


def test_the_filter_is_the_one_for_haproxy() -> None:
    values: dict[str, Any] = {}
    with pytest.raises(Exception, match="is undefined"):
        render_template("haproxy.cfg.j2", **values)
