# SPDX-License-Identifier: Apache-2.0
"""Operators' machines of real distributions: their ssh_config files are read as ssh reads them, and log in."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_targets import host_target
from tests.integration.ssh import stream_proxy
from tests.sshd_fixture import LoopbackSshd, make_key
from vgpuctl.errors import HostKeyChanged, HostKeyUnknown, InventoryError
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import Endpoint, resolve
from vgpuctl.hosts.ssh_program import SshProgram
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import ProgramLine

DATA = Path(__file__).parents[2] / "data/ssh_config"
SYSTEMS = sorted(path.name for path in DATA.iterdir() if path.is_dir())


def install(system: str, folder: Path) -> Path:
    """Lay a system's files out below a folder and return its /etc/ssh/ssh_config; programs lie in folder/bin."""
    root = folder / system
    shutil.copytree(DATA / system, root)
    for path in root.rglob("*"):
        if path.is_file():
            text = path.read_text().replace("/etc/", "@ETC@").replace("/usr@ETC@", f"{root}/usr/etc/")
            text = text.replace("@ETC@", f"{root}/etc/")
            path.write_text(text.replace("@SSSD@", f"{folder}/bin").replace("@SYSTEMD@", f"{folder}/bin"))
    (folder / "bin").mkdir(exist_ok=True)
    return root / "etc/ssh/ssh_config"


def program(folder: Path, name: str, script: str) -> Path:
    """Write a shell script into the folder where the system's files expect their programs."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def said_by_ssh(config: Path, host: str) -> dict[str, str]:
    done = subprocess.run(["ssh", "-G", "-T", "-F", str(config), host], capture_output=True, text=True, check=True)
    return dict(reversed([line.split(" ", 1) for line in done.stdout.splitlines()]))


def resolved(config: Path, address: str = "gpu1", **target: object) -> Endpoint:
    return resolve(host_target("gpu1", address, **target), SshSettings(ssh_config_file=config))


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_answer_is_ssh_s_own(system: str, tmp_path: Path) -> None:
    config = install(system, tmp_path)
    said, endpoint = said_by_ssh(config, "gpu1"), resolved(config)
    assert (endpoint.host, endpoint.user, str(endpoint.port)) == (said["hostname"], said["user"], said["port"])
    program = endpoint.proxy_command.program if endpoint.proxy_command else "none"
    assert program == said.get("proxycommand", "none").partition(" ")[0]
    assert [str(path) for path in endpoint.known_hosts_files[:2]] == said["userknownhostsfile"].split()
    assert bool(endpoint.ways_not_tried) == (said["gssapiauthentication"] == "yes")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_user_s_own_sections_win_over_the_system_s(system: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(f"Host gpu1\n User me\n Port 2222\n ConnectTimeout 1m\nInclude {install(system, tmp_path)}\n")
    endpoint = resolved(own)
    assert (endpoint.user, endpoint.port, endpoint.connect_timeout_s) == ("me", 2222, 60)


def test_a_new_freeipa_names_its_command(tmp_path: Path) -> None:
    endpoint = resolved(install("freeipa", tmp_path), port=2222)
    assert endpoint.known_hosts_command == ProgramLine(f"{tmp_path}/bin/sss_ssh_knownhosts %H")


def test_an_old_freeipa_goes_through_its_proxy(tmp_path: Path) -> None:
    endpoint = resolved(install("freeipa-old", tmp_path), port=2222)
    assert endpoint.proxy_command == ProgramLine(f"{tmp_path}/bin/sss_ssh_knownhostsproxy -p 2222 gpu1")
    assert Path("/var/lib/sss/pubconf/known_hosts") in endpoint.known_hosts_files


def test_a_proxy_that_hands_over_a_descriptor_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="ProxyUseFdpass"):
        resolved(install("systemd", tmp_path), "unix/run/socket")


@pytest.mark.parametrize(
    ("section", "applies"),
    [
        ("Match final all", True),
        ("Match exec true", True),
        ("Match exec false", False),
        ("Match host gpu1 user login", True),
        ("Match user other", False),
        ("Match originalhost gpu2", False),
    ],
)
def test_a_section_counts_when_ssh_says_so(section: str, applies: bool, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"{section}\n  HostKeyAlias alias\n")
    assert resolved(tmp_path / "config", user="login").known_as == ("alias" if applies else None)


@pytest.mark.parametrize("criterion", ["tagged x", "nosuch x"])
def test_a_criterion_that_this_ssh_does_not_know_never_applies(criterion: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Match {criterion}\n  User wrong\n")
    try:
        assert resolved(tmp_path / "config").user != "wrong"
    except InventoryError as exc:
        assert "ssh refuses its configuration" in exc.message
        assert f"{tmp_path}/config" in str((exc.message, exc.context))


def test_a_missing_ssh_is_named(tmp_path: Path) -> None:
    settings = SshSettings(ssh=SshProgram(str(tmp_path / "ssh")))
    with pytest.raises(InventoryError, match=r"OpenSSH's client .* was not found") as caught:
        resolve(HostTarget("gpu1", "gpu1"), settings)
    assert "openssh-clients" in str(caught.value.hint)


def without_known_hosts(sshd: LoopbackSshd, folder: Path, config: Path) -> SshSettings:
    """Settings of a machine with a system's files whose user knows no host."""
    return sshd.settings(
        f"UserKnownHostsFile {folder}/none\nGlobalKnownHostsFile {folder}/none\nInclude {config}\nMatch all\n"
    )


