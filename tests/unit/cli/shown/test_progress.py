# SPDX-License-Identifier: Apache-2.0
"""The progress of runs over hosts, as it is written on a terminal and elsewhere."""

import ast
import io
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.uses_of_names import files, nodes
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.shown import output, progress
from vgpuctl.cli.shown.progress import FleetLine, progress_text, silence_text
from vgpuctl.hosts.fleet import FleetProgress
from vgpuctl.logs import Call, timed
from vgpuctl.usecases.running.services import Openers, Services


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _on_terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    made = _Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", "60")
    return made


def _at(elapsed_s: float, *, done: int = 58, is_over: bool = False, at_work: tuple[str, ...] = ()) -> FleetProgress:
    return FleetProgress(60, done, 0, at_work, elapsed_s, is_over)


@pytest.mark.parametrize(
    ("elapsed_s", "failed", "at_work", "width", "text"),
    [
        (1.0, 0, ("gpu7",), 80, "58 of 60 hosts, 1 s"),
        (12.2, 0, ("gpu7", "gpu9"), 80, "58 of 60 hosts, 12 s; waiting for gpu7, gpu9"),
        (12.2, 3, ("gpu7",), 80, "58 of 60 hosts, 3 failed, 12 s; waiting for gpu7"),
        (12.2, 0, ("gpu7", "gpu9"), 44, "58 of 60 hosts, 12 s; waiting for gpu7 and 1 more"),
        (12.2, 0, tuple("abcdefg"), 80, "58 of 60 hosts, 12 s; waiting for a, b, c, d, e and 2 more"),
        (12.2, 0, ("gpu" * 30,), 80, "58 of 60 hosts, 12 s; waiting for " + "gpu" * 30),
        (12.2, 0, (), 10, "58 of 60 "),
    ],
)
def test_slow_hosts_are_named_where_there_is_room(
    elapsed_s: float, failed: int, at_work: tuple[str, ...], width: int, text: str
) -> None:
    shown = progress_text(FleetProgress(60, 58, failed, at_work, elapsed_s), width)
    assert len(shown) < width
    assert shown == text[: width - 1]


def test_vms_are_counted_while_hosts_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = FleetLine()
    shown: list[FleetProgress] = []
    clock = iter(range(0, 100, 3))
    own = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr("vgpuctl.usecases.running.services.time", own)
    unused: Any = None

    def watch(progress: FleetProgress) -> None:
        shown.append(progress)
        line(progress)
        line(_at(1.0))

    opens = Openers(inventory=unused, store=unused, store_place=unused, session=unused)
    services = Services(opens, say=unused, watch=watch)
    assert list(services.in_turn(["web-1", "web-2", "web-3"], "VM")) == ["web-1", "web-2", "web-3"]
    assert [(one.done, one.total, one.is_over) for one in shown] == [
        (0, 3, False),
        (1, 3, False),
        (2, 3, False),
        (3, 3, True),
    ]
    assert capsys.readouterr().err == "1 of 3 VMs, 6 s\n3 of 3 VMs, 12 s\n"


def test_a_terminal_shows_one_line_that_is_erased_before_other_lines_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _on_terminal(monkeypatch)
    line = FleetLine()
    line(_at(0.1))
    assert terminal.getvalue() == "", "a quick run shows nothing"
    line(_at(10, at_work=("gpu7",)))
    line(_at(11, done=59))
    output.say("gpu7: warning")
    line(_at(12, done=59))
    line(_at(12, done=60, is_over=True))
    first, second = "58 of 60 hosts, 10 s; waiting for gpu7", "59 of 60 hosts, 11 s"
    assert terminal.getvalue() == (
        f"\r{first}\r{second}{' ' * (len(first) - len(second))}"
        f"\r{' ' * len(second)}\rgpu7: warning\n"
        f"\r59 of 60 hosts, 12 s\r{' ' * len(second)}\r"
    )


def test_a_whole_screen_and_other_threads_show_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _on_terminal(monkeypatch)
    line = FleetLine()
    with output.status_held():
        line(_at(10))
    thread = threading.Thread(target=line, args=(_at(10),))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""


