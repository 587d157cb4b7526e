# SPDX-License-Identifier: Apache-2.0
"""The lab's NVML without a kernel: the real library and pynvml, over files as the kernel module writes them.

`control` is a pseudo terminal: like the module's file it is a character device that takes a line and gives one back.
"""

import ctypes
import os
import select
import shutil
import subprocess
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from vgpuctl_lab.builds import build_nvml

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.06  (vgpulab)\n"


class ModuleDouble:
    """A folder with the kernel module's files. answers: what `control` says to a command; asked: what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self._master, self._terminal = os.openpty()
        tty.setraw(self._terminal, termios.TCSANOW)
        (folder / "control").symlink_to(os.ttyname(self._terminal))
        (folder / "version").write_text(VERSION)
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def write(self, *, cards: str | None = None, state: str | None = None) -> None:
        if cards is not None:
            (self.folder / "cards").write_text(cards)
        if state is not None:
            (self.folder / "state").write_text(state)

    def close(self) -> None:
        os.close(self._stopped)
        self._thread.join()
        for descriptor in (self._stop, self._master, self._terminal):
            os.close(descriptor)

    def _answer(self) -> None:
        while self._stop not in (ready := select.select([self._master, self._stop], [], [])[0]):
            assert ready
            command = os.read(self._master, 4096).decode().rstrip("\n")
            self.asked.append(command)
            os.write(self._master, (self.answers.get(command, "error 2 no such command") + "\n").encode())


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built library, loaded into this process: pynvml finds it by its name from then on."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = build_nvml(tmp_path_factory.mktemp("nvml"))
    ctypes.CDLL(str(library))
    return library


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleDouble]:
    monkeypatch.setenv("VGPULAB_PROC", str(tmp_path))
    double = ModuleDouble(tmp_path)
    yield double
    double.close()


@pytest.fixture
def nvml(nvml_library: Path, module: ModuleDouble) -> Iterator[Any]:
    """pynvml, to be initialised by the test; shut down afterwards."""
    yield pynvml
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError_Uninitialized:
        return


@contextmanager
def vm_process(name: str, uuid: str) -> Iterator[int]:
    """A process with the command line of a VM's QEMU as libvirt starts it. Gives its pid; it ends with the block."""
    words = ["sh", "-c", "echo; read x", "qemu", "-name", f"guest={name},debug-threads=on", "-uuid", uuid]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # Its command line is there once it says something: Popen returns a moment earlier.
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            assert process.stdin is not None
            process.stdin.close()
