# SPDX-License-Identifier: Apache-2.0
"""ssh is asked once for all hosts where it would answer the same, and then its answers are the same."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from vgpuctl.hosts.ssh_program import Answer, SshProgram, read_answer

# Address, user, port: each configuration is asked about all of these in turn.
HOSTS: tuple[tuple[str, str | None, int | None], ...] = (
    ("gpu1.example", None, None),
    ("gpu2.example", None, None),
    ("gpu2.example", "me", 2222),
    ("bastion", "me", 2222),
    ("10.0.0.1", "other", 22),
    ("10.0.0.2", "other", 22),
    ("10.0.2", None, 22),  # ssh writes it 10.0.0.2
    ("GPU3.example", None, 22),
    ("::1", None, 22),
    ("0:0:0:0:0:0:0:1", None, 22),
)
SAME = """
# Host gpu2.example
# made from %h
UserKnownHostsFile ~/.ssh/known /b
HostKeyAlias alias
IdentityFile ~/.ssh/key
ProxyCommand nc proxy 22
"""
DIFFERENT = {
    "a section": "Host gpu2.example\n User x\n",
    "a section in the middle": "Port 5\nHost gpu*\n Port 7\nHost *\n Compression yes\n",
    "a section with =": "host=gpu2.example\n Port 7\n",
    "a section in quotes": '  "Host" "gpu2.example"\n Port 7\n',
    "a match": "Match host gpu2.example\n Port 7\n",
    "a match of a user": "Match user me\n HostKeyAlias x\n",
    "a final match": "Match final host gpu2.example\n Port 7\n",
    "canonical names": "CanonicalizeHostname yes\nCanonicalizeMaxDots 0\n",
    "a name made of the host's": "HostName %h.rack\n",
    "a file for each": "UserKnownHostsFile ~/.ssh/%h\n",
    "a jump host": "ProxyJump bastion\n",
}


def fresh(config: Path, address: str, user: str | None, port: int | None) -> Answer:
    """The answer of a new process."""
    own = [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    argv = ["ssh", "-G", "-T", "-F", str(config), *own, "--", address]
    return read_answer(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def counting(tmp_path: Path) -> tuple[SshProgram, Path]:
    """ssh, and a file that gets a line each time that it is started."""
    program, log = tmp_path / "ssh", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho started >>{log}\nexec ssh "$@"\n')
    program.chmod(0o755)
    return SshProgram(str(program)), log


def starts(counting: tuple[SshProgram, Path], config: Path, hosts: Sequence[tuple[str, str | None, int | None]]) -> int:
    """Ask about the hosts, compare each answer with that of a new process, and count the processes."""
    ssh, log = counting
    for address, user, port in hosts:
        answer = dict(ssh.ask(["-F", str(config)], address, name="gpu", user=user, port=port))
        expected = dict(fresh(config, address, user, port))
        for one in (answer, expected):  # as it was typed, and a level that -v raises; nobody reads these
            del one["host"], one["loglevel"]
        assert answer == expected
    return len(log.read_text().splitlines())


@pytest.mark.parametrize(
    "config", ["", SAME, "Host *\n User x\nMatch all\n Port 7\nMatch final all\n Compression yes\n"]
)
def test_without_a_difference_ssh_is_started_once_for_hosts_of_one_kind(
    config: str, counting: tuple[SshProgram, Path], tmp_path: Path
) -> None:
    (tmp_path / "included").write_text(config)
    (tmp_path / "config").write_text(f"Include {tmp_path}/included\n")
    # One for each set of what the inventory names, and one for each address that ssh writes in another way.
    assert starts(counting, tmp_path / "config", HOSTS) == 3 + 3


@pytest.mark.parametrize("config", DIFFERENT.values(), ids=DIFFERENT)
def test_where_hosts_may_differ_ssh_is_asked_about_each(
    config: str, counting: tuple[SshProgram, Path], tmp_path: Path
) -> None:
    (tmp_path / "included").write_text(config)
    (tmp_path / "config").write_text(f"Include {tmp_path}/included\n")
    assert starts(counting, tmp_path / "config", HOSTS) == len(HOSTS)


def test_an_option_that_names_the_host_by_a_token_is_asked_about_each(counting: tuple[SshProgram, Path]) -> None:
    ssh, log = counting
    for name in ("gpu1", "gpu2"):
        answer = ssh.ask(["-F", "none", "-o", "hostname=%h.rack"], name, name=name)
        assert answer["hostname"] == [f"{name}.rack"]
    for name in ("gpu1", "gpu2"):
        assert ssh.ask(["-F", "none", "-o", "compression=yes"], name, name=name)["hostname"] == [name]
    assert len(log.read_text().splitlines()) == 2 + 1
