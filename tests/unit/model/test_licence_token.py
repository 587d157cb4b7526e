# SPDX-License-Identifier: Apache-2.0
"""Client configuration tokens are read strictly, and no error repeats them."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.errors import UsageError
from vgpuctl.model.licence_token import MOST_BYTES, read_token, server_name


def _encoded(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def token(claims: Any, header: Any = None, signature: str = "c2ln") -> str:
    """A token of these claims; the signature is never looked at."""
    return ".".join(
        (_encoded({"alg": "RS256", "typ": "JWT"} if header is None else header), _encoded(claims), signature)
    )


def of_servers(*servers: Any, **more: Any) -> dict[str, Any]:
    """Claims that name these servers, as NVIDIA's licence service writes them."""
    nodes = [{"idx": index, "url": one, "url_qr": one, "svc_port_set_idx": 0} for index, one in enumerate(servers)]
    return {"aud": "NLS Licensed Client", "service_instance_configuration": {"node_url_list": nodes}, **more}


def test_servers_and_end_are_read() -> None:
    claims = read_token(token(of_servers("DLS-1.example.org", "192.0.2.7", exp=2_000_000_000)) + "\n")
    assert (claims.servers, claims.expires_at) == (("dls-1.example.org", "192.0.2.7"), 2e9)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "secret-words",
        "a.b",
        "a.b.c.d",
        token(of_servers("dls")) + "\n" + token(of_servers("dls")),
        token("[" * 5000),
        token("{broken"),
        token(["dls"]),
        token(of_servers("dls"), header="7"),
        token({}),
        token(of_servers()),
        token(of_servers(7)),
        token(of_servers("bad host\x1b[2J")),
        token(of_servers(*["dls"] * 17)),
        token(of_servers("dls", exp="soon")),
        token(of_servers("dls", exp=True)),
        token(of_servers("dls", exp=float("nan"))),
        "x" * (MOST_BYTES + 1),
        "é.é.é",
    ],
)
def test_anything_else_is_refused_without_being_shown(content: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_token(content)
    assert refused.value.__cause__ is None
    shown = f"{refused.value.message} {refused.value.hint} {refused.value.context}"
    assert not any(part in shown for part in content.split(".") if len(part) > 8)
    assert "\x1b" not in shown


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(content: str) -> None:
    try:
        assert read_token(content).servers
    except UsageError:
        pass


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("https://DLS.example.org:443/leasing", "dls.example.org"),
        ("dls.example.org.", "dls.example.org"),
        ("192.0.2.7:443", "192.0.2.7"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
    ],
)
def test_a_server_is_named_without_scheme_and_port(written: str, expected: str) -> None:
    assert server_name(written, what="--server") == expected
