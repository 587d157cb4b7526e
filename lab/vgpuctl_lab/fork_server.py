# SPDX-License-Identifier: Apache-2.0
"""Runs programs that need not import first what they need: a server has imported it, and forks for each of them.

A client connects to a unix socket of packets and sends one message with its standard streams. It gets two packets, the
program's process id, and at its end its exit code, negative for a signal. A program ends with its client.
"""

import atexit
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable

_STDIN = 0
_NOT_FLUSHED = 120  # Python's exit code when it cannot flush the standard streams at its end
_REQUEST_BYTES = 1 << 20


class ForkServer:
    """Takes clients on a listening socket until its own standard input ends.

    become: what a forked process runs with the client's message; its streams are the client's by then.
    prepare: what the server does with the message before it forks.
    """

    def __init__(
        self,
        listening: socket.socket,
        become: Callable[[bytes], None],
        prepare: Callable[[bytes], None] = lambda _message: None,
    ) -> None:
        self._listening = listening
        self._become = become
        self._prepare = prepare
        self._poller = select.poll()
        for one in (_STDIN, listening.fileno()):
            self._poller.register(one, select.POLLIN)
        self._waiting: dict[int, socket.socket] = {}
        """Clients that have not said yet what they want; some are stopped just then."""
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """The programs by pidfd: their process and client."""
        self._of_client: dict[int, int] = {}
        """The pidfd of a client's program."""

    def run(self) -> None:
        """Serve. In a forked process, run the program and end with it."""
        while True:
            # One at a time: what one event closes can give its number to what another one opens.
            descriptor, _events = self._poller.poll()[-1]
            if descriptor in self._running:
                self._tell_end(descriptor)
            elif descriptor in self._of_client:
                self._end_without_client(descriptor)
            elif descriptor in self._waiting:
                self._begin(self._waiting.pop(descriptor))
            elif descriptor == _STDIN:
                return
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
        self._prepare(message)
        pid = os.fork()
        if pid == 0:
            client.close()
            self._forget()
            _run(self._become, message, streams)
        for one in streams:
            os.close(one)
        ended = os.pidfd_open(pid)
        self._running[ended] = pid, client
        self._of_client[client.fileno()] = ended
        self._poller.register(ended, select.POLLIN)
        self._poller.register(client, 0)  # that it hangs up is told all the same
        _send(client, pid)

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
        with client:
            _send(client, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def _forget(self) -> None:
        """Close what is the server's, in a forked process."""
        for one in (self._listening, *self._waiting.values(), *(client for _pid, client in self._running.values())):
            one.close()
        for descriptor in self._running:
            os.close(descriptor)


def _send(client: socket.socket, number: int) -> None:
    try:
        client.send(b"%d" % number)
    except OSError:
        return  # The client has gone.


def _run(become: Callable[[bytes], None], message: bytes, streams: list[int]) -> None:
    """Run the program in this process, and end as the interpreter does: an uncaught exception is told on stderr."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # As a new interpreter opens them: those of the server remember whether its own files could seek.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, buffering, errors = ("w", 1, "backslashreplace") if name == "stderr" else ("rw"[number], -1, None)
        stream = open(number, mode, buffering, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    code = 0
    try:
        become(message)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            code = ended.code or 0
        else:
            sys.stderr.write(f"{ended.code}\n")
            code = 1
    except BaseException:  # noqa: BLE001 - as the interpreter ends
        sys.excepthook(*sys.exc_info())
        code = 1
    _end(code)


def _end(code: int) -> None:
    """End as the interpreter does: wait for threads, run exit functions, flush. Only the objects are not freed.

    To free them touches, and so copies, all memory shared with the server: 40 ms of processor time for `vgpuctl`.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = _NOT_FLUSHED
    os._exit(code & 0xFF)
