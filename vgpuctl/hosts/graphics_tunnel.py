# SPDX-License-Identifier: Apache-2.0
"""A guest's display on a socket of this machine, through the host's SSH connection.

Each client is one exec channel that runs `agent/graphics_pipe.py` on the host. The socket is a private file, or a port
of this machine's loopback that serves no other user of it."""

import functools
import os
import pkgutil
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from vgpuctl.errors import CommandFailed, HostError, UsageError
from vgpuctl.hosts.remote_process import RemoteProcess
from vgpuctl.listening.sockets import LOOPBACK, listen_at, listen_on
from vgpuctl.model.host_target import HostTarget

# The user at the other end of a loopback connection: any user of the machine can reach a port of 127.0.0.1.
#
# Source: Linux, Documentation/networking/proc_net_tcp.rst.
_TABLE = Path("/proc/net/tcp")
_STATE_FIELD, _UID_FIELD = 3, 7
_ESTABLISHED = "01"
"""TCP_ESTABLISHED of include/net/tcp_states.h."""


def is_own_peer(connection: socket.socket) -> bool:
    """True if the other end of an accepted IPv4 connection is open, and belongs to this user or to root.

    An end that is closed counts for nobody: the table gives the user 0 for what is left of it (`get_timewait4_sock` of
    net/ipv4/tcp_ipv4.c), while all that was sent before is still to be read. False where the system has no table.
    """
    try:
        user = _user_of(_shown(*connection.getpeername()), _shown(*connection.getsockname()))
    except OSError:  # It is gone already.
        return False
    return user is not None and user in (0, os.geteuid())


def _user_of(local: str, remote: str) -> int | None:
    try:
        with _TABLE.open(encoding="ascii") as table:
            for line in table:
                parts = line.split()
                if parts[1 : _STATE_FIELD + 1] == [local, remote, _ESTABLISHED]:
                    return int(parts[_UID_FIELD])
    except OSError:
        return None
    return None


def _shown(address: str, port: int) -> str:
    """An address as the table has it: the bytes of the address as a number of this machine's byte order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    return f"{number:08X}:{port:04X}"


MOST_CLIENTS = 6
"""OpenSSH allows 10 sessions on a connection, of which the agent and libvirt have one each; SPICE opens about six."""

_CHUNK = 64 * 1024
_POLL_MS = 500
_JOIN_TIMEOUT_S = 5.0
_SHOWN_LINES = 5


class Client(Protocol):
    """The viewer's end of a stream."""

    def fileno(self) -> int:
        """File descriptor that polls readable when `receive` has something, or the end, to give."""

    def receive(self) -> bytes | None:
        """Bytes for the guest, without waiting: empty for nothing yet, None after the end."""

    def send(self, data: bytes) -> None:
        """Pass on bytes of the guest. Raises OSError when the viewer is gone."""


class GraphicsSource:
    """One guest's display on its host. open_process: starts a program there.

    python: path of the host's interpreter. uri: of libvirt on the host. index: of the `graphics` element.
    """

    def __init__(
        self,
        target: HostTarget,
        open_process: Callable[[Sequence[str]], RemoteProcess],
        *,
        python: str,
        uri: str,
        uuid: str,
        index: int = 0,
    ) -> None:
        self._target = target
        self._open_process = open_process
        self._argv = [python, "-I", "-S", "-c", _pipe(), uri, uuid, str(index)]

    def serve(self, client: Client) -> None:
        """Copy between a viewer and the guest until one side ends. Raises CommandFailed, HostError."""
        with self._open_process(self._argv) as process:
            if _copy(client, process):
                completed = process.finish()
                if completed.exit_status:
                    raise self._refused(completed.exit_status, completed.stderr)

    def check(self, timeout_s: float) -> bytes:
        """Open the display once and give the first bytes that the server says. Raises CommandFailed, HostError."""
        with self._open_process(self._argv) as process:
            try:
                return process.read_line(timeout_s)
            except CommandFailed as failed:
                raise self._refused(None, "\n".join(failed.context).encode()) from failed

    def _refused(self, status: int | None, stderr: bytes) -> CommandFailed:
        said = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()][-_SHOWN_LINES:]
        reason = said[-1] if said else f"the program on the host ended with exit status {status}"
        return CommandFailed(
            f"{self._target.name}: the display cannot be opened: {reason}",
            context=said[:-1],
            hint="see whether the VM runs; a user who is not root needs the group libvirt, or ansible_become",
        )


class GraphicsListener:
    """A socket of this machine that viewers connect to, as a context manager. failed: told why a client's stream ended.

    path: of a unix socket, for its owner alone; without one a free port of the loopback. most: clients at a time.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], None],
        failed: Callable[[str], None],
        path: Path | None = None,
        most: int = MOST_CLIENTS,
    ) -> None:
        self._serve_client = serve
        self._failed = failed
        self._most = most
        self.path = path
        self._socket = _unix_socket(path) if path is not None else listen_on(LOOPBACK, 0)
        self._clients: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def port(self) -> int:
        """The port of the loopback; 0 for a unix socket."""
        return 0 if self.path is not None else int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            clients = list(self._clients)
        for one in (self._socket, *clients):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It has ended by itself.
        self._socket.close()
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_S)
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="graphics", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            refusal = self._refuse(client)
            if refusal is not None:
                self._failed(refusal)
                client.close()
                continue
            with self._lock:
                if self._is_closed:
                    client.close()
                    return
                self._clients.add(client)
            self._start(functools.partial(self._serve, client))

    def _refuse(self, client: socket.socket) -> str | None:
        if self.path is None and not is_own_peer(client):
            return "refused a connection: it is of another user of this machine"
        if len(self._clients) >= self._most:
            return f"refused a connection: {self._most} are open"
        return None

    def _serve(self, client: socket.socket) -> None:
        try:
            self._serve_client(client)
        except HostError as error:
            if not self._is_closed:
                self._failed(error.message)
        except OSError as error:
            if not self._is_closed:
                self._failed(f"the viewer's connection ended: {error.strerror or error}")
        finally:
            with self._lock:
                self._clients.discard(client)
            client.close()


class SocketClient:
    """A viewer that speaks to the socket directly."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._client.fileno()

    def receive(self) -> bytes | None:
        """Bytes that the viewer sent."""
        try:
            return self._client.recv(_CHUNK) or None
        except ConnectionError:
            return None

    def send(self, data: bytes) -> None:
        """Tell the viewer."""
        self._client.sendall(data)


def _copy(client: Client, process: RemoteProcess) -> bool:
    """Copy until one side ends; True when it was the host's."""
    poll = select.poll()
    poll.register(client.fileno(), select.POLLIN)
    poll.register(process.fileno(), select.POLLIN)
    while True:
        data = process.take()
        if data is None:
            return True
        if data:
            try:
                client.send(data)
            except OSError:
                return False
        if client.fileno() in {number for number, _ in poll.poll(0 if data else _POLL_MS)}:
            given = client.receive()
            if given is None:
                return False
            if given:
                process.write(given)


@functools.cache
def _pipe() -> str:
    """The program for the host."""
    source = pkgutil.get_data("vgpuctl.agent", "graphics_pipe.py")
    assert source is not None
    return source.decode()


def _unix_socket(path: Path) -> socket.socket:
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} is there already", hint="name a path that does not exist; its folder must")
    try:
        return listen_at(path)
    except OSError as error:
        raise UsageError(
            f"the socket {path} cannot be made: {error.strerror or error}",
            hint="name a path of at most 107 bytes in a folder that you may write to",
        ) from error
