# SPDX-License-Identifier: Apache-2.0
"""Rules and forwarded ports as people write them."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.vpc import PortProtocol, Protocol, Rule
from vgpuctl.model.vpc_text import describe_rule, parse_forwarded, parse_rule

RULES = {
    "icmp": Rule(Protocol.ICMP),
    "any": Rule(),
    "tcp": Rule(Protocol.TCP),
    "tcp:80": Rule(Protocol.TCP, (80, 80)),
    "udp:8000-8010@10.9.0.0/24": Rule(Protocol.UDP, (8000, 8010), "10.9.0.0/24"),
    "any@group:web": Rule(source="group:web"),
}


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_read_and_written_alike(text: str) -> None:
    assert parse_rule(text) == RULES[text]
    assert describe_rule(RULES[text]) == text


NO_RULES = (
    *("", "http", "tcp:", "tcp:0", "tcp:65536", "tcp:80-70", "tcp:-80", "tcp:٨", "icmp:8", "any:80"),
    *("tcp:80@", "tcp@x/8", "tcp@10.0.0.1/8", "any@group:", "any@group:a b", "any@::/0"),
)


@pytest.mark.parametrize("text", NO_RULES)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rule(text)


def test_a_forwarded_port_is_one_port_of_tcp_or_udp() -> None:
    assert [parse_forwarded(text) for text in ("8080", "tcp/8080", "udp/53")] == [
        (PortProtocol.TCP, 8080),
        (PortProtocol.TCP, 8080),
        (PortProtocol.UDP, 53),
    ]
    for text in ("", "/", "tcp/", "icmp/8", "any/80", "80-81", "sctp/80", "tcp/80/tcp"):
        with pytest.raises(UsageError):
            parse_forwarded(text)
