# SPDX-License-Identifier: Apache-2.0
"""Servers that share no key exchange, cipher, MAC or kind of host key with us: the error names both lists."""

from pathlib import Path

import pytest

from tests.sshd_fixture import LoopbackSshd, missing_for_sshd
from vgpuctl.errors import WayFailed
from vgpuctl.hosts.connection import Connection

pytestmark = pytest.mark.skipif(missing_for_sshd() is not None, reason=str(missing_for_sshd()))

UNSHARED = [
    ("KexAlgorithms", "sntrup761x25519-sha512@openssh.com", "key exchange", "curve25519-sha256@libssh.org"),
    ("KexAlgorithms", "diffie-hellman-group18-sha512", "key exchange", "ecdh-sha2-nistp256"),
    ("KexAlgorithms", "diffie-hellman-group1-sha1", "key exchange", "diffie-hellman-group16-sha512"),
    ("Ciphers", "chacha20-poly1305@openssh.com", "cipher", "aes256-gcm@openssh.com"),
    ("MACs", "umac-64-etm@openssh.com", "MAC", "hmac-sha2-512-etm@openssh.com"),
    ("MACs", "umac-128@openssh.com,umac-64@openssh.com", "MAC", "hmac-sha2-256"),
    ("MACs", "hmac-md5-96-etm@openssh.com", "MAC", "hmac-sha1"),
    ("HostKeyAlgorithms", "ssh-rsa", "host key", "rsa-sha2-512"),
]


@pytest.mark.parametrize(("option", "theirs", "kind", "ours"), UNSHARED)
def test_the_error_names_both_lists(option: str, theirs: str, kind: str, ours: str, tmp_path: Path) -> None:
    with LoopbackSshd(tmp_path, options=[f"{option} {theirs}"], key_kinds=("rsa",)) as sshd:
        with pytest.raises(WayFailed, match=f"share no {kind} algorithm") as caught:
            _open(sshd)
        (line,) = caught.value.details
        assert line.startswith(f"{kind}: the server offers {theirs.split(',', maxsplit=1)[0]}")
        assert ours in line.partition("vgpuctl has ")[2]


def test_every_kind_that_is_not_shared_is_named_at_once(tmp_path: Path) -> None:
    options = [f"{option} {theirs}" for option, theirs, _kind, _ours in (UNSHARED[1], UNSHARED[3], UNSHARED[4])]
    with LoopbackSshd(tmp_path, options=options) as sshd:
        with pytest.raises(WayFailed, match="share no key exchange and no cipher and no MAC algorithm") as caught:
            _open(sshd)
        assert len(caught.value.details) == 3


@pytest.mark.parametrize(
    "option",
    [
        "KexAlgorithms sntrup761x25519-sha512@openssh.com,diffie-hellman-group14-sha256",
        "Ciphers chacha20-poly1305@openssh.com,aes192-ctr",
        "MACs umac-64-etm@openssh.com,hmac-sha2-512",
    ],
)
def test_one_algorithm_that_is_shared_is_enough(option: str, tmp_path: Path) -> None:
    with LoopbackSshd(tmp_path, options=[option]) as sshd:
        _open(sshd)


def _open(sshd: LoopbackSshd) -> None:
    with Connection(sshd.target(), settings=sshd.settings()) as connection:
        connection.open()
        assert connection.run(["/bin/echo", "reached"], timeout_s=10).stdout == b"reached\n"
