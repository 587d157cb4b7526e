# SPDX-License-Identifier: Apache-2.0
"""Reaching a host and logging in: addresses, keys, agent, and what is said when it does not work."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.ssh.test_commands import wait_until
from tests.sshd_fixture import LoopbackSshd, make_key
from vgpuctl.errors import AuthenticationFailed, CommandTimedOut, FileNotTrusted, HostUnreachable
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import Secret


def open_and_close(target: HostTarget, settings: SshSettings) -> None:
    with Connection(target, settings=settings) as connection:
        connection.open()


def logged_in_by(sshd: LoopbackSshd, target: HostTarget, settings: SshSettings) -> str:
    """Log in; return the server's own line on what it accepted."""
    before = len(sshd.accepted)
    open_and_close(target, settings)
    wait_until(lambda: len(sshd.accepted) > before)
    (line,) = sshd.accepted[before:]
    return line


@contextmanager
def running_agent(folder: Path) -> Iterator[Path]:
    path = folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        # It prints its variables once it listens; the socket's file is there before.
        assert agent.stdout.readline(), "ssh-agent ended"
        yield path
    finally:
        agent.terminate()
        agent.communicate(timeout=5)


def add_to_agent(agent: Path, key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": str(agent)}, check=True)


def test_a_refused_connection_names_address_and_answer(sshd: LoopbackSshd) -> None:
    with socket.socket() as bound:
        # Bound but not listening: nobody else can get the port meanwhile.
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(
            HostUnreachable, match=f"no connection to 127.0.0.1 port {port}: Connection refused"
        ) as caught:
            open_and_close(sshd.target(port=port), sshd.settings())
    assert caught.value.context == (), "the message has the answer of the only address"
    assert "ansible_port" in str(caught.value.hint)


def test_an_unknown_name_says_that_it_cannot_be_resolved(sshd: LoopbackSshd) -> None:
    with pytest.raises(HostUnreachable, match=r"the name no-such-host\.invalid cannot be resolved"):
        open_and_close(sshd.target(address="no-such-host.invalid"), sshd.settings())


def test_no_route_says_so(sshd: LoopbackSshd) -> None:
    # The broadcast address: no TCP connection can go there, whatever the machine's routes are.
    with pytest.raises(HostUnreachable, match=r"no connection to 255\.255\.255\.255 port 22: .*unreachable"):
        open_and_close(sshd.target(address="255.255.255.255", port=22), sshd.settings(connect_timeout_s=0.3))


def test_a_silent_port_times_out(sshd: LoopbackSshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(HostUnreachable, match=f"127.0.0.1 port {port} accepted the connection but"):
            open_and_close(sshd.target(port=port), sshd.settings(connect_timeout_s=0.5))


def test_a_full_backlog_times_out(sshd: LoopbackSshd) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        with pytest.raises(HostUnreachable, match=r"no answer within 0\.4 s"):
            open_and_close(sshd.target(port=address[1]), sshd.settings(connect_timeout_s=0.4))
        for client in waiting:
            client.close()


def test_a_port_that_says_nothing_is_told_with_what_to_look_at(sshd: LoopbackSshd) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(HostUnreachable, match="SSH handshake") as failed,
    ):
        open_and_close(sshd.target(port=silent.getsockname()[1]), sshd.settings(connect_timeout_s=0.5))
    assert "overloaded" in (failed.value.hint or "")


def test_a_port_that_does_not_speak_ssh_says_so(sshd: LoopbackSshd) -> None:
    program = "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint(s.getsockname()[1],flush=True)\n"
    program += "while True:\n c,_=s.accept()\n c.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\n c.close()\n"
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        with server.stdout as stream:
            port = int(stream.readline())
        with pytest.raises(HostUnreachable, match="SSH handshake failed") as failed:
            open_and_close(sshd.target(port=port), sshd.settings(connect_timeout_s=3))
        assert "hosts.deny" not in (failed.value.hint or ""), "something answers, and it is no SSH server"
    finally:
        server.kill()
        server.wait()


def test_a_server_that_stops_answering_ends_the_command_in_time(sshd: LoopbackSshd) -> None:
    with Connection(sshd.target(), settings=sshd.settings()) as connection:
        session = int(connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout)
        os.kill(session, signal.SIGSTOP)
        try:
            with pytest.raises(CommandTimedOut, match=r"the SSH server did not start a command within 0\.5 s"):
                connection.run(["true"], timeout_s=0.5)
        finally:
            os.kill(session, signal.SIGCONT)


def test_a_key_file_that_is_missing_is_named_in_the_hint(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=str(tmp_path / "nope"), user="root"), sshd.settings())
    assert f"key {tmp_path}/nope: no such file" in str(caught.value.hint)


