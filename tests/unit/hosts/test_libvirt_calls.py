# SPDX-License-Identifier: Apache-2.0
"""Calls of libvirt's protocol that have no answer yet, however the connection cuts the bytes into pieces."""

import struct
import time

import pytest

from vgpuctl.hosts.libvirt_calls import WORK_FACTOR, PendingCalls

CALL, REPLY, MESSAGE, STREAM = range(4)
OK, CONTINUE = 0, 2
LIST_ALL_DOMAINS, CREATE_VOLUME, CLOSE, MIGRATE_PERFORM = 273, 93, 2, 305


def packet(procedure: int, kind: int, serial: int, body: bytes = b"", status: int = OK) -> bytes:
    return struct.pack(">IIIIiIi", 28 + len(body), 0x20008086, 1, procedure, kind, serial, status) + body


@pytest.mark.parametrize("piece", [1, 5, 28, 1000])
def test_only_a_call_without_its_answer_is_overdue(piece: int) -> None:
    calls = PendingCalls(0.0)
    sent = packet(LIST_ALL_DOMAINS, CALL, 1, b"some body") + packet(LIST_ALL_DOMAINS, CALL, 2)
    for at in range(0, len(sent), piece):
        calls.sent(sent[at : at + piece])
    answers = packet(318, MESSAGE, 0, b"an event") + packet(LIST_ALL_DOMAINS, REPLY, 2, b"x" * 40)
    for at in range(0, len(answers), piece):
        calls.received(answers[at : at + piece])
    time.sleep(0.001)
    overdue = calls.overdue()
    assert overdue is not None
    assert overdue.problem == "libvirt has not answered call 273 within 0 s"
    header = struct.unpack(">IIIIiIi", overdue.answer[:28])
    assert header == (len(overdue.answer), 0x20008086, 1, LIST_ALL_DOMAINS, REPLY, 1, 1)
    calls.received(packet(LIST_ALL_DOMAINS, REPLY, 1))
    assert calls.overdue() is None


def test_work_on_volumes_and_the_end_of_an_upload_may_take_longer() -> None:
    calls = PendingCalls(0.001)
    calls.sent(packet(CREATE_VOLUME, CALL, 1))
    calls.sent(packet(208, STREAM, 2, b"data", CONTINUE) + packet(208, STREAM, 2))
    time.sleep(0.005)
    assert calls.overdue() is None
    time.sleep(0.001 * WORK_FACTOR)
    assert calls.overdue() is not None
    calls.received(packet(CREATE_VOLUME, REPLY, 1) + packet(208, STREAM, 2))
    assert calls.overdue() is None


def test_what_sends_a_guest_away_may_take_as_long_as_it_needs() -> None:
    calls = PendingCalls(0.0)
    calls.sent(packet(MIGRATE_PERFORM, CALL, 1))
    time.sleep(0.001)
    assert calls.overdue() is None
    calls.received(packet(MIGRATE_PERFORM, REPLY, 1))
    calls.sent(packet(LIST_ALL_DOMAINS, CALL, 2))
    time.sleep(0.001)
    assert calls.overdue() is not None


def test_a_goodbye_is_known_as_the_last_message() -> None:
    calls = PendingCalls(1.0)
    calls.sent(packet(CLOSE, CALL, 7))
    assert calls.has_said_goodbye
    calls.sent(packet(LIST_ALL_DOMAINS, CALL, 8))
    assert not calls.has_said_goodbye
