# SPDX-License-Identifier: Apache-2.0
"""Answers of a guest agent that its tenant wrote. libvirt's call is replaced, for libvirt itself lets few of them pass.

tests/integration/libvirt/test_guest_agent.py has QEMU's own agent, and one that is slow, floods and hangs up.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, cast

import libvirt_qemu
import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import MOST_BYTES, GuestReport
from vgpuctl.guests.facts.smi_log import SMI_PATHS
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.live import guest_agent
from vgpuctl.guests.live.guest_agent import ask_probe

LOG = b"<nvidia_smi_log><driver_version>573.48</driver_version></nvidia_smi_log>"
BEGUN = '{"return": {"pid": 7}}'
Ask = Callable[..., GuestReport]


class _Connection:
    """Stands for a connection to libvirt."""

    host = "gpu1"

    @property
    def connection(self) -> "_Connection":
        return self

    def lookupByUUIDString(self, uuid: str) -> str:  # noqa: N802 - libvirt's name
        return uuid


class Agent:
    """Answers each command with the texts given for it, the last one again and again; None: the agent refuses."""

    def __init__(self, **answers: list[str | None]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []

    def __call__(self, _domain: object, text: str, _timeout: int, _flags: int) -> str:
        command = json.loads(text)
        self.asked.append(command)
        left = self.answers[command["execute"].replace("-", "_")]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is None:
            raise GuestError("cannot ask the guest agent: Failed to execute child process")
        return answer


def ended(output: bytes, **more: Any) -> str:
    """The answer of a program that has ended."""
    status = {"exited": True, "exitcode": 0, "out-data": base64.b64encode(output).decode()} | more
    return json.dumps({"return": status})


def ask(monkeypatch: pytest.MonkeyPatch, agent: Agent, **how: Any) -> GuestReport:
    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", agent)
    monkeypatch.setattr(guest_agent, "_POLL_S", 0.001)
    return ask_probe(cast(Hypervisor, _Connection()), "acme.web-1", uuid="u", **how)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "no JSON"),
        ("[]", "answered guest-exec with"),
        ("{}", "answered guest-exec with {}"),
        ('{"return": null}', "answered guest-exec with"),
        ('{"return": {}}', "answered guest-exec with {}"),
        ('{"return": {"exited": true, "exitcode": 0, "out-data": ""}}', "answered guest-exec with"),
        ('{"return": {"pid": "7"}}', "answered guest-exec with"),
        ('{"return": {"pid": true}}', "answered guest-exec with"),
        ('{"return": {"pid": 7.0}}', "answered guest-exec with"),
        ('{"return": {"pid": -1}}', "answered guest-exec with"),
        ('{"return": {"pid": 99999999999999999999}}', "answered guest-exec with"),
        ('{"return": {"pid": ' + "9" * 5000 + "}}", "a number of 5000 characters"),
        ('{"return": {"pid": NaN}}', "NaN is no value"),
        ('{"return": {"pid": 1e999}}', "too large"),
        ('{"return": {"pid": 7, "pid": 8}}', "written twice"),
        ('{"return": ' + '{"a":' * 200 + "1" + "}" * 201, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"return": {"\\ud800": 7}}', "half a character"),
        ('{"return": {"\\u001b]0;owned\\u202e\\u200b": 7}}', r"\\x1b\]0;owned\\u202e\\u200b"),
        (json.dumps({"return": {"pid": 7, "more": "x" * 4 * MOST_BYTES}}), "answered guest-exec with 2621"),
    ],
)
def test_a_beginning_in_other_words_is_refused(monkeypatch: pytest.MonkeyPatch, answer: str, why: str) -> None:
    with pytest.raises(GuestError, match=why) as refused:
        ask(monkeypatch, Agent(guest_exec=[answer]))
    said = refused.value.message + "".join(refused.value.context)
    assert said.isascii() and said.isprintable() and len(said) < 400


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (json.dumps({"return": {"exited": 1}}), "did not end within"),
        (json.dumps({"return": {"exited": "true"}}), "did not end within"),
        (json.dumps({"return": {"pid": 7}}), "did not end within"),
        (ended(b"", **{"out-data": 5}), "more than a probe writes"),
        (ended(b"", **{"out-data": "\u0660"}), "no base64"),
        (ended(b"", **{"out-data": "eyJ2"}), "not valid JSON"),
        (ended(b"", **{"out-data": "eyJ=2"}), "no base64"),
        (ended(b"{}", exitcode=False), "ended with False"),
        (ended(b"{}", exitcode=0.0), r"ended with 0\.0"),
        (ended(b"{}", exitcode=None), "ended with None"),
        (ended(b"{}", exitcode="0"), "ended with '0'"),
        (ended(b"\x1b[2J", exitcode=1), "ended with 1"),
        (ended(b"x" * (MOST_BYTES + 1)), "are not read"),
        (ended(b'{"version": 1, "driver": "580.95.05\\n"}'), "matching"),
        (ended(b'{"version": 1, "driver": "banana"}'), "matching"),
        (ended(b'{"version": true}'), "Expected `int`"),
        (ended(b'{"version": 1, "gpus": {"0": {}}}'), "Expected `array`"),
        (ended(b'{"version": 1, "gpus": [{"memory_mib": 8192.5}]}'), "Expected `int | null`"),
        (ended(b'{"version": 1, "cuda_devices": NaN}'), "NaN is no value"),
        (ended(b'{"version": 1, "errors": ["\\udc00"]}'), "half a character"),
        (ended(b'{"version": 1, "x": ' + b"[" * 60_000), "nested too deeply"),
    ],
)
def test_an_end_in_other_words_is_refused(monkeypatch: pytest.MonkeyPatch, status: str, why: str) -> None:
    with pytest.raises(GuestError, match=why) as refused:
        ask(monkeypatch, Agent(guest_exec=[BEGUN], guest_exec_status=[status]), timeout_s=0.01)
    said = refused.value.message + "".join(refused.value.context)
    assert said.isascii() and said.isprintable() and len(said) < 400


def test_hidden_characters_of_a_report_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "a\x1b[2J\u202eb\u200b\n\U000e0041"
    told = {"version": 1, "gpus": [dict.fromkeys(("name", "uuid", "licence", "mig"), evil)], "errors": [evil]}
    report = ask(
        monkeypatch,
        Agent(guest_exec=[BEGUN], guest_exec_status=[ended(json.dumps(told | {"kernel_log": [evil]}).encode())]),
    )
    (gpu,) = report.gpus
    shown = "a\\x1b[2J\\u202eb\\u200b\\n\\U000e0041"
    assert {gpu.name, gpu.uuid, gpu.licence, gpu.mig, *report.errors, *report.kernel_log} == {shown}


def test_windows_is_asked_for_its_nvidia_smi_with_arguments_that_never_change(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(guest_exec=[None, BEGUN], guest_exec_status=['{"return": {"exited": false}}', ended(LOG)])
    assert ask(monkeypatch, agent, is_windows=True).driver == "573.48"
    begun = [one["arguments"] for one in agent.asked if one["execute"] == "guest-exec"]
    assert begun == [{"path": path, "arg": ["-q", "-x"], "capture-output": True} for path in SMI_PATHS]


@pytest.mark.parametrize(
    ("system", "is_windows"),
    [
        ('{"return": {"id": "mswindows"}}', True),
        ('{"return": {"id": "debian"}}', False),
        ('{"return": {"id": ["mswindows"]}}', False),
        ('{"return": {"id": "mswindows; calc.exe"}}', False),
        ('{"return": 5}', False),
        (None, False),
    ],
)
def test_a_guest_whose_system_nobody_said_is_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, system: str | None, is_windows: bool
) -> None:
    output = LOG if is_windows else b'{"version": 1, "driver": "580.95.05"}'
    agent = Agent(guest_get_osinfo=[system], guest_exec=[BEGUN], guest_exec_status=[ended(output)])
    assert ask(monkeypatch, agent, is_windows=None).driver == ("573.48" if is_windows else "580.95.05")
