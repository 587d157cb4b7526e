# SPDX-License-Identifier: Apache-2.0
"""Hosts that send too much or anything but the protocol: their own error, within bounds, and the others go on."""

import json
import resource
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sshd_fixture import LoopbackSshd
from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import AgentBroken, HostUnreachable, TooMuchOutput, VgpuctlError
from vgpuctl.hosts.agent_bootstrap import ANSWER
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.fleet import run_on_hosts

FLOOD_MIB = 500
MOST_GROWTH_KIB = 120 * 1024


def largest_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_flood_is_neither_held_nor_waited_for(where: str, connection: Connection) -> None:
    before = largest_kib()
    flood = ["sh", "-c", f"head -c {150 if where else FLOOD_MIB}M /dev/zero {where}; exit 3"]
    if where:
        completed = connection.run(flood, timeout_s=120)
        assert completed.exit_status == 3
        assert b"bytes left out]" in completed.stderr
        assert len(completed.stderr) < 200_000
    else:
        with pytest.raises(TooMuchOutput, match=r"32 MiB on stdout; it (?:was ended|does not run) on the host"):
            connection.run(flood, timeout_s=120)
    assert largest_kib() - before < MOST_GROWTH_KIB
    assert connection.run(["true"], timeout_s=10).exit_status == 0


def test_a_line_without_end_is_given_up(connection: Connection) -> None:
    before = largest_kib()
    process = connection.open_process(["sh", "-c", "tr '\\0' x < /dev/zero"])
    with process, pytest.raises(TooMuchOutput, match=r"32 MiB in one line; it (?:was ended|does not run) on the host"):
        process.read_line(120)
    assert largest_kib() - before < MOST_GROWTH_KIB


def test_the_sum_of_a_session_is_bounded(sshd: LoopbackSshd) -> None:
    """Each answer is small; a host that is left once is not asked again in this command."""
    budget = ByteBudget("the host", 20 * 2**20)
    with Connection(sshd.target(), settings=sshd.settings(), budget=budget) as connection:
        with pytest.raises(TooMuchOutput) as refused:
            for _ in range(10):
                assert len(connection.run(["head", "-c", "4M", "/dev/zero"], timeout_s=60).stdout) == 4 * 2**20
        assert refused.value.message.startswith(f"{sshd.target().name}: the host sent more than 20 MiB in one session")
        with pytest.raises(TooMuchOutput, match="20 MiB"):
            connection.run(["true"], timeout_s=60)


def reply(**fields: object) -> bytes:
    return json.dumps({"protocol": 1, "agent": "1", **fields}).encode()


DIAGNOSTICS = (
    b'{"protocol": 1, "agent": "1", "diagnostics": '
    b'{"gpus": [], "lines": [{"check": "x", "source": "y", "text": "%s"}]}}'
)
HOSTILE = {
    "half a character": DIAGNOSTICS % b"\\ud800",
    "bytes that are no UTF-8": DIAGNOSTICS % b"\xff\xfe",
    "deep JSON": b"[" * 500_000,
    "deep JSON with its ends": b'{"a":' * 500 + b"1" + b"}" * 500,
    "a number that is none": reply(writes=float("nan")),
    "an infinite number": b'{"protocol": 1, "agent": "1", "writes": 1e999}',
    "a number of 5,000 digits": b'{"protocol": 1, "agent": "1", "writes": ' + b"9" * 5000 + b"}",
    "a number beyond 63 bits": reply(writes=1 << 63),
    "a negative count": reply(writes=-1),
    "a truth for a number": reply(writes=True),
    "a text for a list": reply(changes="none"),
    "a key twice": b'{"protocol": 1, "agent": "1", "agent": "2"}',
    "an unknown field": reply(gift="x"),
    "another protocol": reply(protocol=2),
    "no JSON": b"Last login: yesterday",
    "nothing": b"",
    "two answers": reply(diagnostics={"gpus": []}) + b"\n" + reply(),
}


@pytest.fixture
def hostile(sshd: LoopbackSshd, tmp_path: Path) -> Iterator[tuple[Connection, Path]]:
    """A host whose Python is a program that answers every request with a file's content."""
    answer, program = tmp_path / "answer", tmp_path / "python3"
    program.write_text(
        f"#!/bin/sh\nprintf '%s have\\n' '{ANSWER}'\nwhile read -r request; do cat {answer}; echo; done\n"
    )
    program.chmod(0o755)
    target = replace(sshd.target(), python_interpreter=str(program))
    with Connection(target, settings=sshd.settings()) as connection:
        yield connection, answer


@pytest.mark.parametrize("what", HOSTILE)
def test_an_answer_that_is_not_the_protocol_is_that_hosts_error(what: str, hostile: tuple[Connection, Path]) -> None:
    connection, answer = hostile
    answer.write_bytes(HOSTILE[what])
    with AgentClient(connection) as client, pytest.raises(AgentBroken) as broken:
        for _ in range(3):
            client.diagnostics()
    shown = "\n".join([broken.value.message, *broken.value.context])
    assert shown.encode()
    assert len(shown) < 2000


def test_the_other_hosts_go_on(hostile: tuple[Connection, Path], connection: Connection) -> None:
    bad, answer = hostile
    answer.write_bytes(HOSTILE["deep JSON"])

    def ask(name: str) -> str:
        with AgentClient(bad if name == "bad" else connection) as client:
            return client.facts().kernel

    good, broken = run_on_hosts(["good", "bad"], ask, forks=2)
    assert good.value
    assert isinstance(broken.error, AgentBroken)


BEGINNINGS = {
    "a banner line without end": (b"", b"x" * 65536),
    "banner lines without end": (b"", b"hello\r\n" * 8192),
    "a packet of 4 GiB": (b"SSH-2.0-Evil\r\n\xff\xff\xff\x00" + b"x" * 64, b"x" * 65536),
}


@pytest.mark.parametrize("what", BEGINNINGS)
def test_a_server_that_floods_before_the_login_is_left(what: str, sshd: LoopbackSshd) -> None:
    first, more = BEGINNINGS[what]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                try:
                    client.sendall(first)
                    for _ in range(FLOOD_MIB * 16):
                        client.sendall(more)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        before = largest_kib()
        settings = replace(sshd.settings(), connect_timeout_s=4)
        target = replace(sshd.target(), port=listener.getsockname()[1])
        with Connection(target, settings=settings) as connection, pytest.raises(VgpuctlError) as refused:
            connection.open()
        thread.join(10)
    assert isinstance(refused.value, HostUnreachable)
    assert not thread.is_alive()
    assert largest_kib() - before < MOST_GROWTH_KIB
