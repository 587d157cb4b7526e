# SPDX-License-Identifier: Apache-2.0
"""The one process that keeps all simulated hosts of a lab: their ports, their logins, their libvirt.

A host that nobody talks to is a listening socket. A login is a real sshd that serves this one connection (`sshd -i`)
with the host's own key and settings. Latency is added between the two, to every byte of both directions.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vgpuctl_lab
from vgpuctl.model import mig_space
from vgpuctl_lab.process import needed_program, record
from vgpuctl_lab.simulated import program_server
from vgpuctl_lab.simulated.boot_units import run_boot_units
from vgpuctl_lab.simulated.layout import ADDRESS, SimulatedFolder
from vgpuctl_lab.simulated.libvirt_proxy import LibvirtProxy
from vgpuctl_lab.simulated.machine.programs import enable_vfs
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.usage import LIBVIRTD, SSHD
from vgpuctl_lab.simulated.moves import Peers

_LIBVIRTD_LIMIT_S = 20.0
_FOLDER_LOOK_S = 5.0
_CLIENTS = 4096
_CHUNK = 1 << 16
_BACKLOG = 64


@dataclass
class HostProxy:
    """One host. sessions: its sshds by pid. is_off: without power. is_listening: its sshd takes connections."""

    name: str
    machine: MachineFolder
    listener: socket.socket
    libvirt: LibvirtProxy
    latency_s: float
    accepting: "asyncio.Task[None] | None" = None
    sessions: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    relays: set["asyncio.Task[None]"] = field(default_factory=set)
    is_off: bool = False
    is_listening: bool = True

    @property
    def port(self) -> int:
        """The port its sshds are reached at."""
        return int(self.listener.getsockname()[1])


class LabDaemon:
    """Everything that is up."""

    def __init__(self, lab: SimulatedFolder) -> None:
        self._lab = lab
        # Sockets lie in the lab's folder, whose path may be longer than a socket's may be: reached through /proc.
        self._descriptor = os.open(lab.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._near = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        # Whatever the lab daemon starts ends with it, however the lab daemon ends. Not by SIGTERM: sshd (OpenSSH 9.2)
        # forgets one that comes just before it waits, until its client says something.
        setpriv = needed_program("setpriv", package="util-linux")
        self._ended_with_us = (setpriv, "--pdeathsig", "KILL", "--")
        self._sshd = needed_program("sshd", package="openssh-server")
        self._proxies: dict[str, HostProxy] = {}
        self._peers: Peers = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop, or until the lab's folder is gone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        libvirtd = self._start_libvirtd()
        programs = self._start_program_server()
        try:
            self._lab.write_processes(record(os.getpid()), record(libvirtd.pid))
            await self._wait_for_libvirtd(libvirtd)
            self._lab.control_socket.unlink(missing_ok=True)
            server = await asyncio.start_unix_server(self._take_client, f"{self._near}/{self._lab.control_socket.name}")
            async with server:
                while not self._stopping.is_set() and os.fstat(self._descriptor).st_nlink > 0:
                    # Files of tests that were interrupted are removed by a later run, which knows no daemon of theirs.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), _FOLDER_LOOK_S)
        finally:
            await self._end(libvirtd)
            programs.communicate()
            self._lab.programs_socket.unlink(missing_ok=True)

    def _start_program_server(self) -> "subprocess.Popen[bytes]":
        """Start what runs the programs of all hosts, until its standard input ends; early clients wait for it."""
        self._lab.programs_socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(f"{self._near}/{self._lab.programs_socket.name}")
            listening.listen(_CLIENTS)
            server, package = Path(program_server.__file__), Path(vgpuctl_lab.__file__).parent
            model = Path(mig_space.__file__).parent
            return subprocess.Popen(
                [sys.executable, "-IS", server, str(listening.fileno()), package, model],
                stdin=subprocess.PIPE,
                pass_fds=(listening.fileno(),),
            )

    def _start_libvirtd(self) -> "subprocess.Popen[bytes]":
        """Start libvirt's daemon without any of its drivers but `test`, which is inside the library."""
        folder = self._lab.libvirtd
        for name in ("drivers", "sockets"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for stale in (folder / "sockets").iterdir():
            stale.unlink()
        near = f"{self._near}/{folder.name}"
        (folder / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{near}/sockets"\nunix_sock_rw_perms = "0700"\nauth_unix_ro = "none"\n'
            'auth_unix_rw = "none"\nmax_clients = 20000\nmax_client_requests = 64\nlog_outputs = "3:stderr"\n'
        )
        program = needed_program("libvirtd", package="libvirt-daemon")
        with (folder / "libvirtd.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *self._ended_with_us,
                    program,
                    "--config",
                    str(folder / "libvirtd.conf"),
                    "--pid-file",
                    str(folder / "libvirtd.pid"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "HOME": str(folder),
                    "XDG_RUNTIME_DIR": str(folder),
                    "LIBVIRT_DRIVER_DIR": str(folder / "drivers"),
                },
            )

    async def _wait_for_libvirtd(self, libvirtd: "subprocess.Popen[bytes]") -> None:
        limit = asyncio.get_running_loop().time() + _LIBVIRTD_LIMIT_S
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_unix_connection(self._libvirt_socket())
                writer.close()
                return
            if libvirtd.poll() is not None or asyncio.get_running_loop().time() > limit:
                raise RuntimeError("libvirtd does not answer, see libvirtd.log")
            await asyncio.sleep(0.02)

    def _libvirt_socket(self) -> str:
        return f"{self._near}/{self._lab.libvirtd.name}/sockets/libvirt-sock"

    async def _end(self, libvirtd: "subprocess.Popen[bytes]") -> None:
        for proxy in list(self._proxies.values()):
            await self._remove(proxy)
        libvirtd.terminate()
        try:
            await asyncio.to_thread(libvirtd.wait, 5)
        except subprocess.TimeoutExpired:
            libvirtd.kill()
            libvirtd.wait()
        self._lab.control_socket.unlink(missing_ok=True)

    # Questions of the lab's commands

    async def _take_client(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Read one JSON line: a question of the lab's commands, or a host's virt-ssh-helper, whose bytes follow."""
        try:
            request = json.loads(await reader.readline())
            if request["call"] == "libvirt" and not _runs(self._proxies[request["host"]], LIBVIRTD):
                return
            if request["call"] == "libvirt":
                await self._proxies[request["host"]].libvirt.serve(reader, writer)
                return
            try:
                answer = {"answer": await self._answer(request)}
            except (OSError, KeyError, RuntimeError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ValueError, KeyError, ConnectionError):
            pass  # A client that says nothing we know, or has gone, gets its connection closed.
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any]) -> Any:
        names = [str(name) for name in request.get("hosts", ())]
        if request["call"] == "add":
            await asyncio.gather(*(self._add(name) for name in names))
        elif request["call"] == "remove":
            for name in names:
                if name in self._proxies:
                    await self._remove(self._proxies.pop(name))
        elif request["call"] == "reboot":
            for name in names:
                await self._reboot(self._proxies[name])
        elif request["call"] == "faults":
            for name in names:
                await self._heed_faults(self._proxies[name])
        return {
            name: {
                "port": proxy.port,
                "is_off": proxy.is_off,
                "sessions": len(proxy.sessions),
                "vms": proxy.libvirt.running(),
                "booted_at": proxy.machine.state().booted_at,
            }
            for name, proxy in self._proxies.items()
        }

    async def _add(self, name: str) -> None:
        """Switch a host on. A host that was on when an earlier daemon died comes back as after a power cut."""
        if name in self._proxies:
            return
        folder = self._lab.host(name)
        machine = MachineFolder(folder)
        machine.reboot()
        enable_vfs(machine)
        libvirt = LibvirtProxy(machine, folder / "node.xml", folder / "libvirt", self._peers)
        await run_boot_units(self._lab, machine)
        await libvirt.open(self._libvirt_socket())
        listener = _listen(self._lab.read_port(name))
        self._lab.write_port(name, int(listener.getsockname()[1]))
        proxy = HostProxy(name, machine, listener, libvirt, self._lab.read_latency_s(name))
        self._proxies[name] = proxy
        self._set_listeners(proxy)

    async def _remove(self, proxy: HostProxy) -> None:
        await self._cut(proxy)
        proxy.listener.close()
        await proxy.libvirt.close()

    async def _cut(self, proxy: HostProxy) -> None:
        """End every session of a host and take no new one."""
        if proxy.accepting is not None:
            proxy.accepting.cancel()
            proxy.accepting = None
        # In OpenSSH 10 a child of sshd carries the connection, for root too, and outlives it.
        for pid in proxy.sessions:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for relay in list(proxy.relays):
            relay.cancel()
        proxy.libvirt.drop_clients()
        while proxy.sessions:
            await asyncio.sleep(0.01)

    async def _reboot(self, proxy: HostProxy) -> None:
        await self._cut(proxy)
        await proxy.libvirt.power_off()
        proxy.machine.reboot()
        await run_boot_units(self._lab, proxy.machine)
        await proxy.libvirt.start_autostarted()
        proxy.is_off = False
        self._set_listeners(proxy)

    async def _heed_faults(self, proxy: HostProxy) -> None:
        """Bring a host into the state that its faults say: power, libvirt, sshd, network."""
        wants_power = "power-off" not in proxy.machine.state().host_faults
        if wants_power and proxy.is_off:
            await self._reboot(proxy)
            return
        if not wants_power and not proxy.is_off:
            proxy.is_off = True
            await self._cut(proxy)
            await proxy.libvirt.power_off()
        if not _runs(proxy, LIBVIRTD):
            proxy.libvirt.drop_clients()
        self._set_listeners(proxy)

    def _set_listeners(self, proxy: HostProxy) -> None:
        """Let sshd listen or not, and connections through or not. A port without a listener stays the host's own."""
        is_cut = "network" in proxy.machine.state().host_faults
        wants_listener = not proxy.is_off and _runs(proxy, SSHD)
        if proxy.accepting is not None and (is_cut or not wants_listener):
            proxy.accepting.cancel()
            proxy.accepting = None
        if wants_listener and not proxy.is_listening:
            proxy.listener.listen(_BACKLOG)
        elif proxy.is_listening and not wants_listener:
            port = proxy.port
            proxy.listener.close()
            proxy.listener = _bound(port)
        proxy.is_listening = wants_listener
        if proxy.accepting is None and wants_listener and not is_cut:
            proxy.accepting = asyncio.create_task(self._accept(proxy))
        for pid in proxy.sessions:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGSTOP if is_cut else signal.SIGCONT)

    # Logins

    async def _accept(self, proxy: HostProxy) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(proxy.listener)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not proxy.latency_s:
                self._log_in(proxy, connection)
                continue
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            connection.setblocking(False)
            self._log_in(proxy, theirs)
            relay = asyncio.create_task(_relay(connection, ours, proxy.latency_s / 2))
            proxy.relays.add(relay)
            relay.add_done_callback(proxy.relays.discard)

    def _log_in(self, proxy: HostProxy, connection: socket.socket) -> None:
        """Give a connection to an sshd of its own; ours of it is closed."""
        folder = self._lab.host(proxy.name)
        connection.setblocking(True)
        with connection, (folder / "sshd.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._ended_with_us, self._sshd, "-i", "-e", "-f", str(folder / "sshd_config")],
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                stderr=log,
                start_new_session=True,
            )
        proxy.sessions[process.pid] = process
        descriptor = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._log_out, proxy, process, descriptor)

    def _log_out(self, proxy: HostProxy, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        process.wait()
        proxy.sessions.pop(process.pid, None)


def _runs(proxy: HostProxy, service: str) -> bool:
    return proxy.machine.state().services.get(service, True)


async def _relay(one: socket.socket, other: socket.socket, delay_s: float) -> None:
    """Copy both ways, each byte `delay_s` late, until both sides have ended."""
    with one, other:
        copies = [asyncio.create_task(_copy(*pair, delay_s)) for pair in ((one, other), (other, one))]
        try:
            # sshd closes both directions at its end; the other side's half may stay open for ever.
            await asyncio.wait(copies, return_when=asyncio.ALL_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()


async def _copy(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                with suppress(OSError):
                    target.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(target, data)

    delivery = asyncio.create_task(deliver())
    try:
        with suppress(OSError):
            while data := await loop.sock_recv(source, _CHUNK):
                queue.put_nowait((loop.time() + delay_s, data))
        queue.put_nowait((loop.time() + delay_s, b""))
        with suppress(OSError):
            await delivery
    finally:
        delivery.cancel()


def _listen(port: int) -> socket.socket:
    """Listen on a host's port, on any free one when it has none yet or somebody else has it now."""
    try:
        listener = _bound(port)
    except OSError:
        listener = _bound(0)
    listener.listen(_BACKLOG)
    return listener


def _bound(port: int) -> socket.socket:
    """A socket that has a port and does not listen yet: the kernel refuses connections."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setblocking(False)
    try:
        bound.bind((ADDRESS, port))
    except OSError:
        bound.close()
        raise
    return bound


def main() -> None:
    """Keep the lab in the folder that the command line names."""
    asyncio.run(LabDaemon(SimulatedFolder(Path(sys.argv[1]))).run())


if __name__ == "__main__":
    main()
