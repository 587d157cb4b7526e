# SPDX-License-Identifier: Apache-2.0
"""The web-config file: what it may say, and what is refused instead of ignored."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.listening.requests import Refusals
from vgpuctl.model.web_config import ClientAuth, TlsVersion
from vgpuctl.specs.web_config import read_web_config
from vgpuctl.web.basic_auth import Logins
from vgpuctl.web.protection import Protection, refuse_unprotected

# A hash of "secret".
HASH = "$2b$04$kdCCcBiydOFkcNjAN5hoZOM/KK2IC6lPYiu3bnIdgI9hmpoRA5MhO"


def write(folder: Path, text: str) -> Path:
    """A web-config file."""
    path = folder / "web.yml"
    path.write_text(text)
    return path


def test_everything_that_it_may_say(tmp_path: Path) -> None:
    text = f"""
tls_server_config:
  cert_file: server.pem
  key_file: /keys/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: clients.pem
  min_version: TLS13
basic_auth_users:
  prometheus: {HASH}
"""
    config = read_web_config(write(tmp_path, text))
    assert config.tls is not None
    assert config.tls.files == (tmp_path / "server.pem", Path("/keys/server.key"), tmp_path / "clients.pem")
    assert (config.tls.client_auth, config.tls.min_version) == (ClientAuth.REQUIRE_AND_VERIFY, TlsVersion.TLS13)
    assert config.users == {"prometheus": HASH}
    assert config.is_protected


def test_an_empty_file_protects_nothing(tmp_path: Path) -> None:
    assert not read_web_config(write(tmp_path, "")).is_protected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_config:\n  cert_file: a", "web.yml:1: tls_server_config lacks key_file"),
        (
            "tls_server_config:\n  cert_file: a\n  cipher_suites: [x]",
            "web.yml:3: tls_server_config has the unknown key",
        ),
        ("tls_server_config: yes", "web.yml:1: tls_server_config is no mapping"),
        ("tls_server_config:\n  cert_file: 1\n  key_file: b", "web.yml:2: cert_file is no text"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: RequireAnyClientCert",
            "web.yml:4: client_auth_type 'RequireAnyClientCert' cannot be had",
        ),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_ca_file: c",
            "client_auth_type and client_ca_file go together",
        ),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS10", "min_version 'TLS10'"),
        ("basic_auth_users:\n  joe: secret", "web.yml:2: the password of 'joe' is no bcrypt hash"),
        ("basic_auth_users:\n  'a:b': x", "'a:b' is no name of a user"),
        ("http_server_config: {}", "the file has the unknown key 'http_server_config'"),
        ("- a", "the file is no mapping"),
    ],
)
def test_what_it_must_not_say(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read_web_config(write(tmp_path, text))
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_passwords() -> None:
    users = {"prometheus": HASH}
    for known, name, password, is_right in (
        (users, "prometheus", "secret", True),
        (users, "prometheus", "Secret", False),
        (users, "nobody", "secret", False),
        (users, "prometheus", "secret" + "x" * 80, False),
        (users, "prometheus", "secret\0", False),
        ({}, "prometheus", "secret", False),
    ):
        logins = Logins(Refusals())
        logins.is_user(users, "prometheus", "secret", "192.0.2.1")
        for again in range(2):
            assert logins.is_user(known, name, password, "192.0.2.1") == is_right, (name, password, again)


def test_users_are_bound_to_tenants(tmp_path: Path) -> None:
    text = f"basic_auth_users: {{acme: {HASH}, ops: {HASH}}}\nuser_tenants:\n  acme: [acme, acme-lab]\n"
    assert read_web_config(write(tmp_path, text)).tenants == {"acme": frozenset({"acme", "acme-lab"})}
    for bound, said in (
        ("{joe: [acme]}", "web.yml:2: 'joe' is no user"),
        ("{acme: []}", "web.yml:2: the tenants of 'acme' are no list"),
        ("{acme: acme}", "web.yml:2: the tenants of 'acme' are no list"),
        ("{acme: [1]}", "web.yml:2: 1 is no name of a tenant"),
        ("{acme: ['*']}", "web.yml:2: tenant '*' (1 characters) cannot be used"),
        ("[acme]", "web.yml:2: user_tenants is no mapping"),
    ):
        with pytest.raises(InventoryError) as caught:
            read_web_config(write(tmp_path, f"basic_auth_users: {{acme: {HASH}}}\nuser_tenants: {bound}\n"))
        assert said in caught.value.message


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_of_others_needs_tls_and_a_login(tmp_path: Path, address: str) -> None:
    users_alone = Protection(write(tmp_path, f"basic_auth_users: {{joe: {HASH}}}"))
    for one in (Protection(None), users_alone):
        with pytest.raises(UsageError, match="reached by others"):
            refuse_unprotected(address, one, is_allowed=False)
        refuse_unprotected(address, one, is_allowed=True)
    for own in ("127.0.0.1", "::1"):
        refuse_unprotected(own, Protection(None), is_allowed=False)


def test_a_missing_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"TLS cannot be set up with .*server\.pem"):
        Protection(write(tmp_path, "tls_server_config: {cert_file: server.pem, key_file: server.key}"))


@pytest.mark.parametrize(
    "later",
    ["", "basic_auth_users: {ops: HASH, acme: HASH}", "basic_auth_users: {}", "basic_auth_users: {ops: HA"],
)
def test_a_change_lets_nobody_in_who_is_kept_out(tmp_path: Path, later: str) -> None:
    """A file that is read while it is written lacks its end."""
    written = f"basic_auth_users: {{ops: {HASH}, acme: {HASH}}}\nuser_tenants: {{acme: [acme]}}\n"
    told = list[str]()
    protection = Protection(write(tmp_path, written), warn=told.append)
    write(tmp_path, later.replace("HASH", HASH))
    assert protection.config.users.keys() == {"ops", "acme"} and protection.config.tenants.keys() == {"acme"}
    assert len(told) == 1 and "the change is not used" in told[0]
    write(tmp_path, f"basic_auth_users: {{ops: {HASH}}}\n# acme has left")
    assert protection.config.users.keys() == {"ops"}