def test_a_wrong_user_or_key_says_what_was_tried(sshd: LoopbackSshd, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger", "ed25519")
    target = sshd.target(private_key_file=str(tmp_path / "stranger"), user="root")
    with pytest.raises(AuthenticationFailed, match=f"127.0.0.1 port {sshd.port} refused to log in root") as caught:
        open_and_close(target, sshd.settings())
    assert caught.value.context[0].startswith(f"tried: key {tmp_path}/stranger (SHA256:")
    assert caught.value.context[-1] == "the server accepts: publickey"
    assert "ansible_user (it is root)" in str(caught.value.hint)
    with pytest.raises(AuthenticationFailed, match="refused to log in no-such-user"):
        open_and_close(sshd.target(user="no-such-user"), sshd.settings())


def test_no_key_at_all_says_how_to_give_one(sshd: LoopbackSshd) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=None), sshd.settings())
    assert caught.value.context == (
        "tried: nothing, there was no key or password",
        "the server accepts: publickey",
    )
    assert "ansible_ssh_private_key_file" in str(caught.value.hint)


def test_a_missing_key_file_is_named(sshd: LoopbackSshd) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file="/no/key"), sshd.settings())
    assert "not tried: key /no/key: no such file" in caught.value.context


def test_a_key_file_that_others_may_read_is_named_with_the_command_that_closes_it(
    sshd: LoopbackSshd, tmp_path: Path
) -> None:
    make_key(tmp_path / "open", "ed25519")
    (tmp_path / "open").chmod(0o644)
    target = sshd.target(private_key_file=str(tmp_path / "open"))
    with pytest.raises(FileNotTrusted, match=r"the key .*/open is not used: it may be read by every user") as refused:
        open_and_close(target, sshd.settings())
    assert f"`chmod o-r {tmp_path}/open`" in str(refused.value.hint)
    with running_agent(tmp_path) as agent:
        make_key(tmp_path / "stranger", "ed25519")
        add_to_agent(agent, tmp_path / "stranger")
        with pytest.raises(AuthenticationFailed) as failed:
            open_and_close(target, sshd.settings(f"IdentityAgent {agent}"))
    assert f"`chmod o-r {tmp_path}/open`" in str(failed.value.hint)
    with pytest.raises(AuthenticationFailed):
        open_and_close(replace(target, password=Secret("wrong")), sshd.settings())


@pytest.mark.parametrize("text", ["", "garbage", "-----BEGIN OPENSSH PRIVATE KEY-----\nxxxx\n"])
def test_a_broken_key_file_is_named(sshd: LoopbackSshd, tmp_path: Path, text: str) -> None:
    (tmp_path / "broken").write_text(text)
    (tmp_path / "broken").chmod(0o600)
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=str(tmp_path / "broken")), sshd.settings())
    assert any("broken: not a private key that can be used" in line for line in caught.value.context)


def test_a_public_key_in_place_of_the_private_one_is_named(sshd: LoopbackSshd) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=f"{sshd.client_key}.pub"), sshd.settings())
    assert any("client_key.pub" in line for line in caught.value.context)


