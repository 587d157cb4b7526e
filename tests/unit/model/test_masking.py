# SPDX-License-Identifier: Apache-2.0
"""URLs are shown without passwords or not at all; names of secrets are known by their words."""

import random

import pytest

from vgpuctl.model.masking import (
    holds_command,
    is_secret_name,
    shown_login,
    shown_url,
    without_assigned,
    without_passwords,
    without_words,
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://vgpu:pw@db1:5432,db2/vgpuctl?sslmode=require", "postgresql://vgpu:***@db1:5432,db2/vgpuctl?sslmode=require"),
        ("postgresql://vgpu@db1/vgpuctl?sslpassword=pw", "postgresql://vgpu@db1/vgpuctl?sslpassword=***"),
        ("postgresql://?service=gpus", "postgresql://?service=gpus"),
        ("postgresql://u:p@w@db1/vgpuctl", "postgresql:…"),
        ("postgresql://u:1/pw@db1/vgpuctl", "postgresql:…"),
        ("https://token@files.example/x", "https://***@files.example/x"),
        ("http://[2001:db8::1]:9090/prefix", "http://[2001:db8::1]:9090/prefix"),
        ("sqlite:////var/lib/vgpuctl/store.db", "sqlite:////var/lib/vgpuctl/store.db"),
        ("sqlite://u:pw@db1/x", "sqlite://u:***@db1/x"),
        ("host=db1 password=pw", "…"),
    ],
)  # fmt: skip
def test_of_a_url_only_what_is_certain_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_no_password_of_any_signs_comes_through() -> None:
    signs = random.Random(1)
    for _ in range(20_000):
        password = "".join(signs.choice("@/:?#&=%[]\\'\" ab1,;!$") for _ in range(signs.randint(0, 8)))
        for secret in (f"{password}Q7x", f"Q7x{password}", f"{password}Q7x{password}"):
            url = f"postgresql://vgpu:{secret}@db1/vgpuctl"
            assert "Q7x" not in shown_url(url), url
            if " " not in secret:
                assert "Q7x" not in without_passwords(f"refused {url} by"), url


@pytest.mark.parametrize(
    "name",
    [
        *("ansible_ssh_pass", "ansible_password", "ansible_become_pass", "ansible_sudo_pass", "db_pw", "dbPassword"),
        *("API_KEY", "AWS_SECRET_ACCESS_KEY", "join-token", "licence_token", "vault_key", "passphrase"),
        *("GITLAB_TOKEN", "mysql_pwd", "storage_account_key", "credentials", "basic_auth", "Password2", "otp"),
        "snmp_community",
    ],
)  # fmt: skip
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("ansible_host", "ansible_user", "ansible_port", "ansible_become", "ansible_ssh_private_key_file", "rack"),
        *("vgpu", "passthrough", "ansible_host_key_checking", "public_key", "token_file", "has_password", "PWD"),
        *("OLDPWD", 7),
    ],
)  # fmt: skip
def test_another_name_is_none(name: object) -> None:
    assert not is_secret_name(name)


def test_names_of_commands_are_known() -> None:
    assert holds_command("ansible_ssh_common_args") and holds_command("command") and holds_command("memory_test")
    assert not holds_command("kernel_arguments")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("root", "root"),
        ("root:pw", "root:…"),
        ("root:pw@gpu1", "…@gpu1"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_password_in_a_login_is_hidden(text: str, shown: str) -> None:
    assert shown_login(text) == shown


def test_words_are_hidden_wherever_they_stand_and_short_ones_alone() -> None:
    assert without_words("abcdef ab cab ab.", ["abcd", "ab"]) == "***ef *** cab ***."


def test_what_is_assigned_to_names_of_secrets_is_hidden() -> None:
    text = """line 3: ansible_password: pw1, "token": "a b" url=http://u:pw2@h/x port: 22"""
    assert without_assigned(text) == """line 3: ansible_password: ***, "token": *** url=http://u:***@h/x port: 22"""
