# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of all simulated hosts of a lab: it imports what they need once, and forks for each of them.

A program has the arguments, the environment, the folder and the streams of its client (`program_client.py`), and ends
like a process of its own. The server imports no module of the agent: each agent loads those of its own file.
"""

import atexit
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import ModuleType

_STANDARD = (
    "base64", "contextlib", "ctypes", "ctypes.util", "dataclasses", "enum", "fcntl", "functools", "glob", "hashlib",
    "ipaddress", "json", "pathlib", "platform", "pwd", "shutil", "struct", "subprocess", "tempfile", "threading",
    "traceback", "typing", "uuid", "xml.etree.ElementTree", "zipfile",
)  # fmt: skip
# Modules that need nothing of the agent.
_MACHINE = ("curves", "kernel", "rules", "state", "tree")
_REQUEST_BYTES = 1 << 18


class ProgramServer:
    """Takes clients on a listening socket until it is killed."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._poller = select.poll()
        self._poller.register(listening, select.POLLIN)
        self._waiting: dict[int, socket.socket] = {}
        """Clients that have not said yet what they want; the network fault stops some of them just then."""
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """The programs by pidfd: their process and client."""
        self._of_client: dict[int, int] = {}

    def run(self) -> None:
        """Serve for ever; in a forked process, run the program and end with it."""
        while True:
            # One at a time: what one event closes can give its number to what another one opens.
            descriptor, _events = self._poller.poll()[-1]
            if descriptor in self._running:
                self._tell_end(descriptor)
            elif descriptor in self._of_client:
                self._end_without_client(descriptor)
            elif descriptor in self._waiting:
                self._begin(self._waiting.pop(descriptor))
            else:
                client, _ = self._listening.accept()
                self._waiting[client.fileno()] = client
                self._poller.register(client, select.POLLIN)

    def _begin(self, client: socket.socket) -> None:
        message, streams, _, _ = socket.recv_fds(client, _REQUEST_BYTES, 3)
        self._poller.unregister(client)
        if len(streams) != 3:  # The client ended before it said what it wants.
            client.close()
            return
        pid = os.fork()
        if pid == 0:
            self._forget()
            client.close()
            _run(message, streams)
        for one in streams:
            os.close(one)
        ended = os.pidfd_open(pid)
        self._running[ended] = pid, client
        self._of_client[client.fileno()] = ended
        self._poller.register(ended, select.POLLIN)
        self._poller.register(client, 0)  # that it hangs up is told all the same

    def _end_without_client(self, client: int) -> None:
        """Kill the program of a client that was killed."""
        self._poller.unregister(client)
        signal.pidfd_send_signal(self._of_client.pop(client), signal.SIGKILL)

    def _tell_end(self, descriptor: int) -> None:
        pid, client = self._running.pop(descriptor)
        self._poller.unregister(descriptor)
        if self._of_client.pop(client.fileno(), None) is not None:
            self._poller.unregister(client)
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with client:
            try:
                client.send(b"%d" % (status if status >= 0 else 128 - status))
            except OSError:
                return  # The client has gone.

    def _forget(self) -> None:
        """Close what is the server's, in a forked process."""
        for one in (self._listening, *self._waiting.values(), *(client for _pid, client in self._running.values())):
            one.close()
        for descriptor in self._running:
            os.close(descriptor)


def _run(message: bytes, streams: list[int]) -> None:
    """Become the program; never returns."""
    status = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
        sys.argv, environment, folder = marshal.loads(message)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        _main_of(sys.argv[0].rpartition("/")[2])()
        status = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        else:
            status = ended.code or 0
    except BaseException:  # noqa: BLE001 - as the interpreter ends
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 1
    os._exit(status)


def _main_of(name: str) -> Callable[[], None]:
    from vgpuctl_lab.simulated import helper, interpreter, program

    return {"python3": interpreter.main, "virt-ssh-helper": helper.main}.get(name, program.main)


def load(lab: str, model: str) -> None:
    """Import what programs need: the lab's package without its commands, and of the product the model alone."""
    for name, place in (("vgpuctl_lab", lab), ("vgpuctl_lab.simulated", f"{lab}/simulated"), ("vgpuctl.model", model)):
        package = ModuleType(name)
        package.__path__ = [place]
        sys.modules[name] = package
    sys.modules["vgpuctl_lab"].simulated = sys.modules["vgpuctl_lab.simulated"]  # type: ignore[attr-defined]
    for name in (*_STANDARD, *(f"vgpuctl_lab.simulated.machine.{one}" for one in _MACHINE)):
        importlib.import_module(name)
    _main_of("")
    gc.freeze()


def main() -> None:
    """Take a listening socket's number, and the folders of `vgpuctl_lab` and `vgpuctl.model`."""
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        load(*sys.argv[2:4])
        ProgramServer(listening).run()


if __name__ == "__main__":
    main()