def test_an_encrypted_key_asks_for_the_agent_and_works_with_it(sshd: LoopbackSshd, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    make_key(locked, "ed25519", passphrase="secret words")
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=str(locked)), sshd.settings())
    assert caught.value.hint == f"load the key into an agent: `ssh-add {locked}`"
    with running_agent(tmp_path) as agent:
        add_to_agent(agent, sshd.client_key)
        target = sshd.target(private_key_file=str(locked))
        open_and_close(target, sshd.settings(f"IdentityAgent {agent}"))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_log_in(sshd: LoopbackSshd, tmp_path: Path, kind: str) -> None:
    key = tmp_path / kind
    make_key(key, kind)
    with sshd.admits(Path(f"{key}.pub").read_text()):
        line = logged_in_by(sshd, sshd.target(private_key_file=str(key)), sshd.settings())
    assert f" ssh2: {kind.upper()} SHA256:" in line


def test_default_keys_are_tried_when_none_is_named(sshd: LoopbackSshd) -> None:
    settings = sshd.settings(f"IdentityFile /no/id_ed25519\nIdentityFile {sshd.client_key}")
    assert " ssh2: ED25519 SHA256:" in logged_in_by(sshd, sshd.target(private_key_file=None), settings)


def test_the_agent_alone_is_enough(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent:
        add_to_agent(agent, sshd.client_key)
        settings = sshd.settings(f"IdentityAgent {agent}")
        assert " ssh2: ED25519 SHA256:" in logged_in_by(sshd, sshd.target(private_key_file=None), settings)


def test_identities_only_keeps_other_keys_of_the_agent_back(sshd: LoopbackSshd, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    make_key(stranger, "ed25519")
    with running_agent(tmp_path) as agent:
        add_to_agent(agent, sshd.client_key)
        settings = sshd.settings(f"IdentityAgent {agent}")
        target = sshd.target(private_key_file=str(stranger), common_args="-o IdentitiesOnly=yes")
        with pytest.raises(AuthenticationFailed):
            open_and_close(target, settings)
        # Only the public half of the chosen key is here, as on a machine with a hardware token.
        public_only = tmp_path / "token"
        Path(f"{public_only}.pub").write_text(Path(f"{sshd.client_key}.pub").read_text())
        open_and_close(sshd.target(private_key_file=str(public_only), common_args="-o IdentitiesOnly=yes"), settings)


def test_a_dead_agent_is_named(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=None), sshd.settings(f"IdentityAgent {tmp_path}/gone"))
    assert any(line.startswith(f"not tried: agent {tmp_path}/gone") for line in caught.value.context)


def test_too_many_keys_are_told_as_a_refused_login(sshd: LoopbackSshd, tmp_path: Path) -> None:
    keys = [tmp_path / f"key{number}" for number in range(7)]
    for key in keys:
        make_key(key, "ed25519")
    arguments = " ".join(f"-i {key}" for key in keys)
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=None, common_args=arguments), sshd.settings())
    assert len([line for line in caught.value.context if line.startswith("tried: ")]) >= 5


def test_a_password_the_server_does_not_take_is_not_shown(sshd: LoopbackSshd) -> None:
    target = sshd.target(private_key_file=None, password="very secret")
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(target, sshd.settings())
    assert "tried: password" in caught.value.context
    shown = repr((target, caught.value.message, caught.value.context, caught.value.hint))
    assert "very secret" not in shown


def test_no_warning_and_no_paramiko_at_import() -> None:
    program = "import sys, vgpuctl.hosts.connection, vgpuctl.hosts.fleet; sys.exit('paramiko' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", program], check=False).returncode == 0


def test_a_failed_login_prints_nothing(sshd: LoopbackSshd, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AuthenticationFailed):
        open_and_close(sshd.target(private_key_file=None), sshd.settings())
    assert capfd.readouterr() == ("", "")
