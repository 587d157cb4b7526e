# SPDX-License-Identifier: Apache-2.0
"""Runs commands in processes of their own that need not import the product first.

`vgpuctl` spends most of a short command on imports, and the tests run a thousand commands. A server imports the product
once and forks for each command: the same code, streams, environment, exit code and kill -9 as in a new interpreter.
Commands that a test starts and leaves running (`Operator.start`) are new interpreters.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO

from vgpuctl_lab.fork_server import ForkServer

_ROOMS = ("cli", "guests", "hosts", "ovn", "store", "usecases")
_COMMAND = """#!{python} -IS
import json, os, socket, sys
request = {{
    "module": "vgpuctl", "arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()
}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect({socket!r})
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    connection.recv(64)
    sys.exit(int(connection.recv(64)))
"""


class WarmStart:
    """The server, as seen by the test process; it ends with it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vgpuctl-tests-")
        self._path = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self._path)
            listening.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.warm_start", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=(listening.fileno(),),
                cwd=Path(__file__).parents[2],
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": "error"},
            )

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        signals: Sequence[tuple[float, int]] = (),
    ) -> tuple[int, str, str]:
        """Run `python -m module arguments`, killed after timeout_s, and return its exit code, stdout and stderr.

        signals: (seconds after its start, signal) that it gets on its way.
        """
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open("rb") as nothing,
        ):
            descriptors = [nothing.fileno(), out.fileno(), err.fileno()]
            code = self._call(module, arguments, environment, descriptors, timeout_s, signals)
            assert code is not None, f"{module} {arguments} took over {timeout_s} s\n{_text(out)}\n{_text(err)}"
            return code, _text(out), _text(err)

    def run_on_terminal(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str]:
        """Run it with a terminal as its standard streams, and return its exit code and all that it wrote there."""
        ours, theirs = os.openpty()
        seen: list[bytes] = []

        def read() -> None:
            with contextlib.suppress(OSError):  # the other end is closed: EIO
                while chunk := os.read(ours, 1 << 16):
                    seen.append(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            code = self._call(module, arguments, environment, [theirs] * 3, timeout_s, ())
        finally:
            os.close(theirs)
            reader.join()
            os.close(ours)
        shown = b"".join(seen).decode(errors="replace")
        assert code is not None, f"{module} {arguments} took over {timeout_s} s\n{shown}"
        return code, shown

    def _call(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        timeout_s: float,
        signals: Sequence[tuple[float, int]],
    ) -> int | None:
        """Run it with these standard streams. Returns its exit code, None when it was killed after timeout_s."""
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(self._path)
            socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
            pid = int(connection.recv(64))
            timers = []
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                timers = [threading.Timer(after_s, _send, [os.pidfd_open(pid), number]) for after_s, number in signals]
            for timer in timers:
                timer.start()
            connection.settimeout(timeout_s)
            try:
                return int(connection.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                connection.settimeout(None)
                connection.recv(64)
                return None
            finally:
                for timer in timers:
                    timer.join()

    def write_command(self, path: Path) -> None:
        """Write a program that runs `vgpuctl` by the server, for other programs to call."""
        path.write_text(_COMMAND.format(python=sys.executable, socket=self._path))
        path.chmod(0o755)


def _send(process: int, number: int) -> None:
    """Send a signal through a pidfd, which is never another process's; one that has ended gets none."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)
    os.close(process)


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


@cache
def warm_start() -> WarmStart:
    """The server of this test process."""
    return WarmStart()


def _serve(listening: socket.socket) -> None:
    """Import the product, then fork for each connection until the test process closes our stdin."""
    for room in _ROOMS:
        package = importlib.import_module(f"vgpuctl.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"vgpuctl.{room}."):
            if ".migrations." not in module.name:  # alembic runs these files itself
                importlib.import_module(module.name)
    _load_what_is_loaded_late()
    _run_first()
    gc.freeze()
    ForkServer(listening, _command).run()


def _load_what_is_loaded_late() -> None:
    """Load the modules and files that a command keeps from its first use: half the CPU of one that asks a host."""
    from vgpuctl.guests.templating import environment
    from vgpuctl.hosts.bundle import build_agent
    from vgpuctl.hosts.quiet_paramiko import load_paramiko

    load_paramiko()
    build_agent()
    made = environment()
    for name in resources.files("vgpuctl.templates").iterdir():
        if name.name.endswith(".j2"):
            made.get_template(name.name)
    for module in ("alembic.command", "libvirt", "psycopg", "rich.table"):
        importlib.import_module(module)


def _run_first() -> None:
    """Run commands on a store of their own in this process.

    All later commands then have the values that a first use makes, such as the decoders of msgspec. Each command would
    make them again in its own process, in copies of the pages that it shares with this one.
    """
    from vgpuctl.cli.main import run

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        os.environ["VGPUCTL_DATABASE_URL"] = f"sqlite:///{folder}/store.db"
        for arguments in (["create-tenant", "acme"], ["list-vms"], ["list-vms", "--json"], ["list-events"]):
            assert run(arguments) == 0
    for number, handler in before.items():
        signal.signal(number, handler)


def _command(message: bytes) -> None:
    """Run the command of a request, as `python -m` does."""
    request = json.loads(message)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests)
