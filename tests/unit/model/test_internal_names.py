# SPDX-License-Identifier: Apache-2.0
"""Which VM has which internal name, and which text is a domain."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.internal_names import domains_of, label_of, names_in, parse_domain, records_of
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState, Port


def _network(name: str, cidr: str, *, isolated: bool = False, tenant: str = "acme") -> Network:
    request = NetworkRequest(name, tenant, cidr, isolated=isolated, backend=Backend.OVN)
    return Network(name, request, NetworkState.CREATED)


def _port(network: Network, number: int) -> Port:
    address = str(network.subnet[number])
    return Port(f"{network.id}-{number}", network.id, "uuid", 0, "52:54:00:00:00:01", address)


FRONT, BACK = _network("front", "10.0.0.0/24"), _network("back", "10.0.1.0/24")
INNER = _network("inner", "10.0.2.0/24", isolated=True)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("internal", "internal"),
        ("Internal.", "internal"),
        ("cloud.example.com", "cloud.example.com"),
        ("a-b.c9", "a-b.c9"),
        ("x" * 61, "x" * 61),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_domain_has_one_form(text: str, domain: str) -> None:
    assert parse_domain(text) == domain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".", "an empty label"),
        ("a..b", "an empty label"),
        (".internal", "an empty label"),
        ("internal..", "an empty label"),
        ("a b", "the label 'a b'"),
        ("under_score", "the label 'under_score'"),
        ("-a.internal", "the label '-a'"),
        ("a-.internal", "the label 'a-'"),
        ("bücher.example", "the label"),
        ('a"b', "the label"),
        ("a\x1b[2Jb", "the label"),
        ("*", "the label '\\*'"),
        ("a" * 64, "the label"),
        (".".join(["abcdefghi"] * 7), "69 characters, and 61 fit"),
        ("10.0.0.1", "ends like an address"),
        ("vm.local", "multicast DNS"),
        ("localhost", "guests answer it themselves"),
        ("10.in-addr.arpa", "reverse names"),
    ],
)
def test_what_is_no_domain_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_domain(text)
    assert refused.value.message.startswith("VGPUCTL_INTERNAL_DOMAIN: ") and refused.value.message.isprintable()
    assert "such as internal" in (refused.value.hint or "")


def test_a_name_with_a_dot_or_an_underscore_is_no_label() -> None:
    assert (label_of("Web-1"), label_of("web_1"), label_of("a.b"), label_of("x" * 63)) == (
        "web-1",
        None,
        None,
        "x" * 63,
    )


def test_each_vm_has_its_full_name_its_reverse_name_and_a_short_one_where_that_is_one_vm() -> None:
    ports = [
        ("web", _port(FRONT, 2)),
        ("db", _port(BACK, 2)),
        ("both", _port(FRONT, 3)),
        ("both", _port(BACK, 3)),
        ("web", _port(INNER, 2)),
        ("twice", _port(BACK, 4)),
        ("twice", _port(BACK, 5)),
    ]
    records = records_of((FRONT, BACK, INNER), ports, "internal")
    assert records["front"] == {
        "web": "10.0.0.2",
        "web.front.acme.internal": "10.0.0.2",
        "2.0.0.10.in-addr.arpa": "web.front.acme.internal",
        "both.front.acme.internal": "10.0.0.3",
        "3.0.0.10.in-addr.arpa": "both.front.acme.internal",
    }
    back = {name: value for name, value in records["back"].items() if not name.endswith("arpa")}
    assert back == {
        "db": "10.0.1.2",
        "db.back.acme.internal": "10.0.1.2",
        "both.back.acme.internal": "10.0.1.3",
        "twice": "10.0.1.4 10.0.1.5",
        "twice.back.acme.internal": "10.0.1.4 10.0.1.5",
    }
    assert records["inner"]["web"] == "10.0.2.2", "who is in the isolated network reaches no other"


def test_what_would_be_two_vms_name_is_nobody_s() -> None:
    ports = [("Web", _port(FRONT, 2)), ("web", _port(FRONT, 3)), ("web_2", _port(FRONT, 4)), ("Solo", _port(FRONT, 5))]
    records = records_of((FRONT,), ports, "cloud.example.com")
    assert records["front"] == {
        "solo": "10.0.0.5",
        "solo.front.acme.cloud.example.com": "10.0.0.5",
        "5.0.0.10.in-addr.arpa": "solo.front.acme.cloud.example.com",
    }
    twins = (_network("Front", "10.1.0.0/24"), FRONT, BACK)
    assert domains_of(twins, "internal") == {"back": "back.acme.internal"}
    assert domains_of([_network("front", "10.0.0.0/24", tenant="ac_me")], "internal") == {}
    assert names_in(None, ["web"]) == {}


def test_without_a_domain_there_are_no_names() -> None:
    assert domains_of((FRONT, BACK), None) == {}
