# SPDX-License-Identifier: Apache-2.0
"""The frames of a WebSocket: the examples of RFC 6455, cut anywhere, and what breaks the protocol."""

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.frame_protocol import Opcode

from vgpuctl.web.websocket import WebSocketBroken, WebSocketClient, accept_key, is_key

MASK = bytes.fromhex("37fa213d")
# RFC 6455, section 5.7: a masked text message "Hello".
HELLO = bytes.fromhex("818537fa213d7f9f4d5158")


def masked(opcode: Opcode, payload: bytes, *, first: int = 0x80) -> bytes:
    """A frame as a browser sends it."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    if size >= 1 << 16:
        length = b"\xff" + struct.pack(">Q", size)
    return bytes([first | opcode]) + length + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, WebSocketClient]]:
    browser, ours = socket.socketpair()
    with browser, ours:
        ours.settimeout(5)
        browser.settimeout(5)
        yield browser, WebSocketClient(ours)


def test_the_examples_of_the_standard(pair: tuple[socket.socket, WebSocketClient]) -> None:
    browser, client = pair
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert is_key("dGhlIHNhbXBsZSBub25jZQ==") and not is_key("dGhl") and not is_key("é") and not is_key("")
    browser.sendall(HELLO)
    assert client.receive() == b"Hello"
    browser.sendall(masked(Opcode.PING, b"Hello"))
    assert client.receive() == b""
    assert browser.recv(100) == bytes.fromhex("8a0548656c6c6f")


@pytest.mark.parametrize(("size", "head"), [(125, "827d"), (126, "827e007e"), (65536, "827f0000000000010000")])
def test_a_frame_of_the_server_has_the_shortest_length(
    size: int, head: str, pair: tuple[socket.socket, WebSocketClient]
) -> None:
    browser, client = pair
    client.send(bytes(size))
    expected = bytes.fromhex(head) + bytes(size)
    assert browser.recv(len(expected), socket.MSG_WAITALL) == expected


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_frames_that_are_cut_anywhere_are_one_stream(payloads: list[bytes], step: int) -> None:
    browser, ours = socket.socketpair()
    with browser, ours:
        client, seen = WebSocketClient(ours), b""
        data = b"".join(masked(Opcode.BINARY, payload) for payload in payloads)
        for at in range(0, len(data), step):
            browser.sendall(data[at : at + step])
            seen += client.receive() or b""
        assert seen == b"".join(payloads)


@pytest.mark.parametrize(
    "broken",
    [
        b"\x82\x08unmasked",
        masked(Opcode.BINARY, b"x", first=0xC0),
        bytes([0x83, 0x80]) + MASK,
        masked(Opcode.PING, bytes(126)),
        b"\x82\xff" + struct.pack(">Q", 2**63) + MASK,
    ],
)
def test_what_breaks_the_protocol_ends_it(pair: tuple[socket.socket, WebSocketClient], broken: bytes) -> None:
    browser, client = pair
    browser.sendall(broken)
    with pytest.raises(WebSocketBroken):
        client.receive()


def test_a_goodbye_and_a_hang_up_are_the_end(pair: tuple[socket.socket, WebSocketClient]) -> None:
    browser, client = pair
    browser.sendall(masked(Opcode.BINARY, b"last") + masked(Opcode.CLOSE, b""))
    assert client.receive() == b"last"
    with pytest.raises(WebSocketBroken, match="nothing more can be sent"):
        client.send(b"of the guest")
    browser.sendall(masked(Opcode.CLOSE, b""))
    assert client.receive() is None
    browser.close()
    assert client.receive() is None


def test_of_a_frame_that_is_larger_than_memory_what_came_is_passed_on(
    pair: tuple[socket.socket, WebSocketClient],
) -> None:
    browser, client = pair
    browser.sendall(b"\x82\xff" + struct.pack(">Q", 2**62) + bytes(4) + b"first")
    assert client.receive() == b"first"
    browser.sendall(b"second")
    assert client.receive() == b"second"