def test_a_file_gets_a_line_every_five_seconds_and_a_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    line = FleetLine()
    for tenth in range(124):
        line(_at(tenth / 10, at_work=("gpu7",)))
    line(_at(12.4, done=60, is_over=True))
    line(_at(0.1))
    line(_at(4.9, is_over=True))
    assert capsys.readouterr().err.splitlines() == [
        "58 of 60 hosts, 5 s; waiting for gpu7",
        "58 of 60 hosts, 10 s; waiting for gpu7",
        "60 of 60 hosts, 12 s",
    ]


def test_a_host_that_is_waited_for_is_told_with_its_step() -> None:
    unused: Any = None
    seen = threading.Event()
    shown: list[str] = []

    def watch(progress: FleetProgress) -> None:
        shown.append(progress_text(replace(progress, elapsed_s=4.0), 80))
        if any("gpu1 (enable 32 VFs)" in one for one in shown):
            seen.set()

    with Services(
        Openers(inventory=unused, store=unused, store_place=unused, session=unused), forks=1, say=unused, watch=watch
    ) as services:

        def work(name: str) -> bool:
            services.doing[name] = "enable 32 VFs"
            return seen.wait(10)

        (result,) = services.on_hosts(["gpu1"], work)
    assert result.value, shown
    assert "0 of 1 host, 4 s; waiting for gpu1 (enable 32 VFs)" in shown


def test_what_is_waited_for_is_named_once_in_one_line() -> None:
    calls = [Call("agent-call", {"host": "gpu1"}), Call("libvirt-call", {"action": "start acme.web-1 on gpu2"})]
    assert silence_text([*calls, calls[0]], 12.4, 80) == "12 s; waiting for gpu1, libvirt: start acme.web-1 on gpu2"
    assert silence_text(calls, 3, 24) == "3 s; waiting for gpu1,…"
    assert silence_text([], 2, 80) == "2 s"
    assert all(len(silence_text(calls, 3, width)) < max(width, 1) for width in range(30))


def test_each_call_of_the_log_has_its_words_on_a_terminal() -> None:
    events = {
        (str(node.args[0].value), *sorted(one.arg for one in node.keywords if one.arg is not None))
        for path in files()
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "timed" and isinstance(node.args[0], ast.Constant)
    }
    fields = {event: dict.fromkeys(names, "x") for event, *names in events}
    assert all(
        silence_text([Call(event, found)], 2, 80).startswith("2 s; waiting for") for event, found in fields.items()
    )
    assert len(fields) > 8


@pytest.fixture
def shown() -> Iterator[progress.SilenceLine]:
    """A line whose thread has ended when the test has, however that ended."""
    made = progress.SilenceLine()
    yield made
    made.stop()


def test_a_silent_command_says_on_a_terminal_what_it_waits_for_and_erases_it(
    shown: progress.SilenceLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_SILENCE_S", 0)
    monkeypatch.setattr(progress, "_LOOK_S", 0.001)
    shown.start()
    with timed("libvirt-open", host="gpu1"):
        while "waiting for libvirt on gpu1" not in terminal.getvalue():
            pass
    shown.stop()
    assert terminal.getvalue().endswith(" \r")


@pytest.mark.parametrize("why", ["not a terminal", "quiet", "told to stop", "in the background"])
def test_nothing_is_shown_elsewhere_nor_for_who_runs_until_told(
    why: str, shown: progress.SilenceLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _on_terminal(monkeypatch)
    looked = threading.Event()
    monkeypatch.setattr(progress, "_SILENCE_S", 0)
    monkeypatch.setattr(progress, "_LOOK_S", 0.001)
    if why == "not a terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    monkeypatch.setattr(running(), "is_quiet", why == "quiet")
    monkeypatch.setattr(running(), "runs_until_told", why == "told to stop")

    def look() -> list[Call]:
        looked.set()
        return []

    monkeypatch.setattr(progress, "calls_under_way", look)
    if why == "in the background":
        monkeypatch.setattr(terminal, "fileno", lambda: 2)
        monkeypatch.setattr("os.tcgetpgrp", lambda _fd: os.getpgrp() + 1)
    shown.start()
    is_looking = any(one.name == "silence" for one in threading.enumerate())
    assert looked.wait(30 if why == "in the background" else 0.01) == (why == "in the background")
    shown.stop()
    assert terminal.getvalue() == ""
    assert is_looking == (why in ("told to stop", "in the background"))
