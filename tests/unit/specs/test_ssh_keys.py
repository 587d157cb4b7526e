# SPDX-License-Identifier: Apache-2.0
"""Public SSH keys and files of them, as sshd reads them."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.specs.ssh_keys import lines_of_keys, parse_ssh_key

DATA = "AAAAC3NzaC1lZDI1NTE5AAAAIFfxXoE3aOt7fGFcX4TnYCwfDXvYB9SlxT3kzyRVZpQh"
KEY = f"ssh-ed25519 {DATA}"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"{KEY}", KEY),
        (f"  {KEY} me@here \n", f"{KEY} me@here"),
        (f"ssh-ed25519\t{DATA}\tme and  you", f"{KEY} me and  you"),
        (f"ssh-ed25519   {DATA}", KEY),
        (f'from="10.0.0.*,!10.0.0.9",no-pty {KEY} me', f'from="10.0.0.*,!10.0.0.9",no-pty {KEY} me'),
        (f'command="echo \\"a b\\"" {KEY}', f'command="echo \\"a b\\"" {KEY}'),
        (f"restrict {KEY}", f"restrict {KEY}"),
    ],
)
def test_a_line_of_authorized_keys_is_one_key(written: str, read: str) -> None:
    assert parse_ssh_key(written) == read


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "no public key"),
        ("AAAA", "no public key"),
        ("ssh-ed25519 AAAA\nssh-rsa AAAA", "no public key"),
        ("ssh-ed25519 AAAA=A", "no public key"),
        ("ssh-ed25519 AAAAA", "cut or changed"),
        (f"ssh-rsa {DATA}", "its data says otherwise"),
        (f"no pty {KEY}", "no public key"),
        (f'from="10.0.0.* {KEY}', "no public key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "private key"),
    ],
)
def test_what_is_no_public_key_is_refused(key: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_ssh_key(key)


def test_a_private_key_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_ssh_key("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1")
    assert "b3Blb" not in str(caught.value)


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\udcc3", "\uffff"])
def test_a_key_with_a_character_that_yaml_cannot_hold_is_refused(character: str) -> None:
    with pytest.raises(UsageError, match="control character"):
        parse_ssh_key(f"{KEY} a{character}x")


def test_a_file_has_several_keys_comments_and_empty_lines() -> None:
    text = f"# of the team\n\n{KEY} a\n  # old\n\t{KEY} b\r\n"
    assert [parse_ssh_key(line) for line in lines_of_keys(text)] == [f"{KEY} a", f"{KEY} b"]
    for empty in ("", "# nobody\n"):
        with pytest.raises(UsageError, match="no public key"):
            [parse_ssh_key(line) for line in lines_of_keys(empty)]
    with pytest.raises(UsageError, match="private key"):
        [parse_ssh_key(line) for line in lines_of_keys("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n")]