@pytest.mark.parametrize("system", [name for name in SYSTEMS if not name.startswith("freeipa")])
def test_a_login_works_from_each(system: str, sshd: LoopbackSshd, tmp_path: Path) -> None:
    settings = sshd.settings(f"Include {install(system, tmp_path)}\nMatch all\n")
    with Connection(sshd.target(), settings=settings) as connection:
        assert connection.run(["echo", "in"], timeout_s=10).stdout == b"in\n"


def test_freeipa_s_keys_are_trusted(sshd: LoopbackSshd, tmp_path: Path) -> None:
    config = install("freeipa", tmp_path)
    program(tmp_path, "sss_ssh_knownhosts", f'echo "$@" >> {tmp_path}/asked\necho "$1 {sshd.public_key()}"')
    with Connection(sshd.target(), settings=without_known_hosts(sshd, tmp_path, config)) as connection:
        assert connection.run(["echo", "in"], timeout_s=10).stdout == b"in\n"
    assert (tmp_path / "asked").read_text() == f"[127.0.0.1]:{sshd.port}\n" * 2


def test_an_old_freeipa_s_proxy_carries_the_login(sshd: LoopbackSshd, tmp_path: Path) -> None:
    config = install("freeipa-old", tmp_path)
    program(tmp_path, "sss_ssh_knownhostsproxy", f'exec {sys.executable} {stream_proxy.__file__} "$3" "$2"')
    settings = sshd.settings(f"Include {config}\nMatch all\n")
    with Connection(sshd.target(), settings=settings) as connection:
        assert connection.run(["echo", "in"], timeout_s=10).stdout == b"in\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no ticket >&2; exit 3", "ended with exit status 3"),
        ("exec head -c 3000000 /dev/zero", "printed more than 1 MiB"),
        ("kill -9 $$", "ended with exit status -9"),
    ],
)
def test_a_command_that_fails_ends_the_login_in_its_own_words(
    script: str, message: str, sshd: LoopbackSshd, tmp_path: Path
) -> None:
    path = program(tmp_path, "keys", script)
    settings = sshd.settings(f"UserKnownHostsFile {tmp_path}/none\nKnownHostsCommand {path} %H")
    with (
        Connection(sshd.target(), settings=settings) as connection,
        pytest.raises(HostKeyUnknown, match=f"KnownHostsCommand `{path} .*` of ssh_config {message}") as caught,
    ):
        connection.open()
    assert ("no ticket" in script) == ("no ticket" in caught.value.context)


def test_the_command_is_told_the_key_and_may_judge_it(sshd: LoopbackSshd, tmp_path: Path) -> None:
    kind, key = sshd.public_key().split()
    script = f'[ "$2" = HOSTNAME ] || exit 0\n[ "$3 $4 $5" = "{kind} {key} {sshd.fingerprint()}" ] && echo "$1 $3 $4"'
    path = program(tmp_path, "keys", script)
    settings = sshd.settings(f"UserKnownHostsFile {tmp_path}/none\nKnownHostsCommand {path} %H %I %t %K %f")
    with Connection(sshd.target(), settings=settings) as connection:
        assert connection.run(["echo", "trusted"], timeout_s=10).stdout == b"trusted\n"


def test_another_key_from_the_command_is_a_changed_one(sshd: LoopbackSshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other", "ed25519")
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    path = program(tmp_path, "keys", f'echo "$1 {other}"')
    settings = sshd.settings(f"UserKnownHostsFile {tmp_path}/none\nKnownHostsCommand {path} %H")
    with Connection(sshd.target(), settings=settings) as connection, pytest.raises(HostKeyChanged) as caught:
        connection.open()
    assert f"correct the key where `{path} …` of ssh_config has it from" in str(caught.value.hint)


def test_a_key_that_the_command_does_not_know_is_unknown(sshd: LoopbackSshd, tmp_path: Path) -> None:
    path = program(tmp_path, "keys", "exit 0")
    settings = sshd.settings(f"UserKnownHostsFile {tmp_path}/none\nKnownHostsCommand {path} %H")
    with Connection(sshd.target(), settings=settings) as connection, pytest.raises(HostKeyUnknown) as caught:
        connection.open()
    assert any(line.startswith(f"KnownHostsCommand `{path}") for line in caught.value.context)
