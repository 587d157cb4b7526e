# SPDX-License-Identifier: Apache-2.0
"""known_hosts, each case decided against a real server."""

import logging
import subprocess
from pathlib import Path

import pytest

from tests.sshd_fixture import LoopbackSshd, make_key
from vgpuctl.errors import HostKeyChanged, HostKeyUnknown
from vgpuctl.hosts.connection import Connection


def log_in(sshd: LoopbackSshd, known_hosts: Path, **changes: object) -> None:
    with Connection(sshd.target(**changes), settings=sshd.settings(known_hosts_file=known_hosts)) as connection:
        connection.open()


def other_key(folder: Path, kind: str = "ed25519") -> str:
    make_key(folder / f"other_{kind}", kind)
    return " ".join((folder / f"other_{kind}.pub").read_text().split()[:2])


def test_an_unknown_key_gives_a_command_that_accepts_it(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known hosts"
    with pytest.raises(HostKeyUnknown, match="is not in") as caught:
        log_in(sshd, known)
    assert sshd.fingerprint() in caught.value.context[0]
    hint = str(caught.value.hint)
    command = hint.partition("`")[2].rpartition("`")[0]
    assert command == f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> '{known}'"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=20)
    log_in(sshd, known)


def test_no_key_is_to_be_written_into_a_folder_that_is_not_there(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with pytest.raises(HostKeyUnknown) as caught:
        log_in(sshd, tmp_path / "shh" / "known_hosts")
    hint = str(caught.value.hint)
    assert f"no folder {tmp_path / 'shh'}" in hint and "ssh-keyscan" not in hint
    with pytest.raises(HostKeyUnknown) as caught:
        log_in(sshd, tmp_path / "known_hots")
    assert "is UserKnownHostsFile right? Then compare" in str(caught.value.hint)


def test_a_changed_key_shows_both_fingerprints_and_the_line(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"# mine\n[127.0.0.1]:{sshd.port} {other_key(tmp_path)}\n")
    with pytest.raises(HostKeyChanged, match=f"another than the one in {known}:2") as caught:
        log_in(sshd, known)
    shown = "\n".join(caught.value.context)
    assert sshd.fingerprint() in shown
    other = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "other_ed25519.pub"], capture_output=True, check=True)
    assert other.stdout.decode().split()[1] in shown
    command = str(caught.value.hint).partition("`")[2].rpartition("`")[0]
    assert command == f"ssh-keygen -f {known} -R '[127.0.0.1]:{sshd.port}'"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=20)
    with pytest.raises(HostKeyUnknown):
        log_in(sshd, known)


def test_without_checking_an_unknown_key_is_accepted_with_a_warning(
    sshd: LoopbackSshd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = tmp_path / "known_hosts"
    with caplog.at_level(logging.WARNING, "vgpuctl.hosts"):
        log_in(sshd, known, host_key_checking=False)
        log_in(sshd, known, common_args="-o StrictHostKeyChecking=no")
    assert [sshd.fingerprint() in record.getMessage() for record in caplog.records] == [True, True]
    assert not known.exists()


def test_without_checking_a_changed_key_is_still_refused(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {other_key(tmp_path)}\n")
    with pytest.raises(HostKeyChanged):
        log_in(sshd, known, host_key_checking=False)


def test_a_hashed_entry_is_found(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    log_in(sshd, known)


@pytest.mark.parametrize("names", ["[127.0.0.1]:{port},other", "[127.*]:{port}", "[127.0.0.?]:*", "127.0.0.1"])
def test_patterns_and_a_name_without_port_are_found(sshd: LoopbackSshd, tmp_path: Path, names: str) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"{names.format(port=sshd.port)} {sshd.public_key()} a comment\n")
    log_in(sshd, known)


def test_a_negated_name_is_not_found(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"*,![127.0.0.1]:* {sshd.public_key()}\n")
    with pytest.raises(HostKeyUnknown):
        log_in(sshd, known, common_args="-o HostKeyAlias=[127.0.0.1]:9")


def test_the_server_is_asked_for_the_kind_of_key_that_is_known(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {sshd.public_key('ecdsa')}\n")
    log_in(sshd, known)


def test_a_key_of_another_kind_than_the_known_one_is_no_unknown_host(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {other_key(tmp_path, 'rsa')}\n")
    with pytest.raises(HostKeyChanged):
        log_in(sshd, known, host_key_checking=False)


def test_a_revoked_key_is_refused(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text() + f"@revoked * {sshd.public_key()}\n")
    with pytest.raises(HostKeyChanged, match=f"is revoked by {known}:3"):
        log_in(sshd, known, host_key_checking=False)


def test_a_certificate_authority_is_said_not_to_be_enough(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"@cert-authority * {sshd.public_key()}\n")
    with pytest.raises(HostKeyUnknown) as caught:
        log_in(sshd, known)
    assert f"{known}:1 trusts a certificate authority" in caught.value.context[1]


def test_lines_that_cannot_be_read_do_not_hide_the_others(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_bytes(
        b"\n# comment\nshort line\nhost ssh-ed25519 !!!\n\xff\xfe nothing here\n|1|x|y ssh-rsa AAAA\n"
        + sshd.known_hosts.read_bytes()
    )
    log_in(sshd, known)


def test_an_alias_and_several_files_are_honoured(sshd: LoopbackSshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"gpu-alias {sshd.public_key()}\n")
    log_in(
        sshd,
        tmp_path / "none",
        common_args=f"-o HostKeyAlias=gpu-alias -o 'UserKnownHostsFile={tmp_path}/missing {known}'",
    )
    with pytest.raises(HostKeyUnknown) as caught:
        log_in(sshd, known, common_args="-o HostKeyAlias=new-alias")
    command = str(caught.value.hint).partition("`")[2].rpartition("`")[0]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=20)
    log_in(sshd, known, common_args="-o HostKeyAlias=new-alias")


def test_a_known_hosts_file_that_cannot_be_read_is_no_empty_one(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with pytest.raises(HostKeyUnknown, match=r"cannot be read: Is a directory"):
        log_in(sshd, tmp_path, host_key_checking=False)


def test_a_key_of_revoked_host_keys_is_refused_whatever_known_hosts_says(sshd: LoopbackSshd, tmp_path: Path) -> None:
    key = tmp_path / "host.pub"
    key.write_text(f"{sshd.public_key()} host\n")
    krl = tmp_path / "krl"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(krl), str(key)], check=True)
    for revoked in (key, krl):
        target = sshd.target(host_key_checking=False)
        with (
            Connection(target, settings=sshd.settings(f"RevokedHostKeys {revoked}")) as connection,
            pytest.raises(HostKeyChanged, match=f"is revoked by {revoked} "),
        ):
            connection.open()


def test_a_list_of_revoked_keys_that_cannot_be_read_trusts_nobody(sshd: LoopbackSshd, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(b"SSHKRL\n\0cut")
    for name in ("missing", "cut"):
        settings = sshd.settings(f"RevokedHostKeys {tmp_path}/{name}")
        with (
            Connection(sshd.target(), settings=settings) as connection,
            pytest.raises(HostKeyUnknown, match=f"RevokedHostKeys {tmp_path}/{name} of ssh_config: "),
        ):
            connection.open()


def test_other_revoked_keys_do_not_matter(sshd: LoopbackSshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other", "ed25519")
    krl = tmp_path / "krl"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(krl), f"{tmp_path}/other.pub"], check=True)
    for revoked in (tmp_path / "other.pub", krl):
        with Connection(sshd.target(), settings=sshd.settings(f"RevokedHostKeys {revoked}")) as connection:
            connection.open()
