# SPDX-License-Identifier: Apache-2.0
"""The preparation of each example of a help page, and the check of its end."""

import contextlib
import os
import pty
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import vgpuctl_lab as lab
from tests.e2e.operator import Done, Operator
from tests.e2e.warm_start import warm_start
from vgpuctl.cli.contents import FOLDERS
from vgpuctl.cli.frame.examples import Example
from vgpuctl.cli.main import examples_of

_READY_LIMIT_S = 120
_END_LIMIT_S = 120


@dataclass(frozen=True)
class Run:
    """How one example runs.

    says: text that it prints. first: what is run before it and must succeed. then: command lines that are run after it
    → text that they print; a text that begins with `!` is one that they must not print. more: options that only this
    test adds, as a free port. code: its exit code. is_stopped: True if it runs until it is interrupted, which happens
    when it has printed `says`. keys: what is typed then on a terminal instead.
    """

    says: str
    first: "Sequence[str | Callable[[Stage], None]]" = ()
    then: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    code: int = 0
    is_stopped: bool = False
    keys: bytes = b""


@dataclass(frozen=True)
class Stage:
    """An operator with a store and a folder of one test's own, on the hosts of a lab."""

    operator: Operator
    folder: Path
    lab_folder: lab.LabFolder | None = None

    def run(self, line: str) -> Done:
        """Run a command line as a user types it in the folder."""
        warm_start()  # it begins in the checkout's folder
        with contextlib.chdir(self.folder):
            return self.operator.run(*shlex.split(line))

    def does(self, line: str) -> Done:
        """Run a command line that must succeed."""
        done = self.run(line)
        assert done.code == 0, f"vgpuctl {line} ended with {done.code}\n{done.out}\n{done.err}"
        return done

    def prepare(self, preparations: "Sequence[str | Callable[[Stage], None]]") -> None:
        """Run command lines that must succeed, and what is none."""
        for one in preparations:
            if isinstance(one, str):
                self.does(one)
            else:
                one(self)

    def write(self, name: str, text: str) -> None:
        """Write a file that only its owner reads into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)


@dataclass(frozen=True)
class Scene:
    """The examples of one command: what is run before the first one, and how each of them runs."""

    runs: tuple[Run, ...]
    first: "Sequence[str | Callable[[Stage], None]]" = ()


def file(name: str, text: str) -> "Callable[[Stage], None]":
    """A preparation that writes a file."""
    return lambda stage: stage.write(name, text)


def scene(*runs: Run, first: "Sequence[str | Callable[[Stage], None]]" = ()) -> Scene:
    """A scene with one `Run` for each example, in their order."""
    return Scene(runs, first)


def commands_of(*folders: str) -> list[str]:
    """The commands of folders of cli/."""
    return [name for name, folder in FOLDERS.items() if folder in folders]


def play(stage: Stage, name: str, played: Scene, examples: Sequence[Example] = ()) -> None:
    """Run the examples of a command in their order and check each. examples: those of a plugin."""
    examples = examples or examples_of(name)
    assert len(examples) == len(played.runs), f"{name} has {len(examples)} examples and {len(played.runs)} runs here"
    stage.prepare(played.first)
    for one, wanted in zip(examples, played.runs, strict=True):
        stage.prepare(wanted.first)
        line = f"{one.line} {wanted.more}".strip()
        done = _ended(stage, line, wanted)
        shown = f"$ vgpuctl {line}  # ended with {done.code}\n{done.out}{done.err}"
        assert done.code == wanted.code, shown
        assert "Traceback" not in done.err, shown
        assert wanted.says in done.out + done.err, f"{wanted.says!r} is not in\n{shown}"
        for read, text in wanted.then.items():
            read_back = stage.does(read)
            after = f"$ vgpuctl {read}\n{read_back.out}{read_back.err}"
            is_there = text.removeprefix("!") in after.partition("\n")[2]
            assert is_there is not text.startswith("!"), f"{text!r} after\n{shown}\n{after}"


def _ended(stage: Stage, line: str, wanted: Run) -> Done:
    """Run an example to its end, which is up to the test for one that runs until then."""
    if wanted.keys:
        return _on_terminal(stage, line, wanted)
    return _interrupted(stage, line, wanted.says) if wanted.is_stopped else stage.run(line)


def _on_terminal(stage: Stage, line: str, wanted: Run) -> Done:
    """Run a command line on a terminal, and type keys when it has shown its text."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*stage.operator.command, *shlex.split(line)],
        env={**stage.operator.environment, "TERM": "xterm"},
        cwd=stage.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, is_typed, end = b"", False, time.monotonic() + _READY_LIMIT_S
    try:
        while select.select([ours], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                part = os.read(ours, 4096)
            except OSError:  # its last end is closed
                break
            if not part:
                break
            shown += part
            if not is_typed and wanted.says.encode() in shown:
                os.write(ours, wanted.keys)
                is_typed = True
        return Done(process.wait(_END_LIMIT_S), shown.decode(errors="replace"), "")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _interrupted(stage: Stage, line: str, text: str) -> Done:
    """Start a command line, interrupt it when it has printed a text, and wait for its end."""
    process = stage.operator.start(*shlex.split(line), cwd=stage.folder, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    limit = threading.Timer(_READY_LIMIT_S, process.kill)
    limit.start()
    shown = ""
    try:
        for part in process.stdout:
            shown += part
            if text in part:
                process.send_signal(signal.SIGINT)
                break
        rest, _ = process.communicate(timeout=_END_LIMIT_S)
        return Done(process.returncode, shown + rest, "")
    finally:
        limit.cancel()
        process.kill()
        process.communicate()
