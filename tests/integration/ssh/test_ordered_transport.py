# SPDX-License-Identifier: Apache-2.0
"""A message that is late for its channel does not end the connection, with all commands on it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF

from tests.sshd_fixture import LoopbackSshd, missing_for_sshd
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.ordered_transport import ChannelMessage, OrderedChannel, OrderedTransport


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[Any]:
    """The transport of a connection that has run a command."""
    if missing := missing_for_sshd():
        pytest.skip(missing)
    with LoopbackSshd(tmp_path / "sshd") as server, Connection(server.target(), settings=server.settings()) as opened:
        assert opened.run(["cat"], stdin=b"given", timeout_s=30).stdout == b"given"
        found = opened._transport()
        assert isinstance(found, OrderedTransport)
        yield cast("Any", found)


def ended_channel(transport: Any) -> paramiko.Channel:
    """A channel whose command has ended, and which the host has forgotten."""
    channel: paramiko.Channel = transport.open_session()
    channel.exec_command("true")
    assert channel.recv_exit_status() == 0
    while not channel.closed:
        time.sleep(0.01)
    transport.global_request("keepalive@openssh.com")  # answered after our last word on the channel was read
    return channel


def message(channel: paramiko.Channel, kind: bytes, made_by: paramiko.Message) -> paramiko.Message:
    """The end of stdin or a byte of it, as a thread has made it that was interrupted before it could send it."""
    if not isinstance(made_by, ChannelMessage):
        made_by.add_byte(kind)
        made_by.add_int(channel.remote_chanid)
    if kind == cMSG_CHANNEL_DATA:
        made_by.add_string(b"x")
    return made_by


def test_every_channel_makes_messages_that_know_it(transport: Any) -> None:
    """Those to a host behind a jump host too, whose stream is a channel."""
    behind = transport.open_channel("direct-tcpip", transport.sock._stream.getpeername(), ("127.0.0.1", 0), timeout=30)
    session = transport.open_session(timeout=30)
    assert [type(one) for one in (behind, session)] == [OrderedChannel, OrderedChannel]
    assert behind.recv(4) == b"SSH-"
    behind.sendall(b"SSH-2.0-test\r\n")
    session.exec_command("cat")
    session.sendall(b"given")
    session.shutdown(1)
    assert session.makefile().read() == b"given"


@pytest.mark.parametrize("kind", [cMSG_CHANNEL_EOF, cMSG_CHANNEL_DATA], ids=["end", "data"])
def test_a_message_that_is_late_for_its_channel_is_left_out(transport: Any, kind: bytes) -> None:
    channel = ended_channel(transport)
    transport._send_user_message(message(channel, kind, ChannelMessage(channel, kind)))
    again = transport.open_session(timeout=30)
    again.exec_command("echo alive")
    assert again.makefile().read() == b"alive\n"


@pytest.mark.parametrize("kind", [cMSG_CHANNEL_EOF, cMSG_CHANNEL_DATA], ids=["end", "data"])
def test_the_host_ends_the_connection_for_such_a_message(transport: Any, kind: bytes) -> None:
    """So the test above can fail."""
    channel = ended_channel(transport)
    transport._send_user_message(message(channel, kind, paramiko.Message()))
    with pytest.raises((paramiko.SSHException, EOFError, OSError)):
        transport.open_session(timeout=30)
    assert not transport.is_active()
