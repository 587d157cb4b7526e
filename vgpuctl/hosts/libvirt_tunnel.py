# SPDX-License-Identifier: Apache-2.0
"""libvirt's RPC through the host's SSH connection: a private local socket, bridged to libvirt's own remote helper.

libvirt's client speaks to the socket as if the daemon were here; each open of the URI is one exec channel that runs
`virt-ssh-helper`, which finds the right daemon socket on the host (modular or monolithic).
"""

import contextlib
import fcntl
import functools
import os
import select
import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vgpuctl.errors import CommandFailed, HostError, LibvirtMissing, WayFailed
from vgpuctl.hosts.libvirt_calls import PendingCalls
from vgpuctl.hosts.remote_process import CompletedCommand, RemoteProcess
from vgpuctl.listening.sockets import listen_at
from vgpuctl.local_files import make_first_folder, private_places
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.libvirt_units import hint_of

_CHUNK = 64 * 1024
_SOCKET_PATH_LIMIT = 107
_FOLDER_PREFIX = "vgpuctl-tunnel-"
_SOCKET_NAME = "libvirt-sock"
_JOIN_TIMEOUT_S = 5.0
_POLL_MS = 2000


class LibvirtTunnel:
    """A context in which `uri` reaches the host's libvirt. Nothing runs on the host before libvirt opens it.

    answer_s: the limit of a call, in seconds; one that starts or ends a guest or writes a volume may take WORK_FACTOR
    times as long. A call without an answer ends with an error, and the connection to libvirt with it.
    """

    def __init__(
        self,
        target: HostTarget,
        helper: Sequence[str],
        open_process: Callable[[Sequence[str]], RemoteProcess],
        answer_s: float,
    ) -> None:
        self._target = target
        self._helper = tuple(helper)
        self._answer_s = answer_s
        self._open_process = open_process
        self._lock = threading.Lock()
        self._failure: HostError | None = None
        self._bridges: list[_Bridge] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._folder = _private_folder()
        self._folder_lock = _lock(self._folder)
        self._path = self._folder / _SOCKET_NAME
        self._listener: socket.socket | None = None

    @property
    def uri(self) -> str:
        """The URI for `libvirt.open`."""
        return f"qemu+unix:///system?socket={self._path}&mode=legacy"

    def failure(self) -> HostError | None:
        """Why the remote side ended, None while it did nothing wrong; set before libvirt sees the end."""
        with self._lock:
            return self._failure

    def __enter__(self) -> Self:
        try:
            self._listener = listen_at(self._path)
        except BaseException:
            self.close()
            raise
        self._start(functools.partial(self._accept, self._listener), "libvirt-tunnel")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every bridge and remove the socket. Can be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            bridges = list(self._bridges)
        if self._listener is not None:
            # Wakes accept(), which close() alone does not.
            with contextlib.suppress(OSError):  # Only Linux shuts down a socket that has no connection.
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for bridge in bridges:
            bridge.interrupt()
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._folder_lock)

    def _start(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError as error:
                self._give_up(listener, error)
                return
            bridge = _Bridge(client, self._answer_s)
            with self._lock:
                if self._is_closed:
                    client.close()
                    return
                self._bridges.append(bridge)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._start(lambda bridge=bridge: self._serve(bridge), "libvirt-bridge")  # type: ignore[misc]

    def _give_up(self, listener: socket.socket, error: OSError) -> None:
        """Reset the connections that nobody takes any more: libvirt would wait for an answer for ever."""
        self._note(self._own_failure(error))
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    def _own_failure(self, error: OSError) -> WayFailed:
        return WayFailed(
            f"{self._target.name}: this machine took no connection of libvirt: {error.strerror}",
            hint="raise the limit of open files (`ulimit -n`), or lower --forks",
        )

    def _serve(self, bridge: "_Bridge") -> None:
        try:
            with self._open_process(self._helper) as process:
                try:
                    has_ended = bridge.run(process, self._forget)
                except CommandFailed:  # while a call was written to it
                    has_ended = True
                if has_ended:
                    self._note(_explain(self._target, self._helper, process.finish()))
                elif bridge.problem is not None:
                    self._note(_unanswered(self._target, bridge.problem))
        except HostError as exc:
            self._note(exc)
        except OSError as error:
            self._note(self._own_failure(error))
        finally:
            with self._lock:
                self._bridges.remove(bridge)
            # After the failure is noted: this is when libvirt sees the end of file.
            bridge.close()

    def _forget(self) -> None:
        """The remote side answers again: what failed before explains nothing any more."""
        with self._lock:
            self._failure = None

    def _note(self, failure: HostError | None) -> None:
        with self._lock:
            if self._failure is None and not self._is_closed:
                self._failure = failure


class _Bridge:
    """One libvirt client's socket, copied into the remote helper's streams and back, by one thread.

    problem: the call that was ended because it had no answer.
    """

    def __init__(self, client: socket.socket, answer_s: float) -> None:
        self._client = client
        self._calls = PendingCalls(answer_s)
        self.problem: str | None = None

    def run(self, process: RemoteProcess, on_first_answer: Callable[[], None]) -> bool:
        """Copy until one side ends or a call has no answer; True when the remote side ended without being asked to."""
        has_answered = False
        poll = select.poll()
        poll.register(self._client, select.POLLIN)
        poll.register(process.fileno(), select.POLLIN)
        client = self._client.fileno()
        ready: set[int] = set()
        while True:
            data = b"" if ready == {client} else process.take()
            if data is None:
                # The daemon hangs up after a goodbye, and virt-ssh-helper may end before it has passed the answer on.
                return not self._calls.has_said_goodbye
            try:
                if data:
                    if not has_answered:
                        has_answered = True
                        on_first_answer()
                    self._calls.received(data)
                    self._client.sendall(data)
                overdue = self._calls.overdue()
                if overdue is not None:
                    self.problem = overdue.problem
                    self._client.sendall(overdue.answer)
                    return False
                ready = {number for number, _ in poll.poll(_POLL_MS)}
                if client in ready:
                    data = self._client.recv(_CHUNK)
                    if not data:
                        return False
                    self._calls.sent(data)
                    process.write(data)
            except OSError:
                return False

    def interrupt(self) -> None:
        """End the client's side, which ends the copying."""
        try:
            self._client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The thread has closed it meanwhile.

    def close(self) -> None:
        """Close the client's socket."""
        self._client.close()


def _private_folder() -> Path:
    """Make a folder of mode 0700 whose path leaves room for a socket's name (108 bytes in all).

    A disk that is full takes no folder; the other places are file systems in memory. Raises FileNotWritten.
    """
    # make_first_folder adds eight characters.
    short = [
        path
        for path in private_places()
        if len(f"{path}/{_FOLDER_PREFIX}12345678/{_SOCKET_NAME}") <= _SOCKET_PATH_LIMIT
    ]
    made = make_first_folder(short, "the folder of libvirt's socket", prefix=_FOLDER_PREFIX)
    _remove_dead_folders(made.parent)
    return made


@functools.cache
def _remove_dead_folders(parent: Path) -> None:
    """Remove what killed commands of this user left: a socket is there, and nobody holds its folder's lock.

    Once for all hosts: each looks at the folders of all others.
    """
    for path in parent.glob(f"{_FOLDER_PREFIX}*/{_SOCKET_NAME}"):
        with contextlib.suppress(OSError):
            os.close(_lock(path.parent))
            shutil.rmtree(path.parent, ignore_errors=True)


def _lock(folder: Path) -> int:
    """Lock the folder until the descriptor is closed, by the kernel if need be. Raises OSError when another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _explain(target: HostTarget, helper: Sequence[str], completed: CompletedCommand) -> LibvirtMissing:
    said = [line for line in completed.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if completed.exit_status in (126, 127):
        return LibvirtMissing(
            f"{target.name}: {helper[0]} was not found on the host, so libvirt is missing or older than 6.8",
            context=said[-10:],
            hint="install libvirt on the host (Debian: libvirt-daemon-system; others: libvirt-daemon) "
            "and start its daemon: `systemctl enable --now libvirtd.socket` or `virtqemud.socket`",
        )
    reason = said[-1] if said else f"the daemon closed the connection (exit status {completed.exit_status})"
    return LibvirtMissing(
        f"{target.name}: libvirt does not answer on the host: {reason}",
        context=said[-10:],
        hint=f"{hint_of(reason)}; a user who is not root needs the libvirt group or ansible_become",
    )


def _unanswered(target: HostTarget, problem: str) -> LibvirtMissing:
    return LibvirtMissing(
        f"{target.name}: {problem}",
        hint="look on the host for what libvirt waits for: a guest's QEMU that hangs, or a storage pool that is away;"
        " --command-timeout gives it longer",
    )
