# SPDX-License-Identifier: Apache-2.0
"""Opens the stream to a host (TCP, jump hosts, ProxyCommand), speaks SSH, checks the host key and logs in."""

import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import HostUnreachable
from vgpuctl.hosts import host_keys
from vgpuctl.hosts.authentication import authenticate
from vgpuctl.hosts.bounds import LASTING_PER_SECOND, MOST_IN_SESSION, SocketLike, WatchedStream
from vgpuctl.hosts.proxy_command import ProxyCommand
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.hosts.ssh_config import Endpoint
from vgpuctl.hosts.statistics import ConnectionStatistics

if TYPE_CHECKING:
    import paramiko

_JOIN_TIMEOUT_S = 5.0
_USER_TIMEOUT_MS = 30_000
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


@dataclass
class Login:
    """A logged-in transport and what must be closed after it: its jump hosts or its proxy program."""

    transport: "paramiko.Transport"
    resources: ExitStack

    def close(self) -> None:
        """Close everything, the target first."""
        self.resources.close()


def session_budget(sender: str) -> ByteBudget:
    """The bound of everything that one host sends."""
    return ByteBudget(sender, MOST_IN_SESSION, per_second=LASTING_PER_SECOND)


def log_in(endpoint: Endpoint, statistics: ConnectionStatistics, budget: ByteBudget) -> Login:
    """Reach an endpoint through its jump hosts and log in; every hop's key is checked.

    budget: of the endpoint; each jump host has one of its own.
    Raises HostUnreachable, HostKeyUnknown, HostKeyChanged, AuthenticationFailed.
    """
    with ExitStack() as stack:
        before: paramiko.Transport | None = None
        for hop in (*endpoint.via, endpoint):
            is_target = hop is endpoint
            if before is None:
                stream, proxy = _first_stream(hop, statistics, stack)
            else:
                stream, proxy = _through(before, hop, endpoint.name), None
            watched = (
                WatchedStream(stream, budget, statistics)
                if is_target
                else WatchedStream(stream, session_budget(f"jump host {hop.name}"))
            )
            transport = _handshake(watched, hop, endpoint.name, stack, proxy)
            authenticate(transport, hop)
            watched.log_in_done()
            statistics.count_login()
            transport.set_keepalive(hop.keepalive_s)
            before = transport
        assert before is not None
        return Login(before, stack.pop_all())


def _first_stream(
    hop: Endpoint, statistics: ConnectionStatistics, stack: ExitStack
) -> tuple[SocketLike, ProxyCommand | None]:
    if hop.proxy_command is not None:
        proxy = ProxyCommand(hop.proxy_command)
        stack.callback(proxy.close)
        return proxy.stream, proxy
    stream = _connect(hop)
    stack.callback(stream.close)
    statistics.count_connect()
    return stream, None


def _connect(endpoint: Endpoint) -> socket.socket:
    """Connect to the first address that answers; the error lists what each one answered."""
    where = f"{endpoint.host} port {endpoint.port}"
    family = _FAMILIES.get(endpoint.address_family, socket.AF_UNSPEC)
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, family, socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise HostUnreachable(
            f"{endpoint.name}: the name {endpoint.host} cannot be resolved: {reason}",
            hint="check ansible_host, ssh_config's HostName and the resolver",
        ) from exc
    deadline = time.monotonic() + endpoint.connect_timeout_s
    answers: list[str] = []
    for kind, _, _, _, address in found:
        shown_address = f"{address[0]!s} port {endpoint.port}"
        stream = socket.socket(kind, socket.SOCK_STREAM)
        try:
            stream.settimeout(max(0.1, deadline - time.monotonic()))
            stream.connect(address)
        except TimeoutError:
            stream.close()
            answers.append(f"{shown_address}: no answer within {endpoint.connect_timeout_s:g} s")
        except OSError as exc:
            stream.close()
            answers.append(f"{shown_address}: {exc.strerror or exc}")
        else:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Without it a host that lost power keeps a write waiting for a quarter of an hour.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
            return stream
    raise HostUnreachable(
        f"{endpoint.name}: no connection to {where}: {answers[0].partition(': ')[2]}",
        context=answers,
        hint="check that the host is up, that sshd listens there (ansible_host, ansible_port) and the firewall",
    )


def _through(before: "paramiko.Transport", hop: Endpoint, name: str) -> SocketLike:
    """Open a stream to the next hop from inside the one before."""
    import paramiko

    try:
        channel = before.open_channel(
            "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=hop.connect_timeout_s
        )
    except (paramiko.SSHException, OSError, EOFError) as exc:
        raise HostUnreachable(
            f"{name}: the jump host before it could not reach {hop.host} port {hop.port}: {exc}",
            hint="check the address as the jump host sees it, and AllowTcpForwarding in its sshd_config",
        ) from exc
    return cast(SocketLike, channel)


def _handshake(
    stream: SocketLike, endpoint: Endpoint, name: str, stack: ExitStack, proxy: ProxyCommand | None
) -> "paramiko.Transport":
    """Exchange keys and check the server's. The transport is closed by the stack from the start."""
    import paramiko

    lines = host_keys.known_lines(endpoint)
    transport = paramiko.Transport(cast(socket.socket, stream))
    stack.callback(_close_transport, transport, stream)
    security = transport.get_security_options()
    security.key_types = host_keys.preferred_algorithms(lines, security.key_types)
    transport.banner_timeout = endpoint.connect_timeout_s
    where = f"{endpoint.host} port {endpoint.port}"
    try:
        transport.start_client(timeout=endpoint.connect_timeout_s)
    except (paramiko.SSHException, OSError, EOFError) as exc:
        if proxy is not None:
            raise proxy.failure(name, endpoint.connect_timeout_s) from exc
        raise HostUnreachable(
            f"{name}: {where} accepted the connection but the SSH handshake failed: {exc or 'connection closed'}",
            hint="check that an SSH server listens there; its log tells more (MaxStartups, algorithms, hosts.deny)",
        ) from exc
    if not transport.initial_kex_done:
        if proxy is not None:
            raise proxy.failure(name, endpoint.connect_timeout_s)
        raise HostUnreachable(
            f"{name}: {where} accepted the connection but did not finish the SSH handshake within "
            f"{endpoint.connect_timeout_s:g} s"
        )
    key = transport.get_remote_server_key()
    shown = PublicKey(key.get_name(), key.asbytes())
    if endpoint.known_hosts_command:
        lines = host_keys.known_lines(endpoint, shown)
    host_keys.verify(endpoint, lines, shown)
    return transport


def _close_transport(transport: "paramiko.Transport", stream: SocketLike) -> None:
    try:
        # Wakes the transport's thread, which otherwise looks every 0.1 s whether it may end.
        stream.shutdown(socket.SHUT_RDWR)
    except (OSError, EOFError):
        pass
    transport.close()
    stream.close()
    if transport.is_alive():
        transport.join(_JOIN_TIMEOUT_S)
