# SPDX-License-Identifier: Apache-2.0
"""ssh_config, ansible_ssh_common_args and jump hosts: what wins, and that it really connects."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.host_targets import host_target
from tests.integration.ssh import stream_proxy
from tests.sshd_fixture import LoopbackSshd, make_key
from vgpuctl.errors import AuthenticationFailed, HostKeyUnknown, HostUnreachable, InventoryError
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import Endpoint, resolve, split_destination
from vgpuctl.hosts.ssh_tokens import own_home
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import ProgramLine


def settings(tmp_path: Path, config: str = "") -> SshSettings:
    path = tmp_path / "config"
    path.write_text(config)
    return SshSettings(ssh_config_file=path)


def resolved(tmp_path: Path, config: str = "", **target: Any) -> Endpoint:
    fields: dict[str, Any] = {"name": "gpu1", "address": "gpu1", **target}
    return resolve(host_target(**fields), settings(tmp_path, config))


def test_nothing_configured_means_defaults(tmp_path: Path) -> None:
    endpoint = resolved(tmp_path, user="me")
    home = Path(own_home())
    assert (endpoint.host, endpoint.port, endpoint.user) == ("gpu1", 22, "me")
    assert home / ".ssh/id_ed25519" in endpoint.identity_files
    assert not endpoint.has_chosen_identities
    assert (endpoint.known_hosts_name, endpoint.accepts_unknown_key) == ("gpu1", False)
    assert endpoint.known_hosts_files[0] == home / ".ssh/known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in endpoint.known_hosts_files


def test_the_commands_known_hosts_goes_before_ssh_config_and_after_the_inventory(tmp_path: Path) -> None:
    own = replace(settings(tmp_path, "UserKnownHostsFile /config"), known_hosts_file=tmp_path / "own hosts")
    (tmp_path / "own hosts").touch()
    assert resolve(HostTarget("gpu1", "gpu1"), own).known_hosts_files[0] == tmp_path / "own hosts"
    there = host_target(common_args="-o UserKnownHostsFile=/inventory")
    assert resolve(there, own).known_hosts_files[0] == Path("/inventory")


def test_every_honoured_key_of_ssh_config_arrives(tmp_path: Path) -> None:
    config = """
    Host gpu1
        HostName %h.rack.example
        Port 2222
        User operator
        IdentityFile ~/.ssh/gpu_%h
        IdentityFile /keys/second
        IdentitiesOnly yes
        IdentityAgent /run/agent
        UserKnownHostsFile /a/%h /b
        GlobalKnownHostsFile /c
        ConnectTimeout 3
        ServerAliveInterval 7
        StrictHostKeyChecking accept-new
        AddressFamily inet
    """
    endpoint = resolved(tmp_path, config)
    home = Path(own_home())
    assert (endpoint.host, endpoint.port, endpoint.user) == ("gpu1.rack.example", 2222, "operator")
    assert endpoint.identity_files == (home / ".ssh/gpu_gpu1.rack.example", Path("/keys/second"))
    assert (endpoint.identities_only, endpoint.agent_socket) == (True, "/run/agent")
    assert endpoint.known_hosts_files == (Path("/a/gpu1.rack.example"), Path("/b"), Path("/c"))
    assert (endpoint.connect_timeout_s, endpoint.keepalive_s, endpoint.address_family) == (3, 7, "inet")
    assert endpoint.accepts_unknown_key
    assert endpoint.known_hosts_name == "[gpu1.rack.example]:2222"


def test_inventory_wins_over_arguments_and_they_over_ssh_config(tmp_path: Path) -> None:
    config = "Host gpu1\n Port 1\n User a\n IdentityFile /c\n HostKeyAlias x\n"
    common = "-p 2 -o User=b -i /b -o HostKeyAlias=y"
    endpoint = resolved(tmp_path, config, common_args=common)
    assert (endpoint.port, endpoint.user, endpoint.known_hosts_name) == (2, "b", "y")
    assert endpoint.identity_files == (Path("/b"), Path("/c"))
    endpoint = resolved(tmp_path, config, common_args=common, port=3, user="c", private_key_file="/a")
    assert (endpoint.port, endpoint.user) == (3, "c")
    assert endpoint.identity_files == (Path("/a"), Path("/b"), Path("/c"))


def test_includes_patterns_and_matches_are_read(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "1.conf").write_text("Host gpu*\n User included\nHost other\n User other\n")
    config = f"Host gpu1 !gpu2\n Include {tmp_path}/more/*.conf\n Port 77\nMatch host gpu1\n ConnectTimeout 9\n"
    endpoint = resolved(tmp_path, config)
    assert (endpoint.user, endpoint.port, endpoint.connect_timeout_s) == ("included", 77, 9)


def test_another_config_file_replaces_both(tmp_path: Path) -> None:
    other = tmp_path / "other config"
    other.write_text("Host gpu1\n User other\n")
    assert resolved(tmp_path, "Host gpu1\n User mine\n", common_args=f"-F '{other}'").user == "other"


def test_jump_hosts_follow_ssh_config_and_their_own_jumps(tmp_path: Path) -> None:
    config = """
    Host gpu1
        ProxyJump first,admin@second:2200
    Host first
        HostName 10.0.0.1
        User jumper
        ProxyJump zero
    """
    endpoint = resolved(tmp_path, config, user="root", private_key_file="/mine")
    assert [(hop.host, hop.port) for hop in endpoint.via] == [("zero", 22), ("10.0.0.1", 22), ("second", 2200)]
    assert [hop.user for hop in endpoint.via][1:] == ["jumper", "admin"]
    assert Path("/mine") not in endpoint.via[0].identity_files


def test_a_jump_on_the_arguments_replaces_ssh_configs_proxy(tmp_path: Path) -> None:
    config = "Host gpu1\n ProxyCommand nc %h %p\n"
    endpoint = resolved(tmp_path, config, common_args="-J a")
    assert (endpoint.proxy_command, len(endpoint.via)) == (None, 1)
    assert resolved(tmp_path, config).proxy_command == ProgramLine("nc gpu1 22")
    assert resolved(tmp_path, config, common_args="-o ProxyCommand=none").proxy_command is None


def test_jump_hosts_in_a_circle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="jump"):
        resolved(tmp_path, "Host *\n ProxyJump other\n")
    with pytest.raises(InventoryError, match="jump hosts behind one another"):
        resolved(tmp_path, "Host a\n ProxyJump b\nHost *\n ProxyJump a\n")


@pytest.mark.parametrize(
    ("common_args", "message"),
    [
        ("-L 80:x:80", "'-L' is not supported"),
        ("-o Ciphers=none", "-o ciphers=… is not supported"),
        ("-o Port", "an option -o is not Key=Value"),
        ("-J", "-J needs a value"),
        ("-o 'User=x", "cannot be read: No closing quotation"),
        ("-o Port=22 extra", "the word number 3 is not supported"),
        ("-F /no/config", "there is no ssh_config file /no/config"),
        ("-p nosuch", "ssh refuses its configuration"),
        ("-J a:b:c", "ssh refuses its configuration"),
    ],
)
def test_arguments_that_are_not_honoured_are_refused(tmp_path: Path, common_args: str, message: str) -> None:
    with pytest.raises(InventoryError) as caught:
        resolved(tmp_path, common_args=common_args)
    assert message in caught.value.message
    assert caught.value.message.startswith("gpu1: ")


def test_usual_ansible_arguments_are_accepted(tmp_path: Path) -> None:
    text = "-o ControlMaster=auto -oControlPersist=60s -o 'ServerAliveInterval 30' -o ForwardAgent=no -p2200"
    endpoint = resolved(tmp_path, common_args=text)
    assert (endpoint.keepalive_s, endpoint.port) == (30, 2200)


@pytest.mark.parametrize("config", ["Host gpu1\n NoValue\n", "Host 'x\n User y\n", "Match host\n User y\n"])
def test_a_broken_ssh_config_is_named(tmp_path: Path, config: str) -> None:
    with pytest.raises(InventoryError, match="gpu1: ssh refuses its configuration: ") as caught:
        resolved(tmp_path, config)
    assert f"{tmp_path}/config" in str((caught.value.message, caught.value.context))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host", (None, "host", None)),
        ("me@host:22", ("me", "host", 22)),
        ("ssh://me@host:22/", ("me", "host", 22)),
        ("[fe80::1]:2200", (None, "fe80::1", 2200)),
        ("a@b@host", ("a@b", "host", None)),
    ],
)
def test_a_destination_is_split_as_ssh_does(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert split_destination(text, what="x") == parts


def jump_config(sshd: LoopbackSshd, *, hop_known_hosts: Path, key: Path | None = None) -> SshSettings:
    return sshd.settings(
        f"Host bastion second\n HostName 127.0.0.1\n Port {sshd.port}\n User root\n"
        f" IdentityFile {key or sshd.client_key}\n UserKnownHostsFile {hop_known_hosts}\n"
    )


def test_two_jump_hosts_lead_to_the_target(sshd: LoopbackSshd, tmp_path: Path) -> None:
    ssh = jump_config(sshd, hop_known_hosts=sshd.known_hosts)
    with Connection(sshd.target(common_args="-J bastion,second"), settings=ssh) as connection:
        data = b"x" * 1_000_000
        assert connection.run(["cat"], timeout_s=20, stdin=data).stdout == data
        assert connection.statistics.read().logins == 3


def test_every_jump_host_is_verified(sshd: LoopbackSshd, tmp_path: Path) -> None:
    ssh = jump_config(sshd, hop_known_hosts=tmp_path / "empty")
    target = sshd.target(common_args="-J bastion", host_key_checking=False)
    with Connection(target, settings=ssh) as connection, pytest.raises(HostKeyUnknown, match="bastion: "):
        connection.open()


def test_a_target_behind_a_jump_host_that_does_not_answer_is_told(sshd: LoopbackSshd, tmp_path: Path) -> None:
    ssh = jump_config(sshd, hop_known_hosts=sshd.known_hosts)
    target = sshd.target(common_args="-J bastion", port=1)
    with (
        Connection(target, settings=ssh) as connection,
        pytest.raises(HostUnreachable, match=r"the jump host before it could not reach 127\.0\.0\.1 port 1"),
    ):
        connection.open()


def test_a_refused_login_on_a_jump_host_names_the_hop(sshd: LoopbackSshd, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger", "ed25519")
    ssh = jump_config(sshd, hop_known_hosts=sshd.known_hosts, key=tmp_path / "stranger")
    with (
        Connection(sshd.target(common_args="-J bastion"), settings=ssh) as connection,
        pytest.raises(AuthenticationFailed, match="bastion: "),
    ):
        connection.open()


def test_a_proxy_command_is_the_stream(sshd: LoopbackSshd) -> None:
    ssh = sshd.settings(f"Host 127.0.0.1\n ProxyCommand {sys.executable} {stream_proxy.__file__} %h %p\n")
    with Connection(sshd.target(), settings=ssh) as connection:
        assert connection.run(["echo", "through"], timeout_s=10).stdout == b"through\n"


@pytest.mark.parametrize(
    ("command", "shown", "message"),
    [
        ("sh -c 'echo no way >&2; exit 3'", "sh …", "ended with exit status 3"),
        ("/no/such/program", "/no/such/program", "ended with exit status 127"),
        ("sleep 60", "sleep …", "led to no SSH server within 0.5 s"),
    ],
)
def test_a_proxy_command_that_fails_tells_what_it_printed(
    sshd: LoopbackSshd, command: str, shown: str, message: str
) -> None:
    ssh = sshd.settings(f"Host 127.0.0.1\n ProxyCommand {command}\n", connect_timeout_s=0.5)
    with Connection(sshd.target(), settings=ssh) as connection, pytest.raises(HostUnreachable) as caught:
        connection.open()
    assert f"ProxyCommand `{shown}` of ssh_config {message}" in caught.value.message
    assert shown == "sh …" or not caught.value.context or "not found" in caught.value.context[0]
