# SPDX-License-Identifier: Apache-2.0
"""A secret and a command line are masked in every form of a message, and revealed by one call."""

import base64
import dataclasses
import json
import pickle
import re

import msgspec
import pytest

from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import ProgramLine, Secret


@pytest.mark.parametrize("value", [Secret("hunter2"), ProgramLine("sshpass -phunter2 ssh", source="hosts.yml:3")])
def test_no_form_of_a_message_shows_the_content(value: Secret[str]) -> None:
    target = HostTarget("gpu1", "gpu1", password=Secret("hunter2"), common_args=ProgramLine("-o X=hunter2"))
    shown = f"{value} {value!r} {value!s} {value!a} {[value]} {{1: {value}}} %s %r" % (value, value)
    shown += str(target) + repr(dataclasses.asdict(target)) + json.dumps(value, default=str)
    shown += str(msgspec.to_builtins({"a": value}, enc_hook=str))
    assert "hunter2" not in shown
    assert "hunter2" in value.reveal()


def test_equal_contents_are_equal_and_of_one_kind() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert ProgramLine("a", source="x") == ProgramLine("a")
    assert ProgramLine("a") != Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert pickle.loads(pickle.dumps(Secret("a"))) == Secret("a")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sshpass -pX ssh", "sshpass …"),
        ("/usr/bin/nc h 22", "/usr/bin/nc …"),
        ("ssh", "ssh"),
        ("PASSWORD=x ssh jump", "ssh …"),
        ("-o ProxyCommand=x", "…"),
        ("'no end", "…"),
        ("p@ss:word!", "…"),
        ("", ""),
    ],
)
def test_a_command_is_shown_as_its_program(text: str, shown: str) -> None:
    assert str(ProgramLine(text)) == shown


@pytest.mark.parametrize(
    "said",
    [
        "wrong password hunter2",
        "sshpass: invalid argument -phunter2",
        "login as user:hunter2 failed",
        f"sent Basic {base64.b64encode(b'user:hunter2').decode()}",
        f"sent {base64.b64encode(b'hunter2').decode()}",
        "argument 'hunter2'",
        "argument 'HUNTER2'",
        "sent 68756e74657232",
        "sent 757365723A68756E74657232",
        f"sent Basic {base64.urlsafe_b64encode(b'user:hunter2').decode()}",
        f"sent Basic {base64.b64encode(b'other:hunter2:x').decode().rstrip('=')}",
        f"{base64.b64encode(b'hunter2').decode()}/and-more",
        "wrong password hunt...",
        "wrong password ...nter2",
    ],
)
def test_what_a_program_repeats_of_its_words_is_hidden(said: str) -> None:
    command = ProgramLine("sshpass -phunter2 nc --proxy-auth user:hunter2 gpu1 22")
    shown = command.clean(said, known=("gpu1", "22"))
    assert (
        not re.search("hunt|nter2|68756e|68756E", shown, re.IGNORECASE)
        and "aHVudGVyM" not in shown
        and "dXNlcj" not in shown
    )
    assert "***" in shown


def test_a_command_inside_a_command_is_searched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_JUMP", "value-of-variable")
    monkeypatch.setenv("SSHPASS", "from-environment")
    command = ProgramLine("""sh -c 'exec sshpass -e ssh -o "ProxyCommand=nc -X hunter2 x" "$OUR_JUMP"'""")
    assert command.clean("hunter2 value-of-variable from-environment") == "*** *** ***"


def test_a_login_in_a_url_is_hidden_in_every_form() -> None:
    command = ProgramLine("connect -H http://user:correct-horse@proxy.example:3128 %h %p")
    sent = base64.b64encode(b"user:correct-horse").decode()
    for said in (f"Proxy-Authorization: Basic {sent}", "no login for correct-h", "CORRECT-HORSE", "rrect-horse"):
        shown = command.clean(said, known=("gpu01.example", "22"))
        assert not re.search(f"horse|correct|{sent[:8]}", shown, re.IGNORECASE), shown


def test_a_known_name_stays_where_it_is_part_of_a_word() -> None:
    command = ProgramLine("ssh -W gpu01.example:22 jump")
    assert command.clean("gpu01.example: refused", known=("gpu01.example", "22")) == "gpu01.example: refused"


def test_what_the_message_shows_anyway_stays() -> None:
    command = ProgramLine("ssh -W gpu1:22 jump")
    assert command.clean("ssh: connect to gpu1 port 22: refused", known=("gpu1", "22")) == (
        "ssh: connect to gpu1 port 22: refused"
    )
