# SPDX-License-Identifier: Apache-2.0
"""The lab's NVML without a kernel: the real library and pynvml, over files as the kernel module writes them.

`control` is a pseudo terminal: like the module's file it is a character device that takes a line and gives one back.
"""

import ctypes
import os
import re
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

from vgpuctl_lab.builds import build_nvfm, build_nvml

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


@pytest.fixture(scope="session")
def nvfm_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built SDK of Fabric Manager."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return build_nvfm(tmp_path_factory.mktemp("nvfm"))


@pytest.fixture
def nvfm(nvfm_library: Path, module: ModuleDouble) -> Iterator[Any]:
    """The SDK, to be initialised by the test; shut down afterwards."""
    library = ctypes.CDLL(str(nvfm_library))
    yield library
    library.fmLibShutdown()


class FabricFiles:
    """What an emulated host's Fabric Manager has beside the card table, in the folder of a ModuleDouble."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def configure(self, text: str) -> None:
        (self._folder / "fabricmanager.cfg").write_text(text)

    def add_vf(self, pf: str, vf: str) -> None:
        (self._folder / vf).mkdir()
        (self._folder / vf / "physfn").symlink_to(f"../{pf}")

    def fail_links(self, address: str, count: int) -> None:
        (self._folder / "fabric_links").write_text(f"links {address} failed={count}\n")

    def let(self, *, keeps_partitions: bool = True, **keys: int) -> None:
        """Let Fabric Manager be so: stopped, starting_until, window_ends, restarted."""
        kept = [line for line in self.lines() if line.startswith("active")] if keeps_partitions else []
        manager = " ".join(f"{key}={value}" for key, value in keys.items())
        (self._folder / "fabric").write_text("\n".join([f"manager - {manager}", *kept]) + "\n")

    def pass_time(self, seconds: int) -> None:
        """Let every time of the file be so much nearer."""
        text = "\n".join(self.lines())
        text = re.sub(r"(_until|_ends)=(?!0)(\d+)", lambda one: f"{one[1]}={int(one[2]) - seconds}", text)
        (self._folder / "fabric").write_text(text + "\n")

    def lines(self) -> list[str]:
        file = self._folder / "fabric"
        return file.read_text().splitlines() if file.exists() else []


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
